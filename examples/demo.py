"""Two attempts at one question by an agent that sometimes forgets its notes, and the credit of each turn."""

import random
import re

import memenvs

rng = random.Random(10)


def agent(observation, info):
    """Note every sentence on the lighthouse, and answer by the year in the notes."""
    notes = "\n".join(re.findall(r"Werrholt Lighthouse,.*?\.", observation))
    if "<section>" not in observation:  # all sections were read
        return f"\\boxed{{{''.join(re.findall(r'[0-9]+', notes))}}}"
    return "" if info["turn"] == 3 and rng.random() < 0.5 else notes


def main() -> None:
    """Play, and show each turn beside what it earned."""
    attempts = memenvs.collect(
        "MemChunkQA-v0", agent, [0], tasks=[142], n=2, methods=["IGPO"], scorer="lexical"
    )
    fields = attempts[0].turns[0].before["privileged"]
    print("An agent reads five sections of a long text and keeps notes, to answer a question:")
    print(f'"{fields["question"]}" ({fields["target"]})')
    for number, episode in enumerate(attempts, 1):
        print(f"\nAttempt {number}: {'right' if episode.success else 'wrong'}\n")
        print("turn  credit  what it wrote")
        for turn, credit in enumerate(episode.turn_rewards):
            reply = episode.turns[turn].reply.text or "(nothing)"
            loss = "   <- this turn lost the answer" if credit < 0 else ""
            print(f"{turn + 1:4}  {credit:+6.1f}  {reply}{loss}")
    print("\nThe outcome alone pays every turn of an attempt the same. IGPO pays a turn for making the right")
    print("answer more likely; here by shared words. A trained model seldom drops a note. More often it")
    print("misses a fact or notes it wrongly, which words alone hardly show: ask a model, scorer='hf:MODEL'.")
    print("\nYour texts:     memenvs build texts --documents FOLDER --questions FILE --out mine")
    print("Your server:    memenvs evaluate run --env MemChunkQA-v0 --policy openai:http://127.0.0.1:8000/v1")
    print("Your trainer:   docs/trainers.md")
    print("Your own logs:  memenvs credit FILE")
    print("\nA small language model reads: make demo-lm")


if __name__ == "__main__":
    main()
