"""A file or a Hugging Face data set comes in; its records go out, or one clear error."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from memenvs.extras import require
from memenvs.tokens import first_line

Record = dict[str, Any]


def read_records(source: str, split: str, *, keys: Sequence[str], what: str) -> list[Record]:
    """Records of a JSON array, of JSON Lines (gzip too), or of `hf:NAME[:CONFIG]`.

    Args:
        source: a file, or `hf:NAME` or `hf:NAME:CONFIG` for a data set read through `datasets`.
        split: the split of a Hugging Face data set.
        keys: what every record must have.
        what: the kind of file that is wanted, for errors.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or holds no record.
    """
    records = _from_hub(source, split) if source.startswith("hf:") else _from_file(Path(source), what)
    for number, record in enumerate(records):
        missing = [key for key in keys if not isinstance(record, dict) or key not in record]
        if missing:
            raise ValueError(f"{source} is not {what}: record {number} has no {missing[0]!r}")
    if not records:
        raise ValueError(f"{source} holds no record; give {what}")
    return records


def _from_file(path: Path, what: str) -> list[Record]:
    if not path.is_file():
        raise FileNotFoundError(f"no file at {path}; --source wants {what}, or hf:NAME")
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as file:
            text = file.read()
        if text.lstrip()[:1] == "[":
            found = json.loads(text)
            return list(found)
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except RecursionError as error:
        raise ValueError(f"{path} is not {what}: its JSON is nested too deep") from error
    except (ValueError, OSError, EOFError) as error:  # bad JSON, not UTF-8, not gzip, cut short
        raise ValueError(f"{path} is not {what}: {error}") from error


def _from_hub(source: str, split: str) -> list[Record]:
    datasets = require("datasets", "hub")
    name, _, config = source.removeprefix("hf:").partition(":")
    try:
        rows: Iterable[Record] = datasets.load_dataset(name, config or None, split=split)
    except Exception as error:  # the hub client raises many kinds
        raise ValueError(f"cannot load {source} (split {split!r}): {first_line(error)}") from error
    return [dict(row) for row in rows]
