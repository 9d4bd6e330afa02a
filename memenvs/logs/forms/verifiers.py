"""Traces of verifiers and prime-rl (`traces.jsonl`), a line an episode of one or more traces."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from memenvs.logs.conversation import LogConversation, Message
from memenvs.logs.forms.form import LogForm, Record, messages_of


def _messages(nodes: Sequence[Record]) -> Iterator[Message]:
    """The messages of a tree in the order of its nodes; a new branch begins with what it has read."""
    last: int | None = None
    for number, node in enumerate(nodes):
        path, parent = list[int](), node["parent"]
        fresh = number > 0 and parent != last
        while fresh and parent is not None:
            path.append(parent)
            parent = nodes[parent]["parent"]
        for above in reversed(path):
            yield from messages_of(nodes[above]["message"], fresh=fresh)
            fresh = False
        yield from messages_of(node["message"], number if node["sampled"] else None, fresh=fresh)
        last = number


def _reward(trace: Record) -> float | None:
    rewards = trace.get("rewards") or {}
    total = sum(float(part["score"]) * float(part.get("weight", 1.0)) for part in rewards.values())
    return total if rewards else trace.get("reward")


def _read(record: Record) -> Iterator[LogConversation]:
    for trace in record["traces"]:
        data = (trace.get("task") or record.get("task") or {}).get("data") or {}
        asked, answer, group = data.get("prompt"), data.get("answer"), data.get("idx")
        yield LogConversation(
            list(_messages(trace["nodes"])),
            group="" if group is None else f"{(record.get('env') or {}).get('id', '')}/{group}",
            question=asked if isinstance(asked, str) else "",
            answers=(str(answer),) if answer not in (None, "") else (),
            reward=_reward(trace),
            model=str(((trace.get("agent") or {}).get("config") or {}).get("model") or ""),
            truncated=bool(trace.get("is_truncated")),
        )


def _credited(record: Record, turns: Sequence[list[dict[str, Any]]]) -> Record:
    """Credit is in `info` of each trace; `turn_rewards` are states, whose differences prime-rl pays."""
    traces = []
    for trace, of_turns in zip(record["traces"], turns, strict=True):
        states = list(itertools.accumulate(turn["reward"] for turn in of_turns))
        info = {**(trace.get("info") or {}), "turn_rewards": states, "memenvs": {"turns": of_turns}}
        traces.append({**trace, "info": info})
    return {**record, "traces": traces}


def _fits(record: Record) -> bool:
    traces = record.get("traces")
    return isinstance(traces, list) and bool(traces) and "nodes" in traces[0]


TRACES = LogForm("verifiers", _fits, _read, _credited)
