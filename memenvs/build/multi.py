"""A task set comes in; tasks that ask several of its questions at once go out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from memenvs.build.chance import item_rng, make_items
from memenvs.build.draft import Documents, Draft
from memenvs.card import CARD
from memenvs.tasks import Task, TaskSet
from memenvs.tokens import TextTokenizer

LEAST, MOST = 2, 16


def multi(
    source: TaskSet,
    *,
    objectives: int,
    count: int | None,
    tokenizer: TextTokenizer,
    split: str,
    seed: int,
) -> Draft:
    """Tasks of `objectives` questions each, joined by `"; "`, their answers in the same order (MEM1, MemPO).

    The documents are those of the questions, once each, shuffled afresh; the evidence follows the questions.
    A question whose preferred answer holds a ";" is not drawn, because ";" parts the answers.

    Args:
        source: single-question tasks.
        objectives: questions a task, 2 to 16, drawn without replacement.
        count: tasks; by default as many as the source has.
        tokenizer: counts the tokens.
        split: with `seed` it decides what is drawn.
        seed: any whole number of at least 0.

    Raises:
        ValueError: `objectives` is out of range, or the source is too small, has such tasks already, or has
            documents without a header, which cannot be told apart once they are shuffled (a haystack).
    """
    if not LEAST <= objectives <= MOST:
        raise ValueError(f"--objectives must be from {LEAST} to {MOST}, got {objectives}")
    if not source.card.layout.header:
        raise ValueError(
            f"the documents of {source.path} are one text in pieces (a haystack), which joining would mix; "
            "join a set of documents with headers"
        )
    if several := next((task.id for task in source if len(task.answers) > 1), None):
        raise ValueError(f"task {several} of {source.path} has several objectives already; join single ones")
    tasks = tuple(task for task in source if ";" not in task.answers[0][0])
    if len(tasks) < objectives:
        raise ValueError(
            f"{source.path} has {len(tasks)} tasks to join (without ';' in the answer), "
            f"fewer than --objectives {objectives}; ask for fewer, or give a larger source"
        )
    numbers = range(source.n_documents)
    pool = list(zip(source.titles(numbers), source.texts(numbers), strict=True))
    make = _Joiner(tasks, objectives, split, seed)
    return Draft(
        Documents.tokenized(pool, tokenizer),
        make_items(make, len(source) if count is None else count),
        source.card.layout,
        (source.path / CARD,),
        metric=source.card.metric,
    )


@dataclass(frozen=True)
class _Joiner:
    tasks: tuple[Task, ...]
    objectives: int
    split: str
    seed: int

    def __call__(self, item: int) -> Task:
        rng = item_rng(self.seed, self.split, item)
        drawn = [self.tasks[i] for i in rng.choice(len(self.tasks), self.objectives, replace=False)]
        documents = list(dict.fromkeys(number for task in drawn for number in task.documents))
        return Task(
            f"multi{self.objectives}-{self.split}-{item}",
            "; ".join(task.question for task in drawn),
            tuple(task.answers[0] for task in drawn),
            tuple(np.array(documents)[rng.permutation(len(documents))].tolist()),
            tuple(dict.fromkeys(number for task in drawn for number in task.evidence)),
            {
                "parts": [task.id for task in drawn],
                "spans": [span for task in drawn for span in task.meta.get("spans", [])],
            },
        )
