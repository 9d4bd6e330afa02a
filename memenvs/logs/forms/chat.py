"""Chat messages of OpenAI or Anthropic, a conversation a line; prompt and completion; sessions on disk."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from memenvs.logs.conversation import LogConversation
from memenvs.logs.forms.form import LogForm, Record, credited_beside, messages_of, text_of


def _read(record: Record) -> Iterator[LogConversation]:
    opening: Any = record.get("prompt") or []
    written: Any = record.get("completion", record.get("messages"))
    if isinstance(opening, str):
        opening = [{"role": "user", "content": opening}]
    if isinstance(written, str):
        written = [{"role": "assistant", "content": written}]
    if "completion" not in record:
        opening = [{"role": "system", "content": text}] if (text := text_of(record.get("system"))) else []
    yield LogConversation(
        [part for message in opening for part in messages_of(message)]
        + [part for number, message in enumerate(written) for part in messages_of(message, number)],
        model=str(record.get("model") or ""),
    )


def _credited(record: Record, turns: Sequence[list[dict[str, Any]]]) -> Record:
    """The record with `turn_rewards` and the credits of each turn under `memenvs`.

    Trainers drop a column that they do not know. Inside a message OpenAI allows only `weight`.
    """
    name = "completion" if "completion" in record else "messages"
    if weights := {turn["key"]: turn["weight"] for turn in turns[0] if "weight" in turn}:
        messages = enumerate(record[name])
        record = {**record, name: [{**m, "weight": weights[n]} if n in weights else m for n, m in messages]}
    return credited_beside(record, turns)


def _read_session(rows: Sequence[Record]) -> Iterator[LogConversation]:
    messages = enumerate(row["message"] for row in rows if row.get("type") == "message")
    header = next((row for row in rows if row.get("type") == "session"), {})
    yield LogConversation(
        [part for number, message in messages for part in messages_of(message, number)],
        model=str(header.get("harness") or ""),
    )


def _read_claude_code(rows: Sequence[Record]) -> Iterator[LogConversation]:
    """A reply has a row for each of its blocks, so rows are joined by the message's id."""
    messages: list[tuple[Record, str, bool]] = []
    replies: dict[str, Record] = {}
    for row in rows:
        # Left out: sub-agents, summaries for the list of sessions, snapshots of files.
        if (
            row.get("type") not in ("user", "assistant")
            or row.get("isSidechain")
            or row.get("isApiErrorMessage")
        ):
            continue
        content = row["message"].get("content") or ""
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        id_ = str(row["message"].get("id") or row.get("uuid"))
        if row["type"] == "assistant" and id_ in replies:
            replies[id_]["content"] += parts
            continue
        messages.append(({**row["message"], "content": [*parts]}, id_, bool(row.get("isCompactSummary"))))
        if row["type"] == "assistant":
            replies[id_] = messages[-1][0]
    yield LogConversation(
        [part for message, id_, fresh in messages for part in messages_of(message, id_, fresh=fresh)],
        model=next((str(reply["model"]) for reply in replies.values() if reply.get("model")), ""),
    )


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, dict) for part in itertools.islice(value, 3))


CHAT = LogForm(
    "chat messages",
    lambda record: (
        _is_list(record.get("messages"))
        or ("completion" in record and isinstance(record.get("prompt"), (str, list)))
    ),
    _read,
    _credited,
)
MINI = LogForm(
    "mini-swe-agent",
    lambda record: str(record.get("trajectory_format", "")).startswith("mini-swe-agent"),
    _read,
)
SESSION = LogForm(
    "session trace",
    lambda row: (
        (row.get("type") == "session" and "harness" in row)
        or (row.get("type") == "message" and "uuid" not in row and isinstance(row.get("message"), dict))
    ),
    _read_session,
    session=True,
)
CLAUDE_CODE = LogForm(
    "Claude Code",
    lambda row: (
        "leafUuid" in row
        or ("sessionId" in row and ("uuid" in row or "type" in row))
        or row.get("type") == "file-history-snapshot"
    ),
    _read_claude_code,
    session=True,
)
