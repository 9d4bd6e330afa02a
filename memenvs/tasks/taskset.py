"""Task sets: questions, accepted answers, documents and evidence in a memory-mapped folder."""

from __future__ import annotations

import functools
import glob
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from memenvs.core.data import convert, decode
from memenvs.core.errors import counted, one_line, unknown_name
from memenvs.core.files import (
    CARD,
    DOCUMENTS,
    TASKS,
    check_file,
    json_sha256,
    read_sealed,
    resolved,
    sha256,
    verifying,
    write_sealed,
)
from memenvs.core.inputs import input_files
from memenvs.data import bundled, bundled_names
from memenvs.tasks.records import QUESTIONS, QuestionRecord, check_question, read_questions
from memenvs.tasks.tokens import GENERAL, Gaps, TextTokenizer, load_tokenizer

FORMAT = 2
BUILD_AGAIN = "build it again"
SEPARATOR = "; "
"""Between the questions of a task with several objectives."""
HOLDOUT = "-holdout"  # ends the name of a set of questions that were set aside (`memenvs build --holdout`)


@dataclass(frozen=True)
class Layout:
    """How the documents of a task become one text: before each a header, between two a separator.

    `{i}` in the header is the document's number in the task, from 1.
    """

    header: str = "Document {i}:\n"
    separator: str = "\n\n"


@dataclass(frozen=True)
class Card:
    """What a task set is and where it comes from (`card.json`).

    Attributes:
        source: the name of the builder.
        inputs: SHA-256 of every file that was read, by its name.
        arguments: of the builder, seed and split included.
        layout: how documents are shown.
        tokenizer: name and fingerprint of the tokenizer whose `gaps` are stored; empty if none are.
            Environments count with it unless told otherwise.
        counts: tasks, documents, and the largest sizes of a task: documents, characters, tokens.
        files: bytes and SHA-256 of the data files.
        environment: the id of the environment that the tasks are made for.
        metric: a name that `memenvs.tasks.metrics.get_metric` knows; environments score by it unless told
            otherwise.
        format: version of the folder's layout.
        licence: of a benchmark's data, as its authors give it.
        citation: the benchmark's paper.
    """

    source: str
    inputs: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)
    layout: Layout = field(default_factory=Layout)
    tokenizer: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    environment: str = "MemChunkQA-v0"
    metric: str = "em"
    format: int = FORMAT
    licence: str = ""
    citation: str = ""

    def write(self, folder: Path) -> None:
        """Write the card into a folder, sealed by the SHA-256 of its fields."""
        write_sealed(folder / CARD, {name: value for name, value in asdict(self).items() if value != ""})

    @classmethod
    def read(cls, path: Path) -> Card:
        """The card of a folder, its version, its seal and the types of its fields checked."""
        return convert(read_sealed(path, FORMAT), cls, f"{path}: card", BUILD_AGAIN)


@dataclass(frozen=True)
class Task:
    """One question over documents.

    Attributes:
        id: unique in its set.
        question: what is asked; several objectives joined by `"; "`.
        answers: for each objective, its accepted answers, the preferred one first.
        documents: document numbers in reading order.
        evidence: numbers of the documents that the answer needs, in the order of the reasoning.
        meta: plain data of the source: `spans` [document, start, end] of the sentences needed, type, hops …
    """

    id: str
    question: str
    answers: tuple[tuple[str, ...], ...]
    documents: tuple[int, ...]
    evidence: tuple[int, ...]
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def questions(self) -> tuple[str, ...]:
        """The question of each objective; the whole one alone where it is not as many, joined by `"; "`."""
        parts = self.question.split(SEPARATOR)
        return tuple(parts) if len(parts) == len(self.answers) else (self.question,)


class TaskSet(Sequence[Task]):
    """The tasks of a folder, memory-mapped. Open it with `open_tasks`, which shares it inside a process.

    Attributes:
        path: the folder.
        name: name of the folder.
        card: what the set is.
        hash: hash of the card, which identifies the set.
        files: the card's, whose hash tells the set from others.
        metric, environment, layout: as the card gives them.
    """

    def __init__(self, path: Path) -> None:
        if not (path / CARD).is_file():
            raise FileNotFoundError(
                f"no task set at {path}; build one with `memenvs build world --out {path}`"
            )
        self.path, self.name = path, path.name
        self.card, self.hash = Card.read(path / CARD), sha256(path / CARD)[:16]
        self.files, self.metric = [path / CARD], self.card.metric
        self.environment, self.layout = self.card.environment, self.card.layout
        self._documents = _read_table(path, DOCUMENTS, self.card)
        self._tasks = _read_table(path, TASKS, self.card)

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        card = self.card
        return (
            f"TaskSet({str(self.path)!r}: {counted(len(self), 'task')} of {card.source}, "
            f"{counted(self.n_documents, 'document')}, for {card.environment} by {self.metric})"
        )

    @property
    def n_documents(self) -> int:
        """Documents shared by the tasks."""
        return len(self._documents)

    @functools.cached_property
    def inseparable(self) -> str | None:
        """Id of the first task whose objectives have no questions of their own (`Task.questions`), if any."""
        if self._tasks["answers"].value_lengths().to_numpy().max() == 1:
            return None
        return next((task.id for task in self if len(task.questions) < len(task.answers)), None)

    def __getitem__(self, index: int) -> Task:  # type: ignore[override]  # a slice has no use here
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no task {index}; this set has the tasks 0 to {len(self) - 1}")
        return self._task(index % len(self))

    @functools.lru_cache(maxsize=8)  # noqa: B019  # the rollouts of a group share a task, which may be long
    def _task(self, index: int) -> Task:
        row = {name: self._tasks[name][index].as_py() for name in self._tasks.schema.names}
        return Task(
            row["id"],
            row["question"],
            tuple(map(tuple, row["answers"])),
            tuple(row["documents"]),
            tuple(row["evidence"]),
            decode(row["meta"], dict[str, Any], "meta"),
        )

    def __iter__(self) -> Iterator[Task]:
        return (self[index] for index in range(len(self)))

    def titles(self, documents: Sequence[int]) -> list[str]:
        """Titles of the numbered documents."""
        return self._documents["title"].take(pa.array(documents, pa.int64())).to_pylist()

    def texts(self, documents: Sequence[int]) -> list[str]:
        """Texts of the numbered documents, without their titles."""
        return self._documents["text"].take(pa.array(documents, pa.int64())).to_pylist()

    def document_texts(self, documents: Sequence[int]) -> list[str]:
        """The numbered documents as they are read (`document_text`)."""
        return list(map(document_text, self.titles(documents), self.texts(documents)))

    def needed_sentences(self, task: Task) -> list[tuple[str, str]]:
        """The sentences that a task's answer needs, each after the title of its document.

        They are the task's `spans`; where it marks none, its evidence documents whole.
        """
        spans = task.meta.get("spans", [(document, 0, None) for document in task.evidence])
        numbers = [document for document, _, _ in spans]
        parts = zip(self.titles(numbers), self.texts(numbers), spans, strict=True)
        return [(title, text[start:end].strip()) for title, text, (_, start, end) in parts]

    def marked_sentences(self, task: Task) -> list[str]:
        """The sentences of its evidence that a task marks as needed; may be empty."""
        return [text for _, text in self.needed_sentences(task)] if "spans" in task.meta else []

    def stored_gaps(self, documents: Sequence[int]) -> list[Gaps]:
        """The stored gaps of the numbered documents, by the card's tokenizer."""
        column = self._documents["gaps"]
        values, bounds = column.values.to_numpy(), column.offsets.to_numpy()
        wanted = np.asarray(documents, np.int64)
        pairs = zip(bounds[wanted].tolist(), bounds[wanted + 1].tolist(), strict=True)
        return [values[start:end] for start, end in pairs]


def document_text(title: str, text: str) -> str:
    """A document as it is read: title, newline, text; the text alone where it has no title."""
    return f"{title}\n{text}" if title else text


def open_tasks(name: str | Path = "world-train") -> TaskSet:
    """The task set of a folder, or a bundled one by name; one object a folder in a process.

    Raises:
        FileNotFoundError: there is none.
        ValueError: the folder is not a whole task set of this format, or its files are not those that were
            built (`memenvs.core.files`; MEMENVS_VERIFY=0 reads them unchecked).
    """
    path = Path(name).expanduser()
    if not (path / CARD).is_file() and (not path.is_dir() or path.name in bundled_names()):
        if str(name) not in bundled_names() or not (bundled(str(name)) / CARD).is_file():
            sets = [folder for folder in bundled_names() if (bundled(folder) / CARD).is_file()]
            beside = [str(card.parent) for card in path.parent.glob(f"*/{CARD}")]
            more = ", or another folder that `memenvs build` wrote"
            raise FileNotFoundError(unknown_name("no task set", str(name), [*sets, *beside], more))
        path = bundled(str(name))
    path = resolved(path)
    card = path / CARD
    return _open_set(path, card.stat().st_mtime_ns if card.is_file() else 0)


class Questions(list[Task]):
    """The questions of one or more files, without documents; attributes are those of a `TaskSet`.

    Attributes:
        left_out: questions of the files that cannot be scored, as their answers are blank.
    """

    metric, environment, layout, n_documents = "em", "MemSearchQA-v0", Layout(), 0

    def __init__(self, tasks: Iterable[Task], path: Path, files: Sequence[Path], left_out: int = 0) -> None:
        super().__init__(tasks)
        self.left_out = left_out
        self.path, self.files = path, list(files)
        hashes = [sha256(file) for file in files]
        self.name, self.hash = path.name, (hashes[0] if len(hashes) == 1 else json_sha256(hashes))[:16]


def open_questions(source: str) -> TaskSet | Questions:
    """Questions of a task set (by name or folder), or of files as NQ-open's (`QuestionRecord`).

    Raises:
        FileNotFoundError: there is no such set or file.
        ValueError: a record of the file holds no question with answers.
    """
    path = Path(source).expanduser()
    if not path.is_file():
        try:
            return open_tasks(source)
        except FileNotFoundError:
            if not path.is_dir() and not glob.has_magic(source):
                raise
    files = tuple(input_files(path, QUESTIONS))
    return _open_files(path.resolve(), files, tuple(file.stat().st_mtime_ns for file in files))


def tokenizer_of(tasks: TaskSet | Questions, name: str | None = None) -> TextTokenizer:
    """Load the tokenizer that counts a set's tokens.

    Args:
        tasks: the set; questions without documents are counted by the general tokenizer.
        name: as for `load_tokenizer`; None: the one that the set's card names.

    Raises:
        ValueError: it cannot be loaded.
    """
    if name is not None:
        return load_tokenizer(name)
    named = tasks.card.tokenizer.get("name", GENERAL) if isinstance(tasks, TaskSet) else GENERAL
    try:
        return load_tokenizer(named)
    except ValueError as error:
        raise ValueError(
            f"{tasks.path} was built with the tokenizer {named!r}, which is not found here; "
            "pass its path or its id as tokenizer=…"
        ) from error


@functools.lru_cache(maxsize=32)
def _open_set(path: Path, changed: int) -> TaskSet:
    return TaskSet(path)


@functools.lru_cache(maxsize=8)
def _open_files(path: Path, files: tuple[Path, ...], changed: tuple[int, ...]) -> Questions:
    source, seen, tasks, left_out = str(path), set[str](), list[Task](), 0
    for task in read_open(source, split=""):  # a folder of several splits is refused
        if not task.answers[0]:
            left_out += 1
            continue
        check_question(source, seen, task.id, task.question, task.answers[0])
        tasks.append(task)
    if not tasks:
        raise ValueError(f"{path} holds no question that can be scored; give {QUESTIONS}")
    return Questions(tasks, path, files, left_out)


def read_open(source: str, split: str = "train") -> Iterator[Task]:
    """The questions of a file or data set as tasks without documents, unchecked (`check_question`).

    A question that cannot be scored has no answers. One without an id is named by the source and its number.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or a record has no question or no answers.
    """
    stem = re.split(r"[/:]", source)[-1].partition(".")[0]
    questions = read_questions(source, split, QuestionRecord, QUESTIONS)
    for number, (_, record, answers) in enumerate(questions):
        meta = {"metadata": record.metadata} if record.metadata else {}
        yield Task(record.named(f"{stem}-{number}"), record.question or "", (answers,), (), (), meta)


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


def read_arrow(file: Path) -> pa.Table:
    """An Arrow file, mapped into memory.

    Arrow checks nothing that it maps: a wrong offset gives other texts, or ends the process. Where files are
    checked (`verifying`), all offsets and texts are too, at some gigabytes a second.

    Raises:
        ValueError: it is not an Arrow file, or its offsets or texts are not valid.
    """
    try:
        table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
        if verifying():
            table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{file} is not a valid Arrow file ({one_line(error)}); build it again") from error
    return table


def _read_table(path: Path, name: str, card: Card) -> pa.RecordBatch:
    """A data file, after checking that it is the one that the card describes."""
    check_file(path / name, card.files.get(name, {}))
    (batch,) = read_arrow(path / name).to_batches() or [pa.RecordBatch.from_pylist([], SCHEMAS[name])]
    return batch
