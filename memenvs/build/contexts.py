"""Questions of a source, and those of a benchmark with their own contexts, neither drawn nor shuffled."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from memenvs.build.draft import Documents, Draft
from memenvs.build.holdout import Keys, choose, parted
from memenvs.tasks.records import check_question
from memenvs.tasks.taskset import SEPARATOR, Layout, Task
from memenvs.tasks.tokens import TextTokenizer

WHOLE = Layout(header="", separator="")
"""The layout of contexts that mark no documents: each is one document."""


@dataclass(frozen=True)
class Example:
    """One question of a source.

    Attributes:
        id: unique in the source.
        question: the question.
        answers: accepted answers, the preferred one first; empty if the question cannot be scored.
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

    @property
    def asked(self) -> str:
        """The question, by which others are the same: in any case of letters, whatever blanks it has."""
        return " ".join(self.question.casefold().split())

    def task(self, numbers: Sequence[int]) -> Task:
        """The question over all of its paragraphs, in their order; paragraph i is document `numbers[i]`."""
        meta = {**self.meta}
        if self.spans:
            meta["spans"] = [[numbers[i], start, end] for i, start, end in self.spans]
        evidence = tuple(dict.fromkeys(numbers[i] for i in self.evidence))
        return Task(self.id, self.question, (self.answers,), tuple(numbers), evidence, meta)


def usable(examples: Iterable[Example], source: str) -> Iterator[Example]:
    """The examples that can be scored, checked one by one.

    Raises:
        ValueError: two share an id, one is empty or has a text that is not UTF-8, or there are none.
    """
    seen: set[str] = set()
    for example in examples:
        if not example.answers:
            continue
        texts = (*example.answers, *itertools.chain(*example.paragraphs))
        check_question(source, seen, example.id, example.question, texts)
        yield example
    if not seen:
        raise ValueError(f"{source} holds no question that can be scored; give another file")


@dataclass(frozen=True)
class KeptContexts:
    """The questions of a file, each with the documents that it is asked about, in their order.

    Attributes:
        examples: read once; those that cannot be scored are left out and counted.
        layout: joins the documents to the text of the file.
        metric: that of the benchmark; a name of `memenvs.tasks.metrics.METRICS`.
        source: the file, for errors.
        environment: the id of the environment that the tasks are made for.
    """

    examples: Iterable[Example]
    layout: Layout
    metric: str
    source: str
    environment: str = "MemChunkQA-v0"
    inputs: Sequence[Path] = ()

    def draw(self, options: Any, tokenizer: TextTokenizer, count: int | None, split: str) -> Draft:
        """The first questions, several in a task if the options say so."""
        return self.tasks(tokenizer, count, options.questions)

    def tasks(self, tokenizer: TextTokenizer, count: int | None = None, questions: int = 1) -> Draft:
        """A task for each question, over the documents of the file in their order; equal documents are one.

        Args:
            tokenizer: counts the tokens.
            count: tasks, the first of the file (default: every question once).
            questions: maximum number of questions about one context in a task, in their order. A question
                with "; ", or an answer with ";", stays alone.

        Raises:
            ValueError: two questions have one id, there are fewer than `count`, or none.
        """
        index: dict[tuple[str, str], int] = {}
        tasks: list[Task] = []
        left_out = 0

        def counted() -> Iterator[Example]:
            nonlocal left_out
            for example in self.examples:
                left_out += not example.answers
                yield example

        for example in usable(counted(), self.source):
            task = example.task([index.setdefault(part, len(index)) for part in example.paragraphs])
            if tasks and _joinable(tasks[-1], task, questions):
                tasks[-1] = _joined(tasks[-1], task)
            elif len(tasks) == count:
                break
            else:
                tasks.append(task)
        if count is not None and len(tasks) < count:
            raise ValueError(f"--num-tasks {count}: {self.source} gives {len(tasks)}; ask for at most that")
        documents = Documents.tokenized(list(index), tokenizer)
        return Draft(documents, tasks, self.layout, self.environment, self.metric, left_out)

    def divide(self, count: int, rng: np.random.Generator) -> tuple[KeptContexts, KeptContexts]:
        """See `Material.divide`."""
        every = list(self.examples)
        examples = list(usable(every, self.source))
        read: Keys = [[example.asked, *filter(None, [example.paragraphs])] for example in examples]
        # the same words about another text ask for something else
        alone: Keys = [[(example.asked, example.paragraphs)] for example in examples]
        aside = parted(examples, choose([read, alone], count, rng))[1]
        ids = {example.id for example in aside}
        left = [
            example for example in every if example.id not in ids
        ]  # also what cannot be scored: it is counted
        return replace(self, examples=left), replace(self, examples=aside)


def _joinable(before: Task, task: Task, questions: int) -> bool:
    """Whether a question is asked together with those before it."""
    return (
        len(before.answers) < questions
        and before.documents == task.documents
        and not any(SEPARATOR in asked or asked.endswith(";") for asked in (*before.questions, task.question))
        and not any(";" in accepted[0] for accepted in (*before.answers, *task.answers))
    )


def _joined(before: Task, task: Task) -> Task:
    """A task that also asks the question of another; `meta` has what both say, and the `parts`."""
    spans = [*before.meta.get("spans", []), *task.meta.get("spans", [])]
    parts = [*before.meta.get("parts", [before.id]), task.id]
    return Task(
        f"{parts[0]}+{len(parts) - 1}",
        f"{before.question}{SEPARATOR}{task.question}",
        (*before.answers, *task.answers),
        before.documents,
        tuple(dict.fromkeys((*before.evidence, *task.evidence))),
        {"parts": parts, **({"spans": spans} if spans else {})},
    )


def split_documents(context: str, layout: Layout) -> tuple[tuple[str, str], ...]:
    r"""(title, text) of the documents of a context; none where the layout would not give its text again.

    Document i + 1 begins at the first header of that number after document i, so the documents joined by
    the layout are the context, to the character. The title of a document of several lines is the first.

    >>> split_documents("Document 1:\nDam\nBuilt by Ann.\n\nDocument 2:\nMill", Layout())
    (('Dam', 'Built by Ann.'), ('', 'Mill'))
    """
    if layout == WHOLE:
        return (("", context),)
    first = layout.header.replace("{i}", "1")
    if not context.startswith(first):
        return ()
    documents, start = [], len(first)
    for number in itertools.count(2):
        seam = layout.separator + layout.header.replace("{i}", str(number))
        end = context.find(seam, start)
        documents.append(titled(context[start : end if end >= 0 else None]))
        if end < 0:
            break
        start = end + len(seam)
    return tuple(documents)


def titled(body: str) -> tuple[str, str]:
    """(title, text) of which `memenvs.tasks.taskset.document_text` makes `body`: the first line, the rest."""
    title, newline, text = body.partition("\n")
    return (title, text) if title and newline else ("", body)
