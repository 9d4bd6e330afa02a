"""Messages of content blocks: Anthropic's requests, and Claude Code's sessions as they are on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memenvs.logs.conversation import LogConversation, Message
from memenvs.logs.forms.form import LogForm, Record, call_of, credited_beside, text_of

_BLOCKS = {"tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"}


def messages_of(message: Record, key: int | str | None) -> Iterator[Message]:
    """The messages that one of blocks is: its results first, each a message of a tool, then the rest."""
    content = message.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    for block in blocks:
        if block.get("type") == "tool_result":
            yield Message("tool", text_of(block.get("content")))
    texts = [block for block in blocks if block.get("type") == "text"]
    calls = [block for block in blocks if block.get("type") in ("tool_use", "server_tool_use")]
    thoughts = [str(block.get("thinking") or "") for block in blocks if block.get("type") == "thinking"]
    text = text_of(texts if isinstance(content, list) else content)
    if message["role"] == "assistant" or text:
        yield Message(
            str(message["role"]),
            text,
            tuple(call_of(block["name"], block.get("input"), block.get("id")) for block in calls),
            "\n".join(filter(None, thoughts)),
            key if message["role"] == "assistant" else None,
        )


def _read(record: Record) -> Iterator[LogConversation]:
    system = text_of(record.get("system"))
    messages = [Message("system", system)] if system else []
    for number, message in enumerate(record["messages"]):
        messages += messages_of(message, number)
    yield LogConversation(messages, model=str(record.get("model") or ""))


def _has_blocks(record: Record) -> bool:
    messages = record.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        return False
    contents = [message["content"] for message in messages if isinstance(message.get("content"), list)]
    kinds = {part.get("type") for content in contents for part in content if isinstance(part, dict)}
    return not kinds.isdisjoint(_BLOCKS)


def _read_session(rows: Sequence[Record]) -> Iterator[LogConversation]:
    """A reply has a row for each of its blocks, so rows are joined by the message's id."""
    messages: list[Message] = []
    places: dict[str, int] = {}  # of the replies by their ids
    model = ""
    for row in rows:
        if (
            row.get("type") not in ("user", "assistant")
            or row.get("isSidechain")
            or row.get("isApiErrorMessage")
        ):
            continue  # what is left out: sub-agents, summaries for the list of sessions, snapshots of files
        id_ = str(row["message"].get("id") or row.get("uuid"))
        for part in messages_of(row["message"], id_):
            if row["type"] == "assistant" and id_ in places:
                earlier = messages[places[id_]]
                text, thought = (
                    "\n".join(filter(None, both))
                    for both in ((earlier.text, part.text), (earlier.thought, part.thought))
                )
                calls = (*earlier.calls, *part.calls)
                messages[places[id_]] = earlier._replace(text=text, thought=thought, calls=calls)
                continue
            if row["type"] == "assistant":
                places[id_] = len(messages)
                model = str(row["message"].get("model") or model)
            messages.append(part._replace(fresh=bool(row.get("isCompactSummary"))))
    yield LogConversation(messages, model=model)


MESSAGES = LogForm("Anthropic messages", _has_blocks, _read, credited_beside)
CLAUDE_CODE = LogForm(
    "Claude Code",
    lambda row: (
        "leafUuid" in row
        or ("sessionId" in row and ("uuid" in row or "type" in row))
        or row.get("type") == "file-history-snapshot"
    ),
    _read_session,
    session=True,
)
