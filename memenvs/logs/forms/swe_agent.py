"""Trajectories of mini-swe-agent and of SWE-agent, one a file."""

from __future__ import annotations

from collections.abc import Iterator

from memenvs.logs.conversation import LogConversation, Message
from memenvs.logs.forms.chat import message_of, messages_of
from memenvs.logs.forms.form import LogForm, Record, call_of


def _read_mini(record: Record) -> Iterator[LogConversation]:
    yield LogConversation(messages_of(record["messages"]))


def _read_swe(record: Record) -> Iterator[LogConversation]:
    steps = record["trajectory"]
    opening = steps[0].get("query") or record.get("history", [])[:1]
    messages = [message_of(message, None) for message in opening]
    for number, step in enumerate(steps):
        calls = (call_of("action", step["action"]),) if step.get("action") else ()
        response = str(step.get("response") or step.get("thought") or "")
        messages += [
            Message("assistant", response, calls, key=number),
            Message("tool", str(step.get("observation") or "")),
        ]
    yield LogConversation(messages)


MINI = LogForm(
    "mini-swe-agent",
    lambda record: str(record.get("trajectory_format", "")).startswith("mini-swe-agent"),
    _read_mini,
)
SWE_AGENT = LogForm(
    "SWE-agent",
    lambda record: isinstance(steps := record.get("trajectory"), list) and steps and "response" in steps[0],
    _read_swe,
)
