"""Items of OpenAI's Responses: stored requests, NeMo Gym's rollouts, and Codex's sessions on disk."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from memenvs.logs.conversation import LogConversation, Message
from memenvs.logs.forms.form import LogForm, Record, credited_beside, messages_of, text_of


def _kind(item: Record) -> str:
    """What an item is: written by the model, message, result or compacted; empty for what is left out."""
    kind = str(item.get("type") or "message")
    if kind == "reasoning" or kind.endswith("_call") or (kind == "message" and item["role"] == "assistant"):
        return "written"
    return "result" if kind.endswith("_output") else kind if kind in ("message", "compacted") else ""


def _parts(item: Record) -> list[Record]:
    """An item that the model wrote, as parts of a chat message."""
    kind = item.get("type") or "message"
    if kind == "message":
        content = item["content"]
        return [{"type": "text", "text": content}] if isinstance(content, str) else content
    if kind == "reasoning":
        return [
            {"type": "thinking", "thinking": text_of(item.get("summary")) or text_of(item.get("content"))}
        ]
    arguments = item.get("arguments", item.get("input", item.get("action")))
    return [{"type": "tool_use", "name": item.get("name") or kind, "input": arguments}]


def _messages(items: Iterable[Record]) -> Iterator[Message]:
    """The messages of items: all that a model wrote up to a result or a user's message is one turn."""
    fresh = False
    known = [(number, kind, item) for number, item in enumerate(items) if (kind := _kind(item))]
    for kind, run in itertools.groupby(known, key=lambda row: row[1]):
        rows = [(number, item) for number, _, item in run]
        if kind == "written":
            parts = [part for _, item in rows for part in _parts(item)]
            yield from messages_of({"role": "assistant", "content": parts}, rows[0][0])
            continue
        for _, item in rows:
            if kind == "result":
                output = item.get("output")
                yield Message("tool", text_of(output.get("content") if isinstance(output, dict) else output))
            elif kind == "message":
                yield from messages_of(item, fresh=fresh)
                fresh = False
            elif text := text_of(item.get("message")):
                yield Message("user", text, fresh=True)
            else:
                fresh = True  # the next message replaces what was read before


def _conversation(asked: Record, output: Any, model: Any, group: str = "") -> LogConversation:
    given = asked.get("input") or []
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    system = text_of(asked.get("instructions"))
    opening = [Message("system", system)] if system else []
    messages = [*opening, *_messages([*items, *(output or ())])]
    return LogConversation(messages, group, model=str(model or ""))


def _read_rollout(record: Record) -> Iterator[LogConversation]:
    response, group = record["response"], str(record.get("_ng_task_index", ""))
    yield _conversation(record["responses_create_params"], response["output"], response.get("model"), group)


def _read_session(rows: Sequence[Record]) -> Iterator[LogConversation]:
    payloads = [(row.get("type"), row.get("payload") or {}) for row in rows]
    request = {
        "instructions": next((p.get("instructions") for kind, p in payloads if kind == "session_meta"), None)
    }
    models = [payload.get("model") for kind, payload in payloads if kind == "turn_context"]
    items = [
        {**payload, "type": "compacted"} if kind == "compacted" else payload
        for kind, payload in payloads
        if kind in ("response_item", "compacted")
    ]
    yield _conversation(request, items, next(filter(None, reversed(models)), ""))


RESPONSES = LogForm(
    "Responses items",
    lambda record: (
        "messages" not in record
        and (
            isinstance(record.get("input"), list)
            or ("input" in record and isinstance(record.get("output"), list))
        )
    ),
    lambda record: [_conversation(record, record.get("output"), record.get("model"))],
    credited_beside,
)
NEMO_GYM = LogForm(
    "NeMo Gym",
    lambda record: "responses_create_params" in record and "response" in record,
    _read_rollout,
    credited_beside,
)
CODEX = LogForm(
    "Codex",
    lambda row: (
        row.get("type") in ("session_meta", "response_item", "turn_context", "event_msg", "compacted")
        and "payload" in row
    ),
    _read_session,
    session=True,
)
