"""What a form of recorded conversations is, and what most of them are made of: chat messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from memenvs.logs.conversation import Call, LogConversation, Message

Record = dict[str, Any]
_ROLES = {"developer": "system", "function": "tool", "model": "assistant"}


class LogForm(NamedTuple):
    """A form of recorded conversations.

    Attributes:
        name: as people call it.
        fits: whether a record is of this form.
        read: the conversations of a record; where `session` is set, of all records of a file.
        credited: a record with the credit of its conversations, each a list of turns; None where the form has
            no place for it, so that it goes into a file beside.
        session: whether all records of a file are one conversation.
        document: whether a file is one record, of JSON over several lines.
        continued: a record with that of the file in which it continues, which it names by
            `continued_trajectory_ref`; None where a file holds whole conversations.
    """

    name: str
    fits: Callable[[Record], Any]
    read: Callable[[Any], Iterable[LogConversation]]
    credited: Callable[[Record, Sequence[list[dict[str, Any]]]], Record] | None = None
    session: bool = False
    document: bool = False
    continued: Callable[[Record, Record], Record] | None = None


def messages_of(message: Record, key: int | str | None = None, *, fresh: bool = False) -> list[Message]:
    """The messages that a chat message is: the results in it, each of a tool, then the rest.

    Calls and thoughts are fields of the message (OpenAI, Inspect, verifiers) or parts of its content
    (Anthropic). `key` names its turn if it is an assistant's that was written in this run.
    """
    content, role = message.get("content"), str(message["role"])
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    results = [part for part in parts if part.get("type") == "tool_result"]
    messages = [Message("tool", text_of(part.get("content"))) for part in results]
    calls = message.get("tool_calls") or []
    calls = json.loads(calls) if isinstance(calls, str) else [*calls]  # a text in some data sets
    calls += [call for call in [message.get("function_call")] if call]
    calls += [part for part in parts if part.get("type") in ("tool_use", "server_tool_use")]
    thoughts = [message.get("reasoning_content") or message.get("reasoning")]
    thoughts += [part.get("reasoning") or part.get("thinking") for part in parts]
    text = text_of(content) or str(message.get("refusal") or "")
    role = _ROLES.get(role, role)
    if role == "assistant" or text or not results:
        thought = "\n".join(filter(None, map(text_of, thoughts)))
        turn = key if role == "assistant" else None
        messages.append(Message(role, text, tuple(map(call_of, calls)), thought, turn))
    return [messages[0]._replace(fresh=fresh), *messages[1:]]


def call_of(call: Record) -> Call:
    """A call, whose name and arguments are in its `function` or beside it; JSON is written one way."""
    function = call["function"] if isinstance(call.get("function"), dict) else call
    name = str(function.get("name") or call.get("function"))
    arguments = function.get("arguments", function.get("input"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return Call(name, arguments)
    return Call(name, json.dumps(arguments, ensure_ascii=False, sort_keys=True))


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


def credited_beside(record: Record, turns: Sequence[list[dict[str, Any]]]) -> Record:
    """A record of one conversation with `turn_rewards` and the credits of its turns beside its messages."""
    (of_turns,) = turns
    return {**record, "turn_rewards": [turn["reward"] for turn in of_turns], "memenvs": {"turns": of_turns}}
