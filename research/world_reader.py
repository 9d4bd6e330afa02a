r"""Train a small model to read a world's prose, for measures that need one.

python -m research.world_reader FOLDER
python -m research.discriminate --target wrapped --measure hf:FOLDER/reader/last/policy
python -m research.discriminate --target wrapped --measure hf:FOLDER/reader/last/policy \
    --task-set FOLDER/questions-30000

Another world than `world-test` gives 28,000 questions, seen twice each, with the sentences that answer them
mixed with those of another question. The names of `world-test` are tokens too, which training never shows:
they start as names of their kind (`research.reproduce.world_gpt`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from memenvs.build.draft import Draft
from memenvs.build.examples import among_distractors
from memenvs.build.worldgen import generate
from memenvs.build.write import write_task_set
from memenvs.core.episode import Episode
from memenvs.tasks.metrics import wrap_answer
from memenvs.tasks.taskset import Card, TaskSet, open_tasks
from memenvs.tasks.tokens import load_tokenizer
from research.demonstrations import demonstration, write_demonstrations
from research.discriminate import answer_prompt, corrupt
from research.harness import clone
from research.reproduce.world_gpt import save_world_gpt
from research.reproduce.world_tasks import Names

ENTITIES, QUESTIONS = 10_000, 30_000
PART = 500  # questions per part; a question's other sentences come from the same part
BUNDLED = (1000, "test")  # entities and split of world-test, as `research.bundled` makes it


def parts(folder: Path, entities: int, questions: int) -> Iterator[TaskSet]:
    """Task sets of the training world, each with this many questions."""
    tokenizer = load_tokenizer("world")
    world = generate(entities, questions, split="train", seed=1)
    examples, extra = world.examples("train"), world.documents
    draft = among_distractors(examples, extra=extra, documents=4, tokenizer=tokenizer, split="train", seed=1)
    for first in range(0, questions, PART):
        card = Card("world", arguments={"entities": entities, "first": first})
        some = Draft(draft.documents, draft.tasks[first : first + PART], draft.layout)
        yield write_task_set(folder / f"questions-{first}", some, card, tokenizer)


def answered(tasks: TaskSet, rng: np.random.Generator) -> Iterator[Episode]:
    """Each question with its sentences and another's in random order, and its answer."""
    for one in corrupt(tasks, seed=int(rng.integers(2**31))):
        lines = one.true.split("\n")
        context = "\n".join(lines[i] for i in rng.permutation(len(lines)))
        yield demonstration(
            [(answer_prompt(one.question, context), wrap_answer(one.answer, "boxed"))], "rewrite", True
        )


def main() -> int:
    """Train and save."""
    parser = argparse.ArgumentParser(description="a small model that reads the prose of a world")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--entities", type=int, default=ENTITIES)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    shown, model = args.folder / "answered.jsonl", args.folder / "model"
    if not shown.exists():
        rng = np.random.default_rng(0)
        *made, _ = parts(args.folder, args.entities, args.questions + PART)  # the last part is for measuring
        write_demonstrations(shown, (one for tasks in made for one in answered(tasks, rng)))
    if not model.exists():
        names = Names(args.entities, "train", seed=1, also=Names(*BUNDLED).kinds)
        fixed = [*answer_prompt("|", "|").split("|"), *wrap_answer("|", "boxed").split("|"), "\n"]
        save_world_gpt(model, names, open_tasks(args.folder / "questions-0"), fixed, window=512)
    clone(
        model,
        shown,
        args.folder / "reader",
        ["--env", "MemChunkQA-v0"],
        passes=args.epochs,
        rate=2e-3,
        eval_every=0,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
