"""OpenAI's chat messages, a conversation a line; also prompt and completion, and the hub's sessions."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from memenvs.logs.conversation import LogConversation, Message
from memenvs.logs.forms.form import LogForm, Record, call_of, credited_beside, text_of


def message_of(message: Record, key: int | str | None) -> Message:
    """A chat message; `key` names its turn if it is an assistant's that was written in this run."""
    role = str(message["role"])
    calls = message.get("tool_calls") or []
    if isinstance(calls, str):  # as some data sets keep them
        calls = json.loads(calls)
    functions = [(_function(call), call.get("id")) for call in calls]
    functions += [(call, None) for call in [message.get("function_call")] if call]
    content = message.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    thoughts = [message.get("reasoning_content") or message.get("reasoning")]
    thoughts += [part.get("reasoning") for part in parts]  # of Inspect
    return Message(
        {"developer": "system", "function": "tool", "model": "assistant"}.get(role, role),
        text_of(content) or str(message.get("refusal") or ""),
        tuple(call_of(function["name"], function.get("arguments"), id_) for function, id_ in functions),
        "\n".join(filter(None, map(text_of, thoughts))),
        key if role == "assistant" else None,
    )


def _function(call: Record) -> Record:
    """The name and the arguments of a call: inside `function`, or beside the name (verifiers, Inspect)."""
    function = call.get("function") or call
    return {**call, "name": function} if isinstance(function, str) else function


def messages_of(messages: Sequence[Record]) -> list[Message]:
    """Chat messages; every assistant's message is a turn, named by its number among all."""
    return [message_of(message, number) for number, message in enumerate(messages)]


def _read(record: Record) -> Iterator[LogConversation]:
    if "completion" in record:
        prompt = record.get("prompt")
        given = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt or []
        written = record["completion"]
        if isinstance(written, str):
            written = [{"role": "assistant", "content": written}]
        messages = [message_of(message, None) for message in given] + messages_of(written)
    else:
        messages = messages_of(record["messages"])
    if system := text_of(record.get("system")):  # of Anthropic's requests
        messages.insert(0, Message("system", system))
    yield LogConversation(messages, model=str(record.get("model") or ""))


def _credited(record: Record, turns: Sequence[list[dict[str, Any]]]) -> Record:
    """The record with `turn_rewards` and the credits of each turn under `memenvs`.

    Trainers drop a column that they do not know. Inside a message only `weight` is allowed.
    """
    (of_turns,) = turns
    name = "completion" if "completion" in record else "messages"
    weights = {turn["key"]: turn["weight"] for turn in of_turns if "weight" in turn}
    if weights:
        messages = enumerate(record[name])
        record = {**record, name: [{**m, "weight": weights[n]} if n in weights else m for n, m in messages]}
    return credited_beside(record, turns)


def _read_session(rows: Sequence[Record]) -> Iterator[LogConversation]:
    messages = [row["message"] for row in rows if row.get("type") == "message"]
    header = next((row for row in rows if row.get("type") == "session"), {})
    yield LogConversation(messages_of(messages), model=str(header.get("harness") or ""))


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, dict) for part in itertools.islice(value, 3))


CHAT = LogForm(
    "OpenAI chat",
    lambda record: (
        _is_list(record.get("messages"))
        or ("completion" in record and isinstance(record.get("prompt"), (str, list)))
    ),
    _read,
    _credited,
)
SESSION = LogForm(
    "session trace",
    lambda record: (
        (record.get("type") == "session" and "harness" in record)
        or (
            record.get("type") == "message"
            and "uuid" not in record
            and isinstance(record.get("message"), dict)
        )
    ),
    _read_session,
    session=True,
)
