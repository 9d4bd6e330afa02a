"""Tasks of one-line documents about people and towns, made from the bundled world."""

from __future__ import annotations

from pathlib import Path

from memenvs.build.draft import Documents, Draft, item_rng
from memenvs.build.worldgen import chronicle
from memenvs.build.write import write_task_set
from memenvs.tasks.taskset import Card, Layout, Task
from memenvs.tasks.tokens import TextTokenizer

PEOPLE, TOWNS = 32, 8  # small enough that every possible sentence is met often in a short warm-up
CHUNKS, SENTENCES = 5, 4  # of a task, of a chunk
CHUNK_SIZE = 2 * SENTENCES  # tokens of the model's: a sentence, the line's end
MAX_MEMORY = 6  # tokens: two sentences take 3, but memories are cut at 16 characters a token too
BORN, STOP, LINE = " was born in ", ".", "\n"
QUESTION = "the birthplace of {person}"
TEMPLATE = {  # the prompt ends in the name: what to look for is where the looking begins
    "read": "Section:\n{chunk}\nMemory:\n{memory}\nNew memory to find {question}",
    "answer": "Memory:\n{memory}\nAnswer with {question}",
}


def sentence(person: str, town: str) -> str:
    """A document."""
    return f"{person}{BORN}{town}{STOP}"


def names() -> tuple[list[str], list[str]]:
    """People and towns of a world as the bundled one is made."""
    world = chronicle.build(400, "train", seed=0)
    people, towns = ([world.entities[i].name for i in world.of_kind(kind)] for kind in ("person", "town"))
    return people[:PEOPLE], towns[:TOWNS]


def save_reading_tasks(out: Path, tokenizer: TextTokenizer, split: str, count: int) -> Path:
    """Write `count` tasks in which people are born in new random towns each time, one of them asked about.

    No fact holds from one task to the next, so that an answer can be read and never remembered. Training and
    test tasks share names, not draws.
    """
    people, towns = names()
    documents = [("", sentence(person, town)) for person in people for town in towns]
    tasks = []
    for number in range(count):
        rng = item_rng(0, f"reading-{split}", number)
        chosen = rng.choice(len(people), CHUNKS * SENTENCES, replace=False)
        born = rng.integers(len(towns), size=len(chosen))
        shown = tuple((chosen * len(towns) + born).tolist())
        asked = int(rng.integers(len(chosen)))
        question = QUESTION.format(person=people[chosen[asked]])
        answer = ((towns[born[asked]],),)
        tasks.append(Task(f"reading-{split}-{number}", question, answer, shown, (shown[asked],)))
    draft = Draft(Documents.tokenized(documents, tokenizer), tasks, Layout(header="", separator=LINE))
    card = Card("reading", arguments={"split": split, "tasks": count, "people": PEOPLE, "towns": TOWNS})
    write_task_set(out, draft, card, tokenizer)
    return out
