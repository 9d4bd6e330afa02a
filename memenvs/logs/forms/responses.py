"""Items of OpenAI's Responses: stored requests, NeMo Gym's rollouts, and Codex's sessions on disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from memenvs.logs.conversation import LogConversation, Message
from memenvs.logs.forms.form import LogForm, Record, call_of, credited_beside, text_of


def messages_of(items: Iterable[Record]) -> Iterator[Message]:
    """The messages of items: all that a model wrote up to a result or a user's message is one turn."""
    turn: Message | None = None
    fresh = False
    for number, item in enumerate(items):
        kind = item.get("type") or "message"
        if _is_written(kind, item):
            turn = _with(turn or Message("assistant", "", key=number), kind, item)
            continue
        if kind not in ("message", "compacted") and not kind.endswith("_output"):
            continue
        if turn:
            yield turn
            turn = None
        if kind == "compacted":
            fresh = True
            if text := text_of(item.get("message")):
                yield Message("user", text, fresh=True)
                fresh = False
        elif kind == "message":
            yield Message(
                "system" if item["role"] == "developer" else str(item["role"]),
                text_of(item["content"]),
                fresh=fresh,
            )
            fresh = False
        else:
            output = item.get("output")
            yield Message("tool", text_of(output.get("content") if isinstance(output, dict) else output))
    if turn:
        yield turn


def _is_written(kind: str, item: Record) -> bool:
    return (
        kind == "reasoning" or kind.endswith("_call") or (kind == "message" and item["role"] == "assistant")
    )


def _with(turn: Message, kind: str, item: Record) -> Message:
    """A turn with one more item that the model wrote."""
    if kind == "reasoning":
        thought = text_of(item.get("summary")) or text_of(item.get("content"))
        return turn._replace(thought="\n".join(filter(None, (turn.thought, thought))))
    if kind == "message":
        return turn._replace(text="\n".join(filter(None, (turn.text, text_of(item["content"])))))
    arguments = item.get("arguments", item.get("input", item.get("action")))
    return turn._replace(
        calls=(*turn.calls, call_of(item.get("name") or kind, arguments, item.get("call_id")))
    )


def _items(value: Any) -> list[Record]:
    return [{"role": "user", "content": value}] if isinstance(value, str) else list(value or ())


def _conversation(asked: Record, output: Any, model: Any = "") -> LogConversation:
    system = text_of(asked.get("instructions"))
    opening = [Message("system", system)] if system else []
    items = [*_items(asked.get("input")), *(output or ())]
    return LogConversation([*opening, *messages_of(items)], model=str(model or ""))


def _read(record: Record) -> Iterator[LogConversation]:
    yield _conversation(record, record.get("output"), record.get("model"))


def _read_rollout(record: Record) -> Iterator[LogConversation]:
    response = record["response"]
    conversation = _conversation(record["responses_create_params"], response["output"], response.get("model"))
    if "_ng_task_index" in record:
        conversation.group = str(record["_ng_task_index"])
    yield conversation


def _read_session(rows: Sequence[Record]) -> Iterator[LogConversation]:
    items, model = list[Record](), ""
    for row in rows:
        payload = row.get("payload") or {}
        if row.get("type") == "session_meta" and payload.get("instructions"):
            items.append({"role": "system", "content": payload["instructions"]})
        elif row.get("type") == "turn_context":
            model = str(payload.get("model") or model)
        elif row.get("type") == "response_item":
            items.append(payload)
        elif row.get("type") == "compacted":
            items.append({**payload, "type": "compacted"})
    yield LogConversation(list(messages_of(items)), model=model)


RESPONSES = LogForm(
    "Responses items",
    lambda record: (
        "messages" not in record
        and (
            isinstance(record.get("input"), list)
            or ("input" in record and isinstance(record.get("output"), list))
        )
    ),
    _read,
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
