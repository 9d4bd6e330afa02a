"""ATIF 1.0 to 1.8, the trajectories that Harbor and others write, one a file or continued in others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from memenvs.logs.conversation import LogConversation, Message
from memenvs.logs.forms.form import LogForm, Record, messages_of, text_of


def _messages(steps: Sequence[Record]) -> Iterator[Message]:
    fresh = False
    for number, step in enumerate(steps):
        source = str(step["source"])
        if source == "system" and "context_management" in (step.get("extra") or {}):
            fresh = True  # what follows replaces what was read before
            continue
        is_turn = step.get("llm_call_count") != 0 and not step.get("is_copied_context")
        message = {
            "role": "assistant" if source == "agent" else source,
            "content": step.get("message"),
            "reasoning_content": step.get("reasoning_content"),
            "tool_calls": [
                {"name": call["function_name"], "arguments": call.get("arguments")}
                for call in step.get("tool_calls") or ()
            ],
        }
        yield from messages_of(message, number if is_turn else None, fresh=fresh)
        fresh = False
        for result in (step.get("observation") or {}).get("results") or ():
            yield Message("tool", text_of(result.get("content")))


def _read(record: Record) -> Iterator[LogConversation]:
    yield LogConversation(
        list(_messages(record["steps"])), model=str(record["agent"].get("model_name") or "")
    )


def _credited(record: Record, turns: Sequence[list[dict[str, Any]]]) -> Record:
    """Credit is in `extra` of each step; every other level refuses unknown fields."""
    credit = {turn["key"]: turn for turn in itertools.chain.from_iterable(turns)}
    steps = []
    for number, step in enumerate(record["steps"]):
        if turn := credit.get(number):
            step = {**step, "extra": {**(step.get("extra") or {}), "memenvs": turn}}
        steps.append(step)
    return {**record, "steps": steps}


def _continued(record: Record, rest: Record) -> Record:
    """A trajectory with the steps of the file in which it continues, whose first ones may be copied."""
    compaction = {"type": "compaction", "boundary": "replace"}
    step = {"source": "system", "message": "", "extra": {"context_management": compaction}}
    steps = [*record["steps"], step, *rest["steps"]]
    numbered = [{**step, "step_id": number} for number, step in enumerate(steps, 1)]
    return {**record, "steps": numbered, "continued_trajectory_ref": rest.get("continued_trajectory_ref")}


ATIF = LogForm(
    "ATIF",
    lambda record: str(record.get("schema_version", "")).startswith("ATIF") and "steps" in record,
    _read,
    _credited,
    document=True,
    continued=_continued,
)
