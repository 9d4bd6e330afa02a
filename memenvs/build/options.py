"""The options that sources of `memenvs build` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memenvs.core.data import Count, Positive, Whole
from memenvs.core.processes import Workers


@dataclass(frozen=True, kw_only=True)
class Options:
    """What tasks of every source are made of.

    Args:
        num_tasks: number of tasks (default: every question once); beyond that questions are used again.
        split: name of the split; an hf: source reads it. Split and seed decide every random choice.
    """

    num_tasks: Count | None = None
    split: str = "train"


@dataclass(frozen=True, kw_only=True)
class Kept(Options):
    """A file whose questions keep the contexts that they come with.

    Args:
        source: the benchmark's file (its names are above), or hf:NAME[:CONFIG].
        num_tasks: number of tasks, the first of the file (default: every question once).
        questions: maximum number of questions about one context in a task, in their order; MemChunkQA-v0 may
            ask them one by one (ask). A question with "; ", or an answer with ";", stays alone.
    """

    source: str
    questions: Count = 1


@dataclass(frozen=True, kw_only=True)
class Seeded(Options):
    """Sources that draw.

    Args:
        seed: decides every random choice.
    """

    seed: Whole = 0


@dataclass(frozen=True, kw_only=True)
class Drawn(Seeded):
    """Questions that are asked among documents of a pool.

    Args:
        documents: number of documents in a task; without it and --tokens, a question of a file keeps its own.
        tokens: instead of documents, the maximum tokens of a task's text; missed by less than a document.
        workers: number of processes, or ray for the workers of a Ray cluster; the result is the same.
    """

    documents: Count | None = None
    tokens: Count | None = None
    workers: Workers = 1


@dataclass(frozen=True, kw_only=True)
class DrawnFile(Drawn):
    """A file of questions, each with paragraphs of its own.

    Args:
        source: the benchmark's file (its names are above), or hf:NAME[:CONFIG].
    """

    source: str


@dataclass(frozen=True, kw_only=True)
class Hidden(Seeded):
    """Tasks that are hidden in a long text.

    Args:
        tokens: maximum tokens of a task's text, tokenised whole; missed by less than one of its parts.
        num_tasks: number of tasks.
        essays: folder of *.txt, the long text (default: the bundled world).
    """

    tokens: Count
    essays: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Joined(Seeded):
    """Tasks of task sets.

    Args:
        source: task sets (folders or bundled names), or JSON Lines of questions and answers.
        num_tasks: number of tasks (default: as many as the sources have together).
        weights: weights of the sources, each above 0 (default: equal).
    """

    source: Sequence[str]
    weights: Sequence[Positive] | None = None
