"""A task set's name or folder comes in; its tasks and documents, memory-mapped, go out."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from memenvs.card import CARD, DOCUMENTS, TASKS, Card
from memenvs.data import bundled
from memenvs.files import left_behind, resolved
from memenvs.tables import check_tables, read_table
from memenvs.tokens import Gaps


@dataclass(frozen=True)
class Task:
    """One question over documents.

    Attributes:
        id: unique in its set.
        question: what is asked; several objectives joined by `"; "`.
        answers: for each objective, its accepted answers, the preferred one first.
        documents: document numbers in reading order.
        evidence: those of them that the answer needs, in the order of the reasoning.
        meta: plain data of the source: `spans` [document, start, end] of the sentences needed, type, hops …
    """

    id: str
    question: str
    answers: tuple[tuple[str, ...], ...]
    documents: tuple[int, ...]
    evidence: tuple[int, ...]
    meta: dict[str, Any] = field(default_factory=dict)


class TaskSet(Sequence[Task]):
    """The tasks of a folder, memory-mapped; open it by `open_tasks`, which shares it inside a process."""

    def __init__(self, path: Path) -> None:
        if not (path / CARD).is_file():
            raise FileNotFoundError(
                f"no task set at {path}; build one with `python -m memenvs.build world --out {path}`"
            )
        self.path = path
        self.card = Card.read(path / CARD)
        self._documents = read_table(path, DOCUMENTS, self.card)
        self._tasks = read_table(path, TASKS, self.card)
        check_tables(path, self.card, self._documents, self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        card = self.card
        return (
            f"TaskSet({str(self.path)!r}: {len(self):,} tasks of {card.source}, "
            f"{self.n_documents:,} documents, for {card.environment} by {card.metric})"
        )

    @property
    def n_documents(self) -> int:
        """Documents shared by the tasks."""
        return len(self._documents)

    @functools.cached_property
    def max_objectives(self) -> int:
        """The most objectives of a task."""
        return int(self._tasks["answers"].value_lengths().to_numpy().max())

    def __getitem__(self, index: int) -> Task:  # type: ignore[override]  # a slice has no use here
        if not -len(self) <= index < len(self):
            raise IndexError(f"task {index} of a set of {len(self)}")
        row = {name: self._tasks[name][index % len(self)].as_py() for name in self._tasks.schema.names}
        return Task(
            row["id"],
            row["question"],
            tuple(map(tuple, row["answers"])),
            tuple(row["documents"]),
            tuple(row["evidence"]),
            self._read_meta(row["meta"], index),
        )

    def _read_meta(self, text: str, index: int) -> dict[str, Any]:
        try:
            meta = json.loads(text)
        except (ValueError, RecursionError):
            meta = None
        if not isinstance(meta, dict):
            raise ValueError(
                f"{self.path / TASKS} has meta that is no JSON object at task {index}; build it again"
            )
        return meta

    def __iter__(self) -> Iterator[Task]:
        return (self[index] for index in range(len(self)))

    def titles(self, documents: Sequence[int]) -> list[str]:
        """Titles of the numbered documents."""
        return self._documents["title"].take(pa.array(documents, pa.int64())).to_pylist()

    def texts(self, documents: Sequence[int]) -> list[str]:
        """Texts of the numbered documents, without their titles."""
        return self._documents["text"].take(pa.array(documents, pa.int64())).to_pylist()

    def shown(self, documents: Sequence[int]) -> list[str]:
        """The numbered documents as they are read (`shown`)."""
        return [
            shown(title, text)
            for title, text in zip(self.titles(documents), self.texts(documents), strict=True)
        ]

    def stored_gaps(self, documents: Sequence[int]) -> list[Gaps]:
        """The stored gaps of the numbered documents, by the card's tokenizer."""
        column = self._documents["gaps"].take(pa.array(documents, pa.int64()))
        values, bounds = column.values.to_numpy(), column.offsets.to_numpy()
        return [values[start:end] for start, end in itertools.pairwise(bounds)]


def shown(title: str, text: str) -> str:
    """A document as it is read: title, newline, text; the text alone where it has no title."""
    return f"{title}\n{text}" if title else text


def open_tasks(name: str | Path = "world-train") -> TaskSet:
    """The task set of a folder, or a bundled one by name; one object a folder in a process.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the folder is not a whole task set of this format, or its files are not those that were
            built (`memenvs.integrity`; MEMENVS_VERIFY=0 reads them unchecked).
    """
    path = Path(name).expanduser()
    if old := left_behind(path.absolute()):
        raise FileNotFoundError(
            f"no task set at {name}: a build was killed while it put a new one there; the old one is {old}, "
            "move it back or build again"
        )
    if not (path / CARD).is_file() and path.name == str(name):
        try:
            path = bundled(str(name))
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"no task set named {name!r}: {error}; a folder is given by its path, and "
                "`python -m memenvs.build --help` says how to make one"
            ) from error
    path = resolved(path)
    card = path / CARD
    return _open(path, card.stat().st_mtime_ns if card.is_file() else 0)


@functools.lru_cache(maxsize=32)
def _open(path: Path, changed: int) -> TaskSet:
    return TaskSet(path)
