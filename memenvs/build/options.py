"""The options that sources of `memenvs build` share, and the table of benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memenvs.build.draft import TEXTS
from memenvs.core.data import Count, Positive, Whole, convert
from memenvs.core.files import read_json
from memenvs.core.processes import Workers


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a benchmark is published; fields are named by their paths, such as `question.text`.

    Attributes:
        id, question, context, answers: the fields of these; without an id, records are numbered.
        asks: the question where that is blank.
        options: fields of the texts of a multiple choice.
        meta: fields that are kept.
        metric: the benchmark's metric.
        metrics: instead, the metrics of its tasks, by a regular expression for the `task` or the file's path.
            Words that are no metric's name say what memenvs does not have.
        task: the field that tells the task.
        headers: how a context may mark its documents; a context that marks none is one document. If records
            have documents instead of a context, the first header joins them.
        separators: what may be between documents.
        uniform: refuse a context that marks no documents where the first one does.
        drawn: whether tasks are drawn from all records' documents, in place of a context each.
        environment: the id of the environment that the tasks are made for.
    """

    id: str = ""
    question: str = ""
    context: str = ""
    answers: str = ""
    asks: str = ""
    options: tuple[str, ...] = ()
    meta: tuple[str, ...] = ()
    metric: str = ""
    metrics: dict[str, str] = field(default_factory=dict)
    task: str = ""
    headers: tuple[str, ...] = ()
    separators: tuple[str, ...] = ("\n\n",)
    uniform: bool = False
    drawn: bool = False
    environment: str = "MemChunkQA-v0"

    @property
    def fields(self) -> set[str]:
        """The fields of a record that hold a question and what is kept of it."""
        paths = (self.id, self.question, self.context, self.answers, *self.options, *self.meta)
        return {path.partition(".")[0] for path in paths} - {""}


PUBLISHED = read_json(TEXTS / "benchmarks.json")
"""By the names of benchmarks: title, files, licence, citation, and the `form` of its records if that is all
that a reader needs to know."""
PUBLISHED_FORMS = {
    name: convert(facts["form"], Form, f"the form of {name}")
    for name, facts in PUBLISHED.items()
    if "form" in facts
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What tasks of every source are made of."""

    num_tasks: Count | None = None
    """number of tasks (default: every question once); beyond that questions are used again."""
    split: str = "train"
    """name of the split; an hf: source reads it. Split and seed decide every random choice."""


@dataclass(frozen=True, kw_only=True)
class Kept(Options):
    """A file whose questions keep the contexts that they come with."""

    num_tasks: Count | None = None
    """number of tasks, the first of the file (default: every question once)."""
    source: str
    """the benchmark's file (its names are above), or hf:NAME[:CONFIG]."""
    questions: Count = 1
    """maximum number of questions about one context in a task, in their order; MemChunkQA-v0 may ask them one
    by one (ask). A question with "; ", or an answer with ";", stays alone."""


@dataclass(frozen=True, kw_only=True)
class Seeded(Options):
    """Sources that draw."""

    seed: Whole = 0
    """decides every random choice."""


@dataclass(frozen=True, kw_only=True)
class Drawn(Seeded):
    """Questions that are asked among documents of a pool."""

    documents: Count | None = None
    """number of documents in a task; without it and --tokens, a question of a file keeps its own."""
    tokens: Count | None = None
    """instead of documents, the maximum tokens of a task's text; missed by less than a document."""
    workers: Workers = 1
    """number of processes, or ray for the workers of a Ray cluster; the result is the same."""


@dataclass(frozen=True, kw_only=True)
class DrawnFile(Drawn):
    """A file of questions, each with paragraphs of its own."""

    source: str
    """the benchmark's file (its names are above), or hf:NAME[:CONFIG]."""


@dataclass(frozen=True, kw_only=True)
class Hidden(Seeded):
    """Tasks that are hidden in a long text."""

    tokens: Count
    """maximum tokens of a task's text, tokenised whole; missed by less than one of its parts."""
    essays: Path | None = None
    """folder of *.txt, the long text (default: the bundled world)."""


@dataclass(frozen=True, kw_only=True)
class Joined(Seeded):
    """Tasks of task sets."""

    num_tasks: Count | None = None
    """number of tasks (default: as many as the sources have together)."""
    source: Sequence[str]
    """task sets (folders or bundled names), or JSON Lines of questions and answers."""
    weights: Sequence[Positive] | None = None
    """weights of the sources, each above 0 (default: equal)."""
