"""Read OpenAI's MRCR: which of several alike requests of a long conversation was answered how."""

from __future__ import annotations

import json
from collections.abc import Iterator

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example
from memenvs.build.readers.records import (
    Record,
    iterate_records,
    kept_examples,
    read_id,
    read_question,
    read_text,
)
from memenvs.tasks.metrics import MRCR_PREFIX
from memenvs.tasks.taskset import Layout

_WHAT = "OpenAI's MRCR (2needle, 4needle or 8needle .parquet)"
_KEYS = ("prompt", "answer", "random_string_to_prepend", "n_needles")


def read_mrcr(source: str, split: str = "train") -> KeptContexts:
    """The questions of MRCR, scored by `mrcr_ratio`.

    The last message of a record's `prompt` is the question ("Prepend … to the 2nd poem about tapirs"); every
    message before it is a document, `User: …` or `Assistant: …`. Evidence is the reply that is asked for,
    without the random string that the answer begins with, and its request. The id is the record's number.

    Args:
        source: 2needle.parquet, 4needle.parquet, 8needle.parquet, or hf:NAME[:CONFIG].
        split: of an `hf:` data set.

    Raises:
        ValueError: the source is something else; the line names the record.
    """
    records = iterate_records(source, split, keys=_KEYS, what=_WHAT)
    numbered = ({**record, "number": number} for number, record in enumerate(records))
    return KeptContexts(
        kept_examples(numbered, _examples, source=source, what=_WHAT),
        Layout("", "\n\n"),
        "mrcr_ratio",
        source,
    )


def _examples(record: Record, where: str) -> Iterator[Example | None]:
    try:
        messages = json.loads(record["prompt"])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} has a prompt that is no JSON ({error!s:.80}); give {_WHAT}") from error
    answer = read_text(record["answer"], "answer", where)
    prefix = read_text(record["random_string_to_prepend"], "random string", where)
    if len(prefix) != MRCR_PREFIX or not answer.startswith(prefix):
        raise ValueError(
            f"{where} has the random string {prefix!r:.40}, with which its answer must begin, of "
            f"{MRCR_PREFIX} characters; give {_WHAT}"
        )
    if not isinstance(messages, list) or len(messages) < 2:
        raise ValueError(f"{where} has no message before its question; give {_WHAT}")
    *history, last = messages
    contents = [read_text(message["content"], "message", where) for message in history]
    roles = [read_text(message["role"], "role", where).capitalize() for message in history]
    wanted = answer[MRCR_PREFIX:]
    place = record.get("desired_msg_index")
    if type(place) is not int or not 0 <= place < len(contents) or contents[place].strip() != wanted.strip():
        place = next((i for i, content in enumerate(contents) if content.strip() == wanted.strip()), None)
    yield Example(
        read_id(record["number"], where),
        read_question(last["content"], where),
        (answer,),
        tuple(("", f"{role}: {content}") for role, content in zip(roles, contents, strict=True)),
        () if place is None else tuple(range(max(0, place - 1), place + 1)),
        meta={
            key: record[key]
            for key in ("n_needles", "total_messages", "n_chars")
            if record.get(key) is not None
        },
    )
