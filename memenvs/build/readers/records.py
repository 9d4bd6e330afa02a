"""Records of files and Hugging Face data sets, each as a typed class."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import pyarrow as pa
import pyarrow.parquet as pq

from memenvs.core.data import convert
from memenvs.core.errors import error_line
from memenvs.core.optional import require
from memenvs.tasks.metrics import normalize_answer

R = TypeVar("R")
Answer = str | int | float  # some files have numbers as answers
Id = str | int
_ROWS = 16  # records of Parquet in memory at once; a context may have megabytes


def read_records(source: str, split: str, kind: type[R], what: str) -> Iterator[R]:
    """Records of a JSON array, of JSON Lines (gzip too), of Parquet, or of a Hugging Face data set.

    Args:
        source: a file, or `hf:NAME[:CONFIG]`.
        split: of a Hugging Face data set.
        kind: what a record becomes; fields that it does not have are ignored.
        what: the kind of file that is wanted, for errors.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or has no records.
    """
    records: Iterable[Any]
    if source.startswith("hf:"):
        records = _from_hub(source, split)
    elif not Path(source).is_file():
        raise FileNotFoundError(f"no file at {source}; --source takes {what}, or hf:NAME")
    else:
        read = _from_parquet if source.endswith(".parquet") else _from_file
        records = _in_one_line(read(Path(source)), f"{source} is not {what}")
    number = -1
    for number, record in enumerate(records):
        yield convert(record, kind, f"{source}: record {number}", f"give {what}")
    if number < 0:
        raise ValueError(f"{source} holds no record; give {what}")


def _in_one_line(records: Iterator[Any], fault: str) -> Iterator[Any]:
    """The records; an error while reading them becomes one line that begins with `fault`."""
    try:
        yield from records
    except (ValueError, OSError, EOFError, RecursionError, pa.ArrowException) as error:
        raise ValueError(f"{fault}: {error_line(error, 160)}") from error


def _from_parquet(path: Path) -> Iterator[Any]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_ROWS):
            yield from batch.to_pylist()


def _from_file(path: Path) -> Iterator[Any]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig") as file:
        text = file.read()
    if text.lstrip()[:1] == "[":
        yield from json.loads(text)
    else:
        yield from (json.loads(line) for line in text.split("\n") if line.strip())


def _from_hub(source: str, split: str) -> Iterable[Any]:
    datasets = require("datasets", "hub")
    name, _, config = source.removeprefix("hf:").partition(":")
    try:
        return cast(Iterable[Any], datasets.load_dataset(name, config or None, split=split))
    except Exception as error:  # the hub client raises many kinds
        raise ValueError(f"cannot load {source} (split {split!r}): {error_line(error, 160)}") from error


def read_answers(preferred: str, aliases: Iterable[str], where: str) -> tuple[str, ...]:
    """The accepted answers, the preferred one first, once each, without aliases that normalise to nothing.

    Raises:
        ValueError: the preferred one normalises to nothing ("", "The"), so an empty reply would score 1.
    """
    if not normalize_answer(preferred):
        raise ValueError(
            f"{where} has the answer {preferred!r}, which is nothing once articles and punctuation are gone, "
            "so that an empty reply would be right; leave the question out of the file"
        )
    return scorable([preferred, *aliases])


def scorable(answers: Iterable[Answer]) -> tuple[str, ...]:
    """The accepted answers as texts, once each, without those that are nothing when normalised."""
    return tuple(dict.fromkeys(str(one) for one in answers if normalize_answer(str(one))))
