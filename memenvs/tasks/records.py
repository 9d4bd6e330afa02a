"""Records of files and Hugging Face data sets, each as a typed class, and the questions among them."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UNSET

from memenvs.core.data import convert, shown
from memenvs.core.errors import error_line, one_line
from memenvs.core.inputs import (
    ARROW,
    ARROW_STREAM,
    PARQUET,
    XLSX,
    RefusedFile,
    ending,
    input_files,
    open_input,
)
from memenvs.core.optional import require
from memenvs.core.spaces import is_utf8
from memenvs.core.terminal import show
from memenvs.tasks.cells import read_answers

R = TypeVar("R")
Q = TypeVar("Q", bound="QuestionRecord")
Id = str | int
QUESTIONS = 'records of "question" and "answers" (JSON Lines, JSON, CSV, TSV, Excel or Parquet)'
_MOST_NAMED = 12  # fields that are ignored, in a line
_ROWS = 16  # records of Parquet or Arrow in memory at once; a context may have megabytes
_SAMPLE = 64  # rows by which the columns of a table are told apart
Headless = Callable[[Path, Sequence[Sequence[str]]], Sequence[str]]
csv.field_size_limit(2**31 - 1)  # of the module: 131,072 characters, which contexts exceed


def _of_questions(path: Path, rows: Sequence[Sequence[str]]) -> Sequence[str]:
    """DPR's questions and lists of answers have no header."""
    return ["question", "answers"] if len(rows[0]) == 2 and rows[0][1].startswith("[") else []


def read_rows(
    source: str, what: str, split: str = "train", headless: Headless = _of_questions
) -> Iterator[tuple[str, Any]]:
    """The records of a file or of the hub, unchecked, each with its place for errors.

    A file is JSON Lines, JSON (an array, or objects over several lines), CSV or TSV, the first sheet of an
    Excel workbook, Parquet or Arrow, compressed or not. Only other JSON than JSON Lines is read as a whole.

    Args:
        source: a file, a glob or a folder of shards (`input_files`), or `hf:NAME[:CONFIG]`, a Hugging Face
            data set.
        what: the kind of file that is wanted, for errors.
        split: split of a Hugging Face data set or of a folder.
        headless: from the path and the first rows of a table, the names of its columns; none where its first
            row names them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or has no records.
    """
    rows: Iterable[tuple[str, Any]]
    if source.startswith("hf:"):
        rows = ((source, row) for row in _from_hub(source, split))
    else:
        files = input_files(source, what, split)
        rows = (row for path in files for row in _in_one_line(_from_file(path, headless), path, what))
    number = -1
    for number, (place, row) in enumerate(rows):
        yield f"{place}: record {number}", row
    if number < 0:
        raise ValueError(f"{source} holds no record; give {what}")


def read_records(
    source: str, split: str, kind: type[R], what: str, *, name_ignored: bool = False
) -> Iterator[R]:
    """Records of a source of `read_rows`, each as a `kind`; fields that it does not have are ignored.

    Args:
        source: a file, or `hf:NAME[:CONFIG]`.
        split: split of a Hugging Face data set.
        kind: the class of a record.
        what: the kind of file that is wanted, for errors.
        name_ignored: name ignored fields on standard error, for files of a person's own.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, has no records, or misspells a field.
    """
    fields = Fields(source, getattr(kind, "__struct_fields__", ()), name_ignored)
    for where, row in read_rows(source, what, split):
        fields.check(row, where)
        record = convert(row, kind, where, f"give {what}")
        fields.report()
        yield record


class Fields:
    """Which fields of a source's records are read: a misspelled one is an error, others are named once.

    Args:
        source: the file, for errors.
        known: the fields that are read.
        name_ignored: name the others on standard error.
    """

    def __init__(self, source: str, known: Collection[str], name_ignored: bool = True) -> None:
        self.source = source
        self.known = known
        self.name_ignored = name_ignored
        self.ignored = {""}  # the last column of a table may have no name
        self.unnamed = list[str]()

    def check(self, row: Any, where: str) -> None:
        """Raise a one-line `ValueError` if a field is one letter away from one that the record lacks."""
        if not isinstance(row, Mapping):
            return
        unknown = [name for name in row if name not in self.known and name not in self.ignored]
        for name in unknown:
            for right in self.known:
                alike = [other for other in self.known if other == right or _one_letter_apart(other, right)]
                # an "answer1" beside "answer" is another column, and short names are too alike
                if len(right) > 4 and _one_letter_apart(name, right) and row.keys().isdisjoint(alike):
                    raise ValueError(f"{where} has the field {name!r}, which is not read; write {right!r}")
        self.ignored.update(unknown)
        self.unnamed += unknown

    def report(self) -> None:
        """Name the ignored fields since the last time, once a record is known to be one."""
        if self.unnamed and self.name_ignored:
            note(f"{self.source}: ignored: {', '.join(map(str, self.unnamed[:_MOST_NAMED]))}")
        self.unnamed.clear()


def _one_letter_apart(first: Any, second: str) -> bool:
    """Whether one letter is added, left out, replaced or in its neighbour's place."""
    first = str(first)
    pairs = enumerate(zip(first, second, strict=False))
    start = next((place for place, (a, b) in pairs if a != b), min(len(first), len(second)))
    left, right = first[start:], second[start:]
    swapped = left[:2] == right[:2][::-1] and left[2:] == right[2:]
    return bool(left or right) and (left[1:] in (right, right[1:]) or left == right[1:] or swapped)


def note(line: str) -> None:
    """Say on standard error, in one line, how something was read."""
    show(f"{one_line(line)}\n", sys.stderr, wrap=False)


class QuestionRecord(msgspec.Struct, kw_only=True):
    """A question under the names that files have for its fields, which are read in any case of letters.

    NQ-open has `answer`, FlashRAG `golden_answers`, TriviaQA `QuestionId` and an `Answer` with aliases, PopQA
    `possible_answers`, a list as a text. If a field has several names, the first counts.
    """

    question: str | None = None
    query: str | None = None
    id: Id | None = None
    _id: Id | None = None
    question_id: Id | None = None
    questionid: Id | None = None
    answers: Any = UNSET
    golden_answers: Any = UNSET
    possible_answers: Any = UNSET
    answer: Any = UNSET
    metadata: Any = None

    def named(self, default: Id) -> str:
        """The id; the default where the record has none."""
        ids = (self.id, self._id, self.question_id, self.questionid)
        return str(next((id_ for id_ in ids if id_ not in (None, "")), default))

    @property
    def answer_fields(self) -> list[Any]:
        """The values of the fields of answers that the record has."""
        fields = (self.answers, self.golden_answers, self.possible_answers, self.answer)
        return [field for field in fields if field is not UNSET]


def read_questions(
    source: str,
    split: str,
    kind: type[Q],
    what: str,
    adapt: Callable[[dict[str, Any], str], dict[str, Any]] = lambda record, where: record,
) -> Iterator[tuple[str, Q, tuple[str, ...]]]:
    """The questions of a source of `read_rows`, each with its place for errors and its accepted answers.

    Fields that are not read are named once on standard error, and so is the first cell that is ambiguous.
    `adapt` takes a record, whose names are in small letters, and its place; it returns the record to read, or
    raises.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or a record asks nothing or has no answers, or misspells a field.
    """
    fields = Fields(source, kind.__struct_fields__)
    kinds = set[str]()

    def tell(line: str) -> None:
        kind_of_cell = line.rpartition(" is read ")[2]
        if kind_of_cell not in kinds:
            note(f"{where}: {line}")
        kinds.add(kind_of_cell)

    for place, row in read_rows(source, what, split):
        for where, record in _unwrapped(place, row):
            if isinstance(record, Mapping):
                record = adapt({str(name).lower(): value for name, value in record.items()}, where)
            fields.check(record, where)
            question = convert(record, kind, where, f"give {what}")
            question.question = question.query if question.question is None else question.question
            if question.question is None:
                raise ValueError(
                    f"{where} has no 'question', but {shown([*record])}; give {what}, or build a benchmark's "
                    "file by its own source"
                )
            if not question.answer_fields:
                raise ValueError(f"{where} has no 'answers' and no 'answer'; give the accepted ones")
            answers = (read_answers(field, where, tell) for field in question.answer_fields)
            accepted = next(filter(None, answers), ())
            fields.report()
            yield where, question, accepted


def check_question(source: str, seen: set[str], id_: str, question: str, texts: Iterable[str] = ()) -> None:
    """Check a question that can be scored, and note its id.

    Args:
        source: the file, for errors.
        seen: ids of the questions before it.
        id_: of the question.
        question: what is asked.
        texts: the other texts that come with it.

    Raises:
        ValueError: its id came before, it asks nothing, or a text is not UTF-8.
    """
    if id_ in seen:
        raise ValueError(f"{source} has two questions of the id {id_!r}; give each its own")
    seen.add(id_)
    if not question.strip():
        raise ValueError(f"question {id_!r} of {source} asks nothing; leave it out of the file")
    if not all(map(is_utf8, (id_, question, *texts))):
        raise ValueError(
            f"question {id_!r} of {source} has a lone surrogate in its texts; replace it, as by U+FFFD"
        )


def _unwrapped(place: str, row: Any) -> Iterator[tuple[str, Any]]:
    """The records in an object around all of them, as in `{"Data": […]}` or by their ids; or the record."""
    if isinstance(row, Mapping) and {"question", "query"}.isdisjoint(map(str.lower, row)):
        lists = [value for value in row.values() if isinstance(value, list) and value]
        if len(lists) == 1 and all(isinstance(inner, Mapping) for inner in lists[0]):
            yield from ((f"{place}[{number}]", inner) for number, inner in enumerate(lists[0]))
            return
        if row and all(isinstance(inner, Mapping) for inner in row.values()):
            yield from ((f"{place}[{id_!r:.40}]", {"id": id_, **inner}) for id_, inner in row.items())
            return
    yield place, row


def _in_one_line(rows: Iterator[tuple[str, Any]], path: Path, what: str) -> Iterator[tuple[str, Any]]:
    """The rows, each with its place; an error while reading them becomes one line that names the file."""
    try:
        yield from ((f"{path}{line}", row) for line, row in rows)
    except RefusedFile:
        raise
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}); save it as UTF-8") from error
    except (ValueError, OSError, RecursionError, csv.Error, pa.ArrowException) as error:
        raise ValueError(f"{path} is not {what}: {error_line(error, 240)}") from error


def _from_file(path: Path, headless: Headless) -> Iterator[tuple[str, Any]]:
    """The rows of a file, each with its line where a row is one."""
    with open_input(path, PARQUET, ARROW, ARROW_STREAM, XLSX) as (file, kind):
        if kind == XLSX:
            yield from (("", row) for row in _from_sheet(path, file))
        elif kind:
            for batch in _batches(file if file.seekable() else pa.BufferReader(file.read()), kind):
                for start in range(0, len(batch), _ROWS):
                    yield from (("", row) for row in batch.slice(start, _ROWS).to_pylist())
        elif ending(path) in (".csv", ".tsv") or (ending(path) == ".txt" and _has_columns(file)):
            text = io.TextIOWrapper(file, "utf-8-sig", newline=None if headless is _of_questions else "")
            yield from (("", row) for row in _from_table(path, text, headless))
        else:
            yield from _from_json(file)


def _batches(file: Any, kind: str) -> Iterable[pa.RecordBatch]:
    if kind == PARQUET:
        return cast(Iterable[pa.RecordBatch], pq.ParquetFile(file).iter_batches(_ROWS))
    if kind == ARROW_STREAM:
        return cast(Iterable[pa.RecordBatch], pa.ipc.open_stream(file))
    reader = pa.ipc.open_file(file)
    return map(reader.get_batch, range(reader.num_record_batches))


def _from_sheet(path: Path, file: IO[bytes]) -> list[dict[str, Any]]:
    """The rows of a workbook's first sheet by the names in its first row; formulas as their last values."""
    openpyxl = require("openpyxl", "files")
    try:
        sheet = openpyxl.load_workbook(io.BytesIO(file.read()), read_only=True, data_only=True).worksheets[0]
        rows = [row for row in sheet.iter_rows(values_only=True) if any(cell is not None for cell in row)]
    except Exception as error:  # openpyxl raises many kinds
        raise RefusedFile(f"{path} is damaged ({error_line(error, 160)}); copy it again") from error
    header = [str(name or "").strip().lower() for name in rows[0]] if rows else []
    return [dict(zip(header, row, strict=False)) for row in rows[1:]]


def _from_table(path: Path, lines: Iterator[str], headless: Headless) -> Iterator[dict[str, str]]:
    """The rows by the names of their columns, which are those of the first row or of `headless`."""
    first = next(lines, "")
    delimiter = "," if ending(path) == ".csv" else "\t"
    tabs = "\t" in first and (delimiter not in first or '"' not in first or "\t[" in first)
    if tabs or (delimiter not in first and ";" in first):
        delimiter = "\t" if tabs else ";"  # whatever the file's name says
    lines = itertools.chain([first], lines)
    cells = _tab_cells(lines) if delimiter == "\t" else csv.reader(lines, delimiter=delimiter, strict=True)
    rows = filter(any, cells)
    if not (top := list(itertools.islice(rows, _SAMPLE))):
        return
    names = headless(path, top)
    header = names or [name.strip().lower() for name in top.pop(0)]
    for number, row in enumerate(itertools.chain(top, rows), 1 if names else 2):
        if any(row[len(header) :]) or (names and len(row) < len(header)):
            fix = "quote what has the separator in it" if len(row) > len(header) else "fill its columns"
            raise RefusedFile(f"{path}: row {number} has {len(row)} cells, others {len(header)}; {fix}")
        yield dict(zip(header, row, strict=False))


def _tab_cells(lines: Iterator[str]) -> Iterator[list[str]]:
    """The cells of rows; quotes are the text's own, as MS MARCO's, unless csv wrote them, as DPR's."""
    width, named = 0, False
    for line in lines:
        row = line.rstrip("\r\n").split("\t")
        if '"' in line:
            more = lines if len(row) < width else iter(())  # a quoted cell may have several lines
            try:
                quoted = next(csv.reader(itertools.chain([line], more), delimiter="\t", strict=True))
            except csv.Error:
                if len(row) < width:
                    raise
                quoted = row
            by_csv = len(quoted) != len(row) or '""' in line or all(cell[0] == '"' for cell in row if cell)
            if (named or by_csv) and len(quoted) == (width or len(quoted)):
                row = quoted
        named = named or (not width and all(map(str.isidentifier, row)))
        width = width or len(row)
        yield row


def _has_columns(file: Any) -> bool:
    """Whether a text is a table, as Pyserini's topics are, and not JSON Lines."""
    first, *_ = file.peek().split(b"\n")
    return b"\t" in first and not first.startswith((b"{", b"["))


def _from_json(file: IO[bytes]) -> Iterator[tuple[str, Any]]:
    """The values of JSON Lines, one by one, or of other JSON, which is read as a whole."""
    lines = enumerate((line.removeprefix(codecs.BOM_UTF8) for line in file), 1)
    filled = ((number, line) for number, line in lines if not line.isspace())
    number, first = next(filled, (0, b""))
    if _is_object(first):
        yield f":{number}", _parsed(first)
        for number, line in filled:
            try:
                row = _parsed(line)
            except (ValueError, RecursionError) as error:
                try:
                    rest = list(_values(b"".join([line, *file]).decode().strip()))
                except (ValueError, RecursionError):
                    raise ValueError(f"line {number}: {error_line(error, 200)}") from error
                yield from (("", row) for row in rest)
                return
            yield f":{number}", row
        return
    text = b"".join([first, *file]).decode().strip()
    for value in _values(text):
        yield from (("", row) for row in (value if text.startswith("[") else (value,)))


def _values(text: str) -> Iterator[Any]:
    """The values of JSON that follow one another, with or without space between them."""
    decoder, space, end = json.JSONDecoder(), re.compile(r"\s*"), 0
    while end < len(text):
        value, end = decoder.raw_decode(text, end)
        end += len(space.match(text, end)[0])  # type: ignore[index]
        yield value


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(_parsed(line), dict)
    except (ValueError, RecursionError):
        return False


def _parsed(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError):  # msgspec also refuses lone surrogates, which Python reads
        return json.loads(line.decode())


def _from_hub(source: str, split: str) -> Iterable[Any]:
    datasets = require("datasets", "hub")
    name, _, config = source.removeprefix("hf:").partition(":")
    try:
        return cast(Iterable[Any], datasets.load_dataset(name, config or None, split=split))
    except Exception as error:  # the hub client raises many kinds
        raise ValueError(f"cannot load {source} (split {split!r}): {error_line(error, 160)}") from error
