"""Read OpenAI's MRCR: how one of several equal requests in a long conversation was answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from memenvs.build.contexts import KeptContexts
from memenvs.build.examples import Example
from memenvs.core.data import decode
from memenvs.tasks.metrics import MRCR_PREFIX
from memenvs.tasks.records import read_records
from memenvs.tasks.taskset import Layout

_WHAT = "OpenAI's MRCR (2needle, 4needle or 8needle .parquet)"


class _MRCRMessage(msgspec.Struct):
    role: str
    content: str


class _MRCRRecord(msgspec.Struct):
    prompt: str
    answer: str
    random_string_to_prepend: Annotated[str, Meta(min_length=MRCR_PREFIX, max_length=MRCR_PREFIX)]
    n_needles: int
    desired_msg_index: int | None = None
    total_messages: int | None = None
    n_chars: int | None = None


_Messages = Annotated[list[_MRCRMessage], Meta(min_length=2)]


def read_mrcr(source: str, split: str = "train") -> KeptContexts:
    """The questions of MRCR, scored by `mrcr_ratio`.

    The last message of a record's `prompt` is the question ("Prepend … to the 2nd poem about tapirs"); every
    message before it is a document, `User: …` or `Assistant: …`. Evidence is the reply that is asked for,
    without the random string that the answer begins with, and its request. The id is the record's number.

    Raises:
        ValueError: the source is something else; the line names the record.
    """

    def examples() -> Iterator[Example]:
        for number, record in enumerate(read_records(source, split, _MRCRRecord, _WHAT)):
            where = f"{source}: record {number}.prompt"
            messages: list[_MRCRMessage] = decode(record.prompt, _Messages, where, f"give {_WHAT}")
            *history, asked = messages
            wanted = record.answer[MRCR_PREFIX:].strip()
            places = [i for i, message in enumerate(history) if message.content.strip() == wanted]
            place = record.desired_msg_index
            if place not in places:
                place = next(iter(places), None)
            meta = {name: getattr(record, name) for name in ("n_needles", "total_messages", "n_chars")}
            yield Example(
                str(number),
                asked.content,
                (record.answer,),
                tuple(("", f"{message.role.capitalize()}: {message.content}") for message in history),
                () if place is None else tuple(range(max(0, place - 1), place + 1)),
                meta={name: value for name, value in meta.items() if value is not None},
            )

    return KeptContexts(examples(), Layout("", "\n\n"), "mrcr_ratio", source)
