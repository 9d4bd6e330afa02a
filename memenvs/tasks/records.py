"""Records of files and Hugging Face data sets, each as a typed class, and the questions among them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

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
_SPACE = re.compile(r"[ \t\r\n]*")


def read_records(source: str, split: str, kind: type[R], what: str) -> Iterator[R]:
    """Records of a file (JSON Lines, a JSON array or object, CSV, TSV; gzip too; Parquet) or of the hub.

    Args:
        source: a file, or `hf:NAME[:CONFIG]`, a Hugging Face data set.
        split: of a Hugging Face data set.
        kind: what a record becomes; fields that it does not have are ignored.
        what: the kind of file that is wanted, for errors.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or has no records.
    """
    for number, record in enumerate(_values(source, split, what)):
        yield convert(record, kind, f"{source}: record {number}", f"give {what}")


class QuestionRecord(msgspec.Struct, kw_only=True):
    """A question under the names that files have for its fields, which are read in any case of letters.

    NQ-open has `answer`, FlashRAG `golden_answers`, TriviaQA `QuestionId` and an `Answer` with aliases, PopQA
    `possible_answers`, a list as a text. Of several names of one field the first counts.
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
        given = (self.answers, self.golden_answers, self.possible_answers, self.answer)
        answers = next((field for field in given if field is not None), None)
        if answers is None:
            raise ValueError(f"{where} has no 'answers' and no 'answer'; give the accepted ones")
        return scorable(_answer_texts(answers, where))


def read_questions(source: str, split: str, kind: type[Q], what: str) -> Iterator[tuple[str, Q]]:
    """The questions of a source, as `read_records` reads it, each with its place for errors.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or a record asks nothing.
    """
    records = (inner for record in _values(source, split, what) for inner in _unwrapped(record))
    for number, record in enumerate(records):
        where = f"{source}: record {number}"
        if isinstance(record, Mapping):
            record = {str(name).lower(): value for name, value in record.items()}
        read = convert(record, kind, where, f"give {what}")
        read.question = read.query if read.question is None else read.question
        if read.question is None:
            raise ValueError(f"{where} has no 'question'; give {what}")
        yield where, read


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


def _unwrapped(record: Any) -> Iterable[Any]:
    """The records in an object around all of them, as TriviaQA's `{"Data": […]}`; otherwise the record."""
    if isinstance(record, Mapping) and {"question", "query"}.isdisjoint(map(str.lower, record)):
        lists = [value for value in record.values() if isinstance(value, list) and value]
        if len(lists) == 1 and all(isinstance(inner, Mapping) for inner in lists[0]):
            return lists[0]
    return (record,)


def _values(source: str, split: str, what: str) -> Iterator[Any]:
    """What the records of a source hold, unchecked."""
    records: Iterable[Any]
    if source.startswith("hf:"):
        records = _from_hub(source, split)
    elif not Path(source).is_file():
        raise FileNotFoundError(f"no file at {source}; give {what}, or hf:NAME")
    else:
        read = from_parquet if source.endswith(".parquet") else _from_file
        records = in_one_line(read(Path(source)), source, what)
    empty = True
    for record in records:
        empty = False
        yield record
    if empty:
        raise ValueError(f"{source} holds no record; give {what}")


def in_one_line(records: Iterator[Any], source: str, what: str) -> Iterator[Any]:
    """The records; an error while reading them becomes one line that names the source."""
    try:
        yield from records
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is not UTF-8 text ({error}); save it as UTF-8") from error
    except FileNotFoundError:
        raise
    except (ValueError, OSError, EOFError, RecursionError, csv.Error, pa.ArrowException) as error:
        raise ValueError(f"{source} is not {what}: {error_line(error, 240)}") from error


def from_parquet(path: Path) -> Iterator[Any]:
    """The rows of a Parquet file as dictionaries."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_ROWS):
            yield from batch.to_pylist()


def _from_file(path: Path) -> Iterator[Any]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig") as file:
        text = file.read()
    table = Path(path.name.removesuffix(".gz")).suffix
    if table in (".csv", ".tsv"):
        rows = csv.DictReader(io.StringIO(text), delimiter="," if table == ".csv" else "\t", strict=True)
        yield from map(without_rest, rows)
        return
    decoder, end = json.JSONDecoder(), _end_of_space(text, 0)
    array = text[end : end + 1] == "["
    while end < len(text):  # lines, objects over several lines, or one array
        value, end = decoder.raw_decode(text, end)
        end = _end_of_space(text, end)
        yield from value if array else (value,)


def without_rest(row: dict[Any, Any]) -> dict[str, str]:
    """A row of a table without the cells that are under no column's name."""
    return {name: cell for name, cell in row.items() if name is not None}


def _end_of_space(text: str, start: int) -> int:
    found = _SPACE.match(text, start)
    return found.end() if found else start


def _from_hub(source: str, split: str) -> Iterable[Any]:
    datasets = require("datasets", "hub")
    name, _, config = source.removeprefix("hf:").partition(":")
    try:
        return cast(Iterable[Any], datasets.load_dataset(name, config or None, split=split))
    except Exception as error:  # the hub client raises many kinds
        raise ValueError(f"cannot load {source} (split {split!r}): {error_line(error, 160)}") from error
