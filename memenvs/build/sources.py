"""Records of files and Hugging Face data sets, their fields checked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from memenvs.build.examples import Example
from memenvs.core.checks import error_line
from memenvs.core.optional import require
from memenvs.core.spaces import is_utf8
from memenvs.tasks.metrics import normalize_answer

Record = dict[str, Any]
ExampleOf = Callable[[Record, int, str], Example | None]


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


def read_examples(
    source: str, split: str, example: ExampleOf, *, keys: Sequence[str], what: str
) -> list[Example]:
    """`example(record, number, source)` of each record, those left out that it gives None for.

    The other arguments are those of `read_records`.

    Raises:
        ValueError: the source is something else, or a question of it cannot be used; the line names it.
    """
    records = read_records(source, split, keys=keys, what=what)
    made = (example(record, number, source) for number, record in enumerate(records))
    examples = [one for one in made if one is not None]
    check_examples(examples, source)
    return examples


def check_examples(examples: Sequence[Example], source: str) -> None:
    """Raise a one-line `ValueError` where there are none, or two have one id."""
    if not examples:
        raise ValueError(f"{source} holds no question that can be answered; give another file")
    seen: set[str] = set()
    for example in examples:
        if example.id in seen:
            raise ValueError(f"{source} has two questions of the id {example.id!r}; give each its own")
        seen.add(example.id)


def _from_file(path: Path, what: str) -> list[Record]:
    if not path.is_file():
        raise FileNotFoundError(f"no file at {path}; --source wants {what}, or hf:NAME")
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig") as file:
            text = file.read()
        if text.lstrip()[:1] == "[":
            array = json.loads(text)
            return list(array)
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
        raise ValueError(f"cannot load {source} (split {split!r}): {error_line(error, 160)}") from error
    return [dict(row) for row in rows]


def read_text(value: Any, what: str, where: str) -> str:
    """`value` if it is a `str` that can be written as UTF-8."""
    if not isinstance(value, str):
        raise ValueError(f"{where} has {value!r:.80} as {what}, which is no text; mend it or leave it out")
    if not is_utf8(value):
        raise ValueError(f"{where} has a lone surrogate in its {what}; replace it, as by U+FFFD")
    return value


def read_question(value: Any, where: str) -> str:
    """A question that asks something."""
    question = read_text(value, "question", where)
    if not question.strip():
        raise ValueError(f"{where} asks nothing: its question is {question!r}; leave it out of the file")
    return question


def read_id(value: Any, source: str) -> str:
    """An id as text; a `str` or a whole number."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(f"{source} has a question whose id is {value!r:.80}; ids are texts or numbers")
    return read_text(str(value), "id", f"a question of {source}")


def read_answers(preferred: Any, aliases: Any, where: str) -> tuple[str, ...]:
    """The accepted answers, the preferred one first, once each; aliases that say nothing are dropped.

    An answer that is nothing when normalised ("", "The") is refused: an empty reply would score 1.
    """
    answer = read_text(preferred, "answer", where)
    if not normalize_answer(answer):
        raise ValueError(
            f"{where} has the answer {answer!r}, which is nothing once articles and punctuation are gone, so "
            "that an empty reply would be right; leave the question out of the file"
        )
    if not isinstance(aliases, (list, tuple)):
        raise ValueError(f"{where} has {aliases!r:.80} as answer aliases; they are a list of texts")
    others = [read_text(alias, "answer alias", where) for alias in aliases]
    return tuple(dict.fromkeys([answer, *(other for other in others if normalize_answer(other))]))
