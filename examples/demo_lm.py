"""A small language model reads a text chunk by chunk; the demo shows its notes and what each would be paid.

It plays a task of the bundled world. Below each memory it prints InfoMem's gain, how much the memory raises
the answer's log-probability in nats a token, and at the end TAMTRL's p_t, the mean probability of each
memory's tokens under a teacher that sees only the evidence. The agent is the shipped `smollm2-reader`
(docs/agents.md); `--agent smollm2` is the model before training, whose notes help little.
"""

import argparse
import textwrap

import gymnasium as gym
import numpy as np
import transformers

import memenvs  # noqa: F401  # registers the environments
from memenvs.core.episode import Episode
from memenvs.core.terminal import show
from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.models import HFPolicy, SamplingParams
from memenvs.rollout.collect import begin, step
from memenvs.rollout.policy import as_policy, replies_to
from memenvs.wrappers import RewardWrapper
from memenvs.wrappers.scorers import HFScorer, ScoreRequest

READING = {
    "n_documents": 6,
    "chunk_size": 300,
    "cut_at": "document",
    "max_memory": 128,
    "max_answer": 32,
    "template": "short",
    "tokenizer": "world",  # it counted the reader's chunks in training
}
BOLD, DIM, GREEN, YELLOW, RESET = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[0m"
MARK = "»"  # before a needed sentence, also without colours


def main() -> None:
    """Play one task and show every turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agent", default="smollm2-reader", help="a model by name, or a folder")
    parser.add_argument("--task", type=int, default=29, help="number of the task in world-test")
    parser.add_argument("--seed", type=int, default=0, help="seed of the documents besides the evidence")
    args = parser.parse_args()

    transformers.utils.logging.disable_progress_bar()
    policy = HFPolicy(args.agent, sampling_params=SamplingParams(temperature=0.0))
    scorer = HFScorer(policy.model, policy.tokenizer)
    env = gym.make("MemChunkQA-v0", tasks="world-test", **READING)
    wrapped = RewardWrapper(env, ["TAMTRL"], scorer, policy.template)
    replies, episode = as_policy(policy, max_new_tokens=192), Episode(seed=args.seed, number=args.task)
    request = begin(wrapped, episode)
    asked = request.info["privileged"]
    show(f"{BOLD}{asked['question']}{RESET}\n\n")
    legend = "gain: how much the memory raises the right answer's log-probability, in nats a token"
    show(f"{DIM}{legend}{RESET}\n\n")

    while request:
        show_section(env.unwrapped, request.turn.text)
        (reply,) = replies_to(replies, [request])
        request = step(request, reply)
        show(f"{YELLOW}{'memory' if request else 'answer'}{RESET}\n{indented(reply.text or '(empty)')}\n")
        if request:
            gain = information_gain(scorer, policy.template or "{prompt}", request.info["privileged"])
            show(f"{DIM}  gain {gain:+.2f}{RESET}\n\n")

    likely = ", ".join(f"{value:.2f}" for value in episode.signals["tamtrl"][:-1])
    paid = ", ".join(f"{credit.value:.2f}" for credit in episode.credits["tamtrl"])
    show(f"\ngold answer: {asked['target']}; exact match {episode.metrics['em']:g}\n")
    show(f"probability of each memory for a teacher that sees only the evidence: {likely}\n")
    show(f"so TAMTRL pays the turns, scaled from the worst to the best memory: {paid}\n")


def show_section(env: ChunkQAEnv, prompt: str) -> None:
    """Show the sentences of the section in a prompt, if it has one, with the needed ones marked."""
    state = env.state
    task = env.tasks[state.task]
    for document, text in zip(state.documents, env.tasks.texts(state.documents), strict=True):
        if env.answering or text not in prompt:
            continue
        (title,) = env.tasks.titles([document])
        needed = sorted((start, end) for number, start, end in task.meta["spans"] if number == document)
        lines, end = [f"{BOLD}{title}{RESET}"], 0
        for start, stop in needed:
            lines += [text[end:start], f"{GREEN}{MARK} {text[start:stop].strip()}{RESET}"]
            end = stop
        show("\n".join(indented(line.strip()) for line in [*lines, text[end:]] if line.strip()) + "\n")


def information_gain(scorer: HFScorer, template: str, privileged: dict[str, object]) -> float:
    """InfoMem's r_gain (eq. 6) of the current memory, in nats a token."""
    prompts = [str(privileged[name]) for name in ("prompt_with_memory", "prompt_without_memory")]
    requests = [ScoreRequest(template.replace("{prompt}", one), str(privileged["target"])) for one in prompts]
    with_memory, without = (float(np.mean(nats)) for nats in scorer.logprobs(requests))
    return with_memory - without


def indented(text: str) -> str:
    """Lines of at most 100 characters, two spaces before each."""
    return "\n".join(
        textwrap.fill(line, 100, initial_indent="  ", subsequent_indent="  ") for line in text.splitlines()
    )


if __name__ == "__main__":
    main()
