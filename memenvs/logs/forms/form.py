"""What a form of recorded conversations is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from memenvs.logs.conversation import Call, LogConversation

Record = dict[str, Any]


class LogForm(NamedTuple):
    """A form of recorded conversations.

    Attributes:
        name: as people call it.
        fits: whether a record is of this form.
        read: the conversations of a record; where `session` is set, of all records of a file.
        credited: a record with the credit of its conversations, each a list of `turn_record`s; None where
            the form has no place for it, so that it goes into a file beside.
        session: whether all records of a file are one conversation.
        document: whether a file is one record, of JSON over several lines.
    """

    name: str
    fits: Callable[[Record], Any]
    read: Callable[[Any], Iterable[LogConversation]]
    credited: Callable[[Record, Sequence[list[dict[str, Any]]]], Record] | None = None
    session: bool = False
    document: bool = False


def text_of(content: Any) -> str:
    """The text of a message's content: a text, its parts, or null."""
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        return "" if content is None else str(content)
    parts = [
        part if isinstance(part, str) else part.get("text") or part.get("refusal") or "" for part in content
    ]
    return "\n".join(part for part in parts if isinstance(part, str) and part)


def call_of(name: Any, arguments: Any, id_: Any = "") -> Call:
    """A call whose arguments are an object, JSON, or another text; JSON is written one way."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return Call(str(name), arguments, str(id_ or ""))
    return Call(str(name), json.dumps(arguments, ensure_ascii=False, sort_keys=True), str(id_ or ""))


def credited_beside(record: Record, turns: Sequence[list[dict[str, Any]]]) -> Record:
    """A record of one conversation with `turn_rewards` and the credits of its turns beside its messages."""
    (of_turns,) = turns
    return {**record, "turn_rewards": [turn["reward"] for turn in of_turns], "memenvs": {"turns": of_turns}}
