"""Trajectories of SWE-agent, one a file."""

from __future__ import annotations

from collections.abc import Iterator

from memenvs.logs.conversation import Call, LogConversation, Message
from memenvs.logs.forms.form import LogForm, Record, call_of, messages_of


def _read(record: Record) -> Iterator[LogConversation]:
    steps = record["trajectory"]
    opening = steps[0].get("query") or record.get("history", [])[:1]
    messages = [part for message in opening for part in messages_of(message)]
    for number, step in enumerate(steps):
        calls: list[Call] = []
        if step.get("action"):
            calls = [call_of({"name": "action", "arguments": step["action"]})]
        response = str(step.get("response") or step.get("thought") or "")
        messages += [
            Message("assistant", response, tuple(calls), key=number),
            Message("tool", str(step.get("observation") or "")),
        ]
    yield LogConversation(messages)


SWE_AGENT = LogForm(
    "SWE-agent",
    lambda record: isinstance(steps := record.get("trajectory"), list) and steps and "response" in steps[0],
    _read,
)
