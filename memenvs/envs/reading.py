"""A task and its documents come in; the chunks to read, and the evidence inside each, go out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from memenvs.context import Chunk, Context
from memenvs.tasks import Task
from memenvs.tokens import check_positive


class Reading(NamedTuple):
    """A task as it is read in one episode.

    Attributes:
        task: the task.
        context: the text of its documents.
        chunks: slices of it, one a reading turn.
        evidence: positions of the evidence documents in reading order, from 0.
    """

    task: Task
    context: Context
    chunks: list[Chunk]
    evidence: list[int]

    def section(self, turn: int) -> str:
        """The text shown at reading turn `turn`, from 0."""
        chunk = self.chunks[turn]
        return self.context.text[chunk.start : chunk.end]

    def evidence_in(self, turn: int) -> list[str]:
        """The parts of evidence documents shown at turn `turn`; none past the reading turns."""
        if turn >= len(self.chunks):
            return []
        parts = (self.context.inside(self.chunks[turn], position) for position in self.evidence)
        return [part for part in parts if part]

    def whole_evidence(self) -> list[str]:
        """The evidence documents."""
        spans = self.context.spans
        return [self.context.text[slice(*spans[position])] for position in self.evidence]

    def depths(self) -> list[float]:
        """Where each evidence document begins, as a share of the text, 0 to 1."""
        return [self.context.depth(position) for position in self.evidence]


def positions_of(evidence: Sequence[int], documents: Sequence[int]) -> list[int]:
    """The position of each evidence document; the first where a haystack repeats one."""
    return [documents.index(document) for document in evidence]


def check_documents(count: int | None, evidence: int) -> int | None:
    """`count`, if so many documents hold every task's evidence; None stands for all.

    Raises:
        ValueError: less than `evidence`, the most evidence documents of a task.
    """
    if count is None:
        return None
    check_positive("n_documents", count, "documents")
    if count < evidence:
        raise ValueError(f"n_documents={count} does not hold the {evidence} evidence documents of a task")
    return count


def draw_documents(task: Task, count: int | None, rng: np.random.Generator) -> tuple[int, ...]:
    """`count` of the task's documents in their order, its evidence among them; all if None or too few.

    Places are drawn, not document numbers: a haystack may show one document many times.
    """
    if count is None or count >= len(task.documents):
        return task.documents
    needed = positions_of(task.evidence, task.documents)
    others = np.delete(np.arange(len(task.documents)), needed)
    drawn = rng.choice(others, count - len(needed), replace=False)
    return tuple(task.documents[place] for place in sorted([*needed, *drawn.tolist()]))
