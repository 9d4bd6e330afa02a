"""Task sets: a folder of questions over shared documents, memory-mapped and checked when it is opened."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from memenvs.card import CARD, DOCUMENTS, TASKS, Card
from memenvs.data import bundled
from memenvs.tokens import Gaps

SCHEMAS = {
    DOCUMENTS: pa.schema(
        [
            ("title", pa.large_string()),
            ("text", pa.large_string()),
            ("gaps", pa.large_list(pa.uint16())),  # of the shown document, by the card's tokenizer
        ]
    ),
    TASKS: pa.schema(
        [
            ("id", pa.large_string()),
            ("question", pa.large_string()),
            ("answers", pa.large_list(pa.list_(pa.string()))),
            ("documents", pa.large_list(pa.int32())),
            ("evidence", pa.large_list(pa.int32())),
            ("meta", pa.large_string()),
        ]
    ),
}


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
        self._documents = _read(path, DOCUMENTS, self.card)
        self._tasks = _read(path, TASKS, self.card)
        for column in ("documents", "evidence"):
            _check_numbers(path, self._tasks[column], column, len(self._documents))

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def n_documents(self) -> int:
        """Documents shared by the tasks."""
        return len(self._documents)

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
            json.loads(row["meta"]),
        )

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

    def verify(self) -> None:
        """Read every byte; `ValueError` where a file's SHA-256 is not the card's."""
        for name, facts in self.card.files.items():
            digest = sha256(self.path / name)
            if digest != facts["sha256"]:
                raise ValueError(
                    f"{self.path / name} has SHA-256 {digest}, its card {facts['sha256']}; build it again"
                )


def shown(title: str, text: str) -> str:
    """A document as it is read: title, newline, text; the text alone where it has no title."""
    return f"{title}\n{text}" if title else text


def open_tasks(name: str | Path = "world-train") -> TaskSet:
    """The task set of a folder, or a bundled one by name; one object a folder in a process.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the folder is not a whole task set of this format.
    """
    path = Path(name).expanduser()
    if not (path / CARD).is_file() and path.name == str(name):
        try:
            path = bundled(str(name))
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"no task set named {name!r}: {error}; a folder is given by its path, and "
                "`python -m memenvs.build --help` says how to make one"
            ) from error
    card = path.resolve() / CARD
    return _open(path.resolve(), card.stat().st_mtime_ns if card.is_file() else 0)


@functools.lru_cache(maxsize=32)
def _open(path: Path, changed: int) -> TaskSet:
    return TaskSet(path)


def _read(path: Path, name: str, card: Card) -> pa.RecordBatch:
    """One data file, mapped into memory."""
    file, promised = path / name, card.files.get(name, {}).get("bytes")
    if not file.is_file():
        raise FileNotFoundError(f"{file} is missing; build the task set again")
    if file.stat().st_size != promised:
        raise ValueError(f"{file} has {file.stat().st_size} bytes, its card says {promised}; build it again")
    try:
        table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
    except pa.ArrowInvalid as error:
        raise ValueError(f"{file} is not an Arrow file ({error}); build the task set again") from error
    for column in SCHEMAS[name]:
        if column.name not in table.schema.names or table.schema.field(column.name).type != column.type:
            raise ValueError(f"{file} has no column {column.name!r} of type {column.type}; build it again")
    (batch,) = table.to_batches() or [pa.RecordBatch.from_pylist([], SCHEMAS[name])]
    return batch


def _check_numbers(path: Path, column: pa.LargeListArray, name: str, n_documents: int) -> None:
    numbers: NDArray[np.int32] = column.values.to_numpy()
    outside = numbers[(numbers < 0) | (numbers >= n_documents)]
    if len(outside):
        raise ValueError(
            f"{path / TASKS} names document {outside[0]} in column {name!r}, "
            f"but the set has documents 0 to {n_documents - 1}; build it again"
        )


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
