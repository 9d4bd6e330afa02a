"""Records of files and Hugging Face data sets, each as a typed class, and the questions among them."""

from __future__ import annotations

import codecs
import csv
import gzip
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from memenvs.core.data import convert, shown
from memenvs.core.errors import error_line
from memenvs.core.optional import require
from memenvs.core.spaces import is_utf8

R = TypeVar("R")
Q = TypeVar("Q", bound="QuestionRecord")
Answer = str | int | float  # some files have numbers as answers
Id = str | int
QUESTIONS = 'records of "question" and "answers" (JSON Lines, JSON, CSV, TSV or Parquet)'
_ROWS = 16  # records of Parquet in memory at once; a context may have megabytes
csv.field_size_limit(2**31 - 1)  # of the module: 131,072 characters, which contexts exceed


def read_rows(
    source: str, what: str, split: str = "train", columns: Sequence[str] = ()
) -> Iterator[tuple[str, Any]]:
    """The records of a file or of the hub, unchecked, each with its place for errors.

    A file is JSON Lines, JSON (an array, or objects over several lines), CSV or TSV, all of them gzipped too,
    or Parquet. Only other JSON than JSON Lines is read as a whole.

    Args:
        source: a file, or `hf:NAME[:CONFIG]`, a Hugging Face data set.
        what: the kind of file that is wanted, for errors.
        split: split of a Hugging Face data set.
        columns: names for the columns of a table whose first row names no `text` and no `contents`; without
            them the first row is the header.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or has no records.
    """
    if source.startswith("hf:"):
        rows: Iterable[Any] = (("", row) for row in _from_hub(source, split))
    elif not Path(source).exists() or Path(source).is_dir():  # a pipe of a shell is read
        raise FileNotFoundError(f"no file at {source}; give {what}, or hf:NAME")
    else:
        rows = _in_one_line(_from_file(Path(source), columns), source, what)
    number = -1
    for number, (line, row) in enumerate(rows):
        yield f"{source}{line}: record {number}", row
    if number < 0:
        raise ValueError(f"{source} holds no record; give {what}")


def read_records(source: str, split: str, kind: type[R], what: str) -> Iterator[R]:
    """Records of a source of `read_rows`, each as a `kind`; fields that it does not have are ignored.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or has no records.
    """
    for where, row in read_rows(source, what, split):
        yield convert(row, kind, where, f"give {what}")


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
    answers: Any = None
    golden_answers: Any = None
    possible_answers: Any = None
    answer: Any = None
    metadata: Any = None

    def named(self, default: Id) -> str:
        """The id; the default where the record has none."""
        ids = (self.id, self._id, self.question_id, self.questionid)
        return str(next((id_ for id_ in ids if id_ not in (None, "")), default))

    def accepted(self, where: str) -> tuple[str, ...]:
        """The accepted answers, the preferred one first, once each; none if they are blank.

        Raises:
            ValueError: the record has no answers, or they are something other than texts and numbers.
        """
        fields = (self.answers, self.golden_answers, self.possible_answers, self.answer)
        answers = next((field for field in fields if field is not None), None)
        if answers is None:
            raise ValueError(f"{where} has no 'answers' and no 'answer'; give the accepted ones")
        return scorable(_answer_texts(answers, where))


def read_questions(source: str, split: str, kind: type[Q], what: str) -> Iterator[tuple[str, Q]]:
    """The questions of a source of `read_rows`, each with its place for errors.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or a record asks nothing.
    """
    for place, row in read_rows(source, what, split):
        for where, record in _unwrapped(place, row):
            if isinstance(record, Mapping):
                record = {str(name).lower(): value for name, value in record.items()}
            question = convert(record, kind, where, f"give {what}")
            question.question = question.query if question.question is None else question.question
            if question.question is None:
                raise ValueError(f"{where} has no 'question'; give {what}")
            yield where, question


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


def scorable(answers: Iterable[Answer]) -> tuple[str, ...]:
    """The accepted answers as texts, once each, without blank ones, which an empty reply would equal."""
    return tuple(dict.fromkeys(text for text in map(str, answers) if text.strip()))


def _answer_texts(field: Any, where: str) -> Iterator[Answer]:
    """The texts and numbers of a field of answers."""
    if isinstance(field, bool):
        yield "yes" if field else "no"
    elif isinstance(field, str) and (listed := _json_list(field)):
        yield from listed
    elif isinstance(field, (str, int, float)):
        yield field
    elif isinstance(field, (list, tuple)):
        for answer in field:
            if isinstance(answer, (list, tuple)):
                break
            yield from _answer_texts(answer, where)
        else:
            return
        raise ValueError(f"{where} has {shown(field)} as answers; give texts or numbers in one list")
    elif isinstance(field, Mapping):
        parts = {str(name).lower(): value for name, value in field.items()}
        names = [name for name in ("value", "text", "aliases", "humananswers") if parts.get(name) is not None]
        if not names:
            raise ValueError(f"{where} has {shown(field)} as an answer; give a text or a number")
        for name in names:
            yield from _answer_texts(parts[name], where)
    else:
        raise ValueError(f"{where} has {shown(field)} as an answer; give a text or a number")


def _json_list(text: str) -> list[str]:
    """The texts of a list that is written in a text, as a cell of a table has it; none for other texts."""
    if not text.startswith("["):
        return []
    try:
        listed = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return listed if listed and all(isinstance(text, str) for text in listed) else []


def _unwrapped(place: str, row: Any) -> Iterator[tuple[str, Any]]:
    """The records in an object around all of them, as TriviaQA's `{"Data": […]}`; otherwise the record."""
    if isinstance(row, Mapping) and {"question", "query"}.isdisjoint(map(str.lower, row)):
        lists = [value for value in row.values() if isinstance(value, list) and value]
        if len(lists) == 1 and all(isinstance(inner, Mapping) for inner in lists[0]):
            yield from ((f"{place}[{number}]", inner) for number, inner in enumerate(lists[0]))
            return
    yield place, row


def _in_one_line(rows: Iterator[Any], source: str, what: str) -> Iterator[Any]:
    """The rows; an error while reading them becomes one line that names the source."""
    try:
        yield from rows
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is not UTF-8 text ({error}); save it as UTF-8") from error
    except (ValueError, OSError, EOFError, RecursionError, csv.Error, pa.ArrowException) as error:
        raise ValueError(f"{source} is not {what}: {error_line(error, 240)}") from error


def _from_file(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The rows of a file, each with its line where a row is one."""
    suffix = Path(path.name.removesuffix(".gz")).suffix
    if suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS):
                yield from (("", row) for row in batch.to_pylist())
    elif suffix in (".csv", ".tsv"):
        yield from (("", row) for row in _from_table(path, "," if suffix == ".csv" else "\t", columns))
    else:
        yield from _from_json(path)


def _from_table(path: Path, delimiter: str, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """The rows by the names of their columns; cells under no column's name are left out.

    DPR's file of passages has a header and quotes, MS MARCO's has neither. Passages keep their line ends.
    """
    with _open(path, "rt", encoding="utf-8-sig", newline="" if columns else None) as lines:
        first = next(lines, "")
        if columns:
            (names,) = csv.reader([first.lower()], delimiter=delimiter) if first.strip() else ([],)
            if {"text", "contents"}.isdisjoint(map(str.strip, names)):
                bare = csv.reader(
                    itertools.chain([first], lines), delimiter=delimiter, quoting=csv.QUOTE_NONE
                )
                yield from (dict(zip(columns, row, strict=False)) for row in bare)
                return
        reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter, strict=not columns)
        header = [name.strip().lower() for name in next(reader, [])]
        yield from (dict(zip(header, row, strict=False)) for row in reader if row)


def _from_json(path: Path) -> Iterator[tuple[str, Any]]:
    """The values of JSON Lines, one by one, or of other JSON, which is read as a whole."""
    with _open(path, "rb") as file:
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
    with _open(path, "rt", encoding="utf-8-sig") as file:
        text = file.read().strip()
    for value in _values(text):
        yield from (("", row) for row in (value if text.startswith("[") else (value,)))


def _values(text: str) -> Iterator[Any]:
    """The values of JSON that follow one another, with or without space between them."""
    decoder, space, end = json.JSONDecoder(), re.compile(r"\s*"), 0
    while end < len(text):
        value, end = decoder.raw_decode(text, end)
        end += len(space.match(text, end)[0])  # type: ignore[index]
        yield value


def _open(path: Path, mode: str, **options: Any) -> IO[Any]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    return cast(IO[Any], opener(path, mode, **options))


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
