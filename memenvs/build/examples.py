"""Question-answering examples come in; tasks with their evidence hidden among many documents go out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memenvs.build.chance import item_rng, make_items
from memenvs.build.write import Documents, Draft, frame_tokens
from memenvs.tasks import Layout, Task
from memenvs.tokens import TextTokenizer, check_positive

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Example:
    """One question of a source.

    Attributes:
        id: unique in the source.
        question: the question.
        answers: accepted answers, the preferred one first.
        paragraphs: (title, text) of its own paragraphs.
        evidence: which of them the answer needs, in the order of the reasoning.
        spans: (paragraph, start, end): the characters of the sentences needed, where the source marks them.
        meta: plain data to keep.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    paragraphs: tuple[tuple[str, str], ...]
    evidence: tuple[int, ...]
    spans: tuple[tuple[int, int, int], ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)


def among_distractors(
    examples: Sequence[Example],
    *,
    tokenizer: TextTokenizer,
    split: str,
    seed: int,
    documents: int | None = None,
    tokens: int | None = None,
    count: int | None = None,
    workers: int = 1,
    inputs: tuple[Path, ...] = (),
    extra: Sequence[tuple[str, str]] = (),
) -> Draft:
    """RULER-HotpotQA: each question with its own paragraphs and others drawn from the pool, shuffled afresh.

    The pool is every paragraph of the examples, once. A task gets its evidence, then its own other
    paragraphs, then paragraphs drawn without replacement, never one with the title of an evidence document.
    The reference scripts shuffle every task by one permutation, so that evidence always falls in the same
    places; here every task draws its own.

    Args:
        examples: the questions.
        tokenizer: counts the tokens.
        split: name of the split; with `seed` it decides what is drawn.
        seed: any whole number of at least 0.
        documents: documents a task.
        tokens: instead, the most tokens a task's text may have; met within one document.
        count: tasks; beyond the number of examples they are used again, with other documents. By default
            each is used once.
        workers: processes; the result does not depend on them.
        inputs: the files that were read.
        extra: more (title, text) paragraphs for the pool.

    Raises:
        ValueError: not exactly one of `documents` and `tokens`; the pool is too small; the evidence alone is
            over the budget.
    """
    if (documents is None) == (tokens is None):
        raise ValueError("give either --documents (a number of documents) or --tokens (a budget of tokens)")
    for name, value in (("documents", documents), ("tokens", tokens), ("tasks", count)):
        if value is not None:
            check_positive(f"--{name}", value, name)
    pool, numbers = _pool(examples, extra)
    tokenized = Documents.tokenized(pool, tokenizer)
    layout = Layout()
    longest = len(pool) if documents is None else documents
    make = _TaskMaker(
        tuple(examples), numbers, np.array(_title_numbers(pool)), tokenized.tokens,
        frame_tokens(tokenizer, layout, min(longest, len(pool))), documents, tokens, seed, split,
    )  # fmt: skip
    tasks = make_items(make, count or len(examples), workers=workers)
    return Draft(tokenized, tasks, layout, inputs)


@dataclass(frozen=True)
class _TaskMaker:
    """Makes task i; picklable, so that any process can."""

    examples: tuple[Example, ...]
    numbers: tuple[tuple[int, ...], ...]  # of each example's paragraphs in the pool
    titles: Ints  # (D,) a number for the title of each document of the pool
    tokens: Ints  # (D,) of each document
    frame: Ints  # (D,) tokens of the headers and separators of the first 1, 2, … documents
    documents: int | None
    budget: int | None
    seed: int
    split: str

    def __call__(self, item: int) -> Task:
        cycle, index = divmod(item, len(self.examples))
        example, own = self.examples[index], np.array(self.numbers[index])
        rng = item_rng(self.seed, self.split, item)
        evidence = _unique(own[list(example.evidence)])
        others = _unique(own[~np.isin(self.titles[own], self.titles[evidence])])
        chosen = self._fill(example, evidence, rng.permutation(others), rng)
        order = rng.permutation(chosen)
        meta = {**example.meta}
        if example.spans:
            meta["spans"] = [[int(own[paragraph]), start, end] for paragraph, start, end in example.spans]
        return Task(
            example.id if cycle == 0 else f"{example.id}-{cycle + 1}",
            example.question,
            (example.answers,),
            tuple(order.tolist()),
            tuple(evidence.tolist()),
            meta,
        )

    def _fill(self, example: Example, evidence: Ints, others: Ints, rng: np.random.Generator) -> Ints:
        """Evidence, then `others`, then documents of the pool, up to the number or the budget asked for."""
        same_title = np.flatnonzero(np.isin(self.titles, self.titles[evidence]))
        excluded = np.union1d(others, same_title)
        first = np.concatenate([evidence, others])
        if self.documents is not None:
            most = len(self.tokens) - len(same_title) + len(evidence)
            if not len(evidence) <= self.documents <= most:
                raise ValueError(
                    f"--documents {self.documents} does not suit question {example.id}: it needs "
                    f"{len(evidence)} and the pool has {most} for it; choose between, or give a larger source"
                )
            drawn = self._draw(self.documents - len(first), excluded, rng)
            return np.concatenate([first, drawn])[: self.documents]
        return self._fill_budget(int(self.budget or 0), example, first, len(evidence), excluded, rng)

    def _fill_budget(
        self,
        budget: int,
        example: Example,
        first: Ints,
        needed: int,
        excluded: Ints,
        rng: np.random.Generator,
    ) -> Ints:
        """`first`, whose leading `needed` are the evidence, and documents of the pool, within the budget."""
        least = int(self.tokens[first[:needed]].sum() + self.frame[needed - 1])
        if least > budget:
            raise ValueError(
                f"--tokens {budget} is too small: question {example.id} has evidence of {least} tokens; "
                "give at least that"
            )
        guess = math.ceil(1.5 * budget / float(self.tokens.mean())) + 8
        for wanted in (guess, len(self.tokens)):
            candidates = np.concatenate([first, self._draw(wanted, excluded, rng)])
            used = self.tokens[candidates].cumsum() + self.frame[: len(candidates)]
            fits = int(np.searchsorted(used, budget, side="right"))
            if fits < len(candidates):
                break
        return candidates[:fits]

    def _draw(self, count: int, excluded: Ints, rng: np.random.Generator) -> Ints:
        """Up to `count` documents of the pool in random order, without replacement, none of `excluded`."""
        if count <= 0:
            return np.zeros(0, np.int64)
        drawn = rng.choice(len(self.tokens), min(count + len(excluded), len(self.tokens)), replace=False)
        return drawn[~np.isin(drawn, excluded)][:count]


def _pool(
    examples: Sequence[Example], extra: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, str]], tuple[tuple[int, ...], ...]]:
    """Every paragraph once, in order of appearance, and the numbers of each example's paragraphs."""
    index = {paragraph: i for i, paragraph in enumerate(dict.fromkeys(extra))}
    numbers = tuple(
        tuple(index.setdefault(paragraph, len(index)) for paragraph in example.paragraphs)
        for example in examples
    )
    return list(index), numbers


def _title_numbers(pool: Sequence[tuple[str, str]]) -> list[int]:
    index: dict[str, int] = {}
    return [index.setdefault(title, len(index)) for title, _ in pool]


def _unique(numbers: Ints) -> Ints:
    """The numbers without repeats, in order of appearance."""
    return np.array(list(dict.fromkeys(numbers.tolist())), np.int64)
