"""Turns as text for a terminal."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence

_WIDTH = 88
_BOLD, _DIM, _GREEN, _YELLOW, _RESET = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[0m"


def reading_turn(
    *,
    title: str,
    question: str,
    memory: str,
    chunk: str | None,
    evidence: Sequence[str],
    reply: str | None,
    rewards: dict[str, float],
    end: str,
) -> str:
    """A turn of chunked reading: the last reply and its reward, then what the agent now has before it.

    The chunk is shown by its beginning, its end and the evidence inside it, which is highlighted.
    """
    lines = [f"{_BOLD}{title}{_RESET}"]
    if reply is not None:
        lines += [*block("replied", reply, limit=400), reward_line(rewards)]
    if end:
        return "\n".join([*lines, f"{_BOLD}the episode is {end}{_RESET}"])
    lines += [*block("question", question, limit=600), *block("memory", memory, limit=800)]
    if chunk is not None:
        lines += block(f"chunk ({len(chunk):,} characters)", chunk, limit=500)
        for part in evidence:
            lines += block("evidence inside it", part, limit=500, colour=_GREEN)
    return "\n".join(lines)


def conversation_turn(
    *,
    title: str,
    question: str,
    reply: str | None,
    rewards: dict[str, float],
    feedback: str,
    end: str,
) -> str:
    """A turn of a conversation with tools: the question, or the last reply, its reward and its feedback."""
    lines = [f"{_BOLD}{title}{_RESET}"]
    if reply is None:
        lines += block("question", question, limit=600)
    else:
        lines += [*block("replied", reply, limit=500), reward_line(rewards)]
        lines += block("came back", feedback, limit=800)
    return "\n".join([*lines, f"{_BOLD}the episode is {end}{_RESET}"] if end else lines)


def block(label: str, text: str, *, limit: int, colour: str = "") -> list[str]:
    """A labelled, indented paragraph of at most about `limit` characters, its middle left out."""
    shown = printable(excerpt(text, limit)).strip() or "(empty)"
    lines = [
        line
        for paragraph in shown.splitlines()
        for line in textwrap.wrap(paragraph, _WIDTH, initial_indent="  ", subsequent_indent="  ") or [""]
    ]
    return [f"{_YELLOW}{label}{_RESET}", *(f"{colour}{line}{_RESET}" if colour else line for line in lines)]


def excerpt(text: str, limit: int) -> str:
    """`text`, or its beginning and end with the number of characters left out between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} {_DIM}[… {len(text) - 2 * half:,} characters …]{_RESET} {text[-half:]}"


def printable(text: str) -> str:
    """`text` with control characters, but for line ends and our own colours, shown as U+FFFD."""
    bare = text.replace(_DIM, "\ue000").replace(_RESET, "\ue001")
    safe = "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else "\ufffd" for c in bare)
    return safe.replace("\ue000", _DIM).replace("\ue001", _RESET)


def reward_line(rewards: dict[str, float]) -> str:
    """The reward of a turn and the components that made it."""
    parts = ", ".join(f"{name} {value:+.2f}" for name, value in rewards.items() if value) or "none"
    return f"{_YELLOW}reward{_RESET} {sum(rewards.values()):+.2f} ({parts})"
