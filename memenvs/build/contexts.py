"""Questions of a benchmark with their own contexts, neither drawn nor shuffled."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from memenvs.build.draft import Documents, Draft
from memenvs.build.examples import Example, usable
from memenvs.core.data import Count, checked
from memenvs.tasks.taskset import SEPARATOR, Layout, Task
from memenvs.tasks.tokens import TextTokenizer

WHOLE = Layout(header="", separator="")
"""The layout of contexts that mark no documents: each is one document."""


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


@checked
def keep_contexts(
    kept: KeptContexts,
    *,
    tokenizer: TextTokenizer,
    count: Count | None = None,
    questions: Count = 1,
) -> Draft:
    """A task for each question, over the documents of the file in their order; equal documents are one.

    Args:
        kept: the questions.
        count: tasks, the first of the file (default: every question once).
        questions: maximum number of questions about one context in a task, in their order; `MemChunkQA-v0`
            may ask them one by one (`ask`). A question with "; ", or an answer with ";", stays alone.

    Raises:
        ValueError: two questions have one id, there are fewer than `count`, or none.
    """
    index: dict[tuple[str, str], int] = {}
    tasks: list[Task] = []
    left_out = 0

    def counted() -> Iterator[Example]:
        nonlocal left_out
        for example in kept.examples:
            left_out += not example.answers
            yield example

    for example in usable(counted(), kept.source):
        task = example.task([index.setdefault(part, len(index)) for part in example.paragraphs])
        if tasks and _joinable(tasks[-1], task, questions):
            tasks[-1] = _joined(tasks[-1], task)
        elif len(tasks) == count:
            break
        else:
            tasks.append(task)
    if count is not None and len(tasks) < count:
        raise ValueError(f"--num-tasks {count}: {kept.source} gives {len(tasks)}; ask for at most that")
    documents = Documents.tokenized(list(index), tokenizer)
    return Draft(documents, tasks, kept.layout, kept.environment, kept.metric, left_out)


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
    """(title, text) that `memenvs.tasks.taskset.shown` makes `body` of: the first line and the rest."""
    title, newline, text = body.partition("\n")
    return (title, text) if title and newline else ("", body)
