"""Questions among distractors: `memenvs build hotpotqa --source FILE --documents 200 --out DIR`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from memenvs.build.contexts import Example, KeptContexts, usable
from memenvs.build.draft import DiskList, Documents, Draft, Ints, item_rng, make_items, sizes_with_headers
from memenvs.build.holdout import Keys, choose, parted
from memenvs.core.data import Count, Whole, checked
from memenvs.core.processes import Workers
from memenvs.tasks.taskset import Layout, Task
from memenvs.tasks.tokens import TextTokenizer


@dataclass(frozen=True)
class Pool:
    """Questions, and what their tasks are drawn from.

    Attributes:
        examples: the questions.
        extra: more (title, text) paragraphs to draw from.
        documents: of a task, where no size is asked for.
        own_paragraphs: whether a question's own paragraphs are a task where no size is asked for.
        left_out: questions of the source that cannot be scored.
        inputs: files that were read beside the source.
    """

    examples: Sequence[Example]
    extra: Sequence[tuple[str, str]] = ()
    documents: int | None = None
    own_paragraphs: bool = False
    left_out: int = 0
    inputs: Sequence[Path] = ()

    @classmethod
    def of(cls, examples: Iterable[Example], source: str, extra: Sequence[tuple[str, str]] = ()) -> Pool:
        """The examples of a file that can be scored; the others are counted. See `usable`."""
        every = list(examples)
        left_out = sum(not example.answers for example in every)
        return cls(list(usable(every, source)), extra, own_paragraphs=True, left_out=left_out)

    def draw(self, options: Any, tokenizer: TextTokenizer, count: int | None, split: str) -> Draft:
        """The questions among distractors, or among their own paragraphs if no size is asked for."""
        documents = options.documents or (None if options.tokens else self.documents)
        if self.own_paragraphs and documents is None and options.tokens is None:
            draft = KeptContexts(self.examples, Layout(), "em", options.source).tasks(tokenizer, count)
        else:
            draft = among_distractors(
                self.examples,
                tokenizer=tokenizer,
                documents=documents,
                tokens=options.tokens,
                count=count,
                split=split,
                seed=options.seed,
                workers=options.workers,
                extra=self.extra,
            )
        return replace(draft, left_out=self.left_out)

    def divide(self, count: int, rng: np.random.Generator) -> tuple[Pool, Pool]:
        """See `Material.divide`."""
        asked: Keys = [[example.asked] for example in self.examples]
        needed: Keys = [
            [example.asked, frozenset(example.paragraphs[i] for i in example.evidence)]
            for example in self.examples
        ]
        left, aside = parted(self.examples, choose([needed, asked], count, rng))
        others = dict.fromkeys(part for example in left for part in example.paragraphs)
        return replace(self, examples=left), replace(self, examples=aside, extra=[*self.extra, *others])


@checked
def among_distractors(
    examples: Sequence[Example],
    *,
    tokenizer: TextTokenizer,
    documents: Count | None = None,
    tokens: Count | None = None,
    count: Count | None = None,
    split: str = "train",
    seed: Whole = 0,
    workers: Workers = 1,
    extra: Sequence[tuple[str, str]] = (),
) -> Draft:
    """RULER-HotpotQA: each question with its own paragraphs and others drawn from the pool, shuffled.

    The pool is every paragraph of the examples, once. A task gets its evidence, then its own other
    paragraphs, then paragraphs drawn without replacement, never one with the title of an evidence document.
    The reference scripts shuffle every task by one permutation, so that evidence always falls in the same
    places; here every task draws its own. A question that is used again gets different documents than the
    last time if there is room for more than its evidence and the pool has others.

    Args:
        examples: the questions.
        documents: number of documents in a task; without it and --tokens, a question of a file keeps its own.
        tokens: instead of documents, the maximum tokens of a task's text; missed by less than a document.
        count: tasks (default: every question once); beyond that questions are used again.
        extra: more (title, text) paragraphs for the pool.

    Raises:
        ValueError: not exactly one of `documents` and `tokens`; the pool is too small; the evidence alone is
            over the budget.
    """
    if (documents is None) == (tokens is None):
        raise ValueError("give either --documents (a number of documents) or --tokens (a budget of tokens)")
    index = {paragraph: i for i, paragraph in enumerate(dict.fromkeys(extra))}
    whole = [
        example.task([index.setdefault(part, len(index)) for part in example.paragraphs])
        for example in examples
    ]
    layout, pool = Layout(), Documents.tokenized(list(index), tokenizer)
    sizes = None if tokens is None else sizes_with_headers(pool, layout, tokenizer, len(index))
    questions = _questions(whole, pool.titles)
    make = _TaskMaker(questions, len(index), sizes, documents or tokens or 0, seed, split)
    drawn = make_items(make, count or len(examples), workers=workers)
    if len(drawn) <= len(examples):
        return Draft(pool, drawn, layout)
    tasks = DiskList[Task]()
    for item, task in enumerate(drawn):
        before = tasks[item - len(examples)].documents if item >= len(examples) else ()
        same = sum(task.documents) == sum(before) and {*task.documents} == {*before}
        tasks.append(make.differently(item, task) if same else task)
    return Draft(pool, tasks, layout)


@dataclass(frozen=True)
class _Question:
    """A question, and which of the pool's documents its tasks may draw."""

    task: Task  # over its own paragraphs
    evidence: Ints
    others: Ints  # the rest of its own, once each, none with the title of an evidence document
    excluded: Ints  # not to be drawn from the pool: all of these, and what has a title of the evidence


def _questions(tasks: Sequence[Task], titles: Sequence[str]) -> list[_Question]:
    titled: dict[str, list[int]] = {}
    for number, title in enumerate(titles):
        if title:  # texts without a title do not share one
            titled.setdefault(title, []).append(number)
    questions = []
    for task in tasks:
        same_title = {
            number for document in task.evidence for number in titled.get(titles[document], [document])
        }
        others = [number for number in dict.fromkeys(task.documents) if number not in same_title]
        parts = (task.evidence, others, sorted({*same_title, *others}))
        questions.append(_Question(task, *(np.array(part, np.int64) for part in parts)))
    return questions


@dataclass(frozen=True)
class _TaskMaker:
    """Makes task i; picklable, so that any process can."""

    questions: list[_Question]
    pool: int  # documents of it
    sizes: tuple[Ints, Ints] | None  # see `sizes_with_headers`; None without a budget
    size: int  # documents of a task, or its budget of tokens
    seed: int
    split: str

    def __call__(self, item: int) -> Task:
        cycle, index = divmod(item, len(self.questions))
        question = self.questions[index]
        rng = item_rng(self.seed, self.split, item)
        id_ = f"{question.task.id}-{cycle + 1}" if cycle else question.task.id
        return replace(question.task, id=id_, documents=self._shuffled(self._choose(question, rng), rng))

    def _shuffled(self, chosen: Ints, rng: np.random.Generator) -> tuple[int, ...]:
        return tuple(rng.permutation(chosen).tolist())

    def differently(self, item: int, task: Task) -> Task:
        """`task`, which is item `item`, with another set of documents, if there is one."""
        question = self.questions[item % len(self.questions)]
        rng = item_rng(self.seed, f"{self.split}\0differently", item)
        extra = np.setdiff1d(task.documents, question.evidence)
        if len(extra):
            left_out = rng.choice(extra)
            others = question.others[question.others != left_out]
            question = replace(question, others=others, excluded=np.append(question.excluded, left_out))
            if self.sizes is None and self._most(question) < self.size:
                return task  # it already reads the whole pool
            chosen = self._choose(question, rng)
        elif self.sizes is not None:
            (tokens, numbering), needed = self.sizes, len(question.evidence)
            room = self.size - int(tokens[question.evidence].sum() + numbering[needed])
            small = np.setdiff1d(np.flatnonzero(tokens <= room), question.excluded)
            small = np.concatenate([small, question.others[tokens[question.others] <= room]])
            chosen = np.append(question.evidence, rng.choice(small, min(1, len(small))))
        else:
            return task
        return replace(task, documents=self._shuffled(chosen, rng))

    def _choose(self, question: _Question, rng: np.random.Generator) -> Ints:
        """The documents of a task, in no order yet."""
        first = np.concatenate([question.evidence, rng.permutation(question.others)])
        if self.sizes is not None:
            return self._by_budget(*self.sizes, question, first, rng)
        least, most = len(question.evidence), self._most(question)
        if not least <= self.size <= most:
            raise ValueError(
                f"--documents {self.size} does not suit question {question.task.id}: it needs {least} "
                f"and the pool has {most} for it; choose between, or give a larger source"
            )
        drawn = self._draw_documents(self.size - len(first), question.excluded, rng)
        return np.concatenate([first, drawn])[: self.size]

    def _most(self, question: _Question) -> int:
        """Documents that the pool has for a question, its own among them."""
        return self.pool - len(question.excluded) + len(question.evidence) + len(question.others)

    def _by_budget(
        self, tokens: Ints, numbering: Ints, question: _Question, first: Ints, rng: np.random.Generator
    ) -> Ints:
        """As many of `first` and of the pool, in that order, as the budget holds; all the evidence."""
        budget = self.size
        least = int(tokens[question.evidence].sum() + numbering[len(question.evidence) - 1])
        if least > budget:
            raise ValueError(
                f"--tokens {budget} is too small: question {question.task.id} has evidence of {least} "
                "tokens; give at least that"
            )
        guess = math.ceil(1.5 * budget * len(tokens) / float(tokens.sum())) + 8
        for wanted in (guess, len(tokens)):
            candidates = np.concatenate([first, self._draw_documents(wanted, question.excluded, rng)])
            used = tokens[candidates].cumsum() + numbering[: len(candidates)]
            if used[-1] >= budget:
                return candidates[: np.searchsorted(used, budget, side="right")]
        raise ValueError(
            f"--tokens {budget} does not suit question {question.task.id}: the pool has {used[-1]} tokens "
            "for it; ask for fewer, or give a larger source"
        )

    def _draw_documents(self, count: int, excluded: Ints, rng: np.random.Generator) -> Ints:
        """Up to `count` documents of the pool in random order, without replacement, none of `excluded`."""
        if count <= 0:
            return np.zeros(0, np.int64)
        drawn = rng.choice(self.pool, min(count + len(excluded), self.pool), replace=False)
        return drawn[~np.isin(drawn, excluded)][:count]
