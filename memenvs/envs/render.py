"""Turns as text for a terminal."""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

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
    earned: Sequence[str],
    end: str,
) -> str:
    """A turn of chunked reading: the last reply and its reward, then what the agent now has before it.

    The chunk is shown by its beginning, its end and the evidence inside it, which is highlighted; `earned`
    are the lines of the reward (`TextEnv.reward_lines`).
    """
    lines = [f"{_BOLD}{title}{_RESET}"]
    if reply is not None:
        lines += [*block("replied", reply, limit=400), *earned]
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
    earned: Sequence[str],
    feedback: str,
    end: str,
) -> str:
    """A turn of a conversation with tools: the question, or the last reply, its reward and its feedback."""
    lines = [f"{_BOLD}{title}{_RESET}"]
    if reply is None:
        lines += block("question", question, limit=600)
    else:
        lines += [*block("replied", reply, limit=500), *earned]
        lines += block("came back", feedback, limit=800)
    return "\n".join([*lines, f"{_BOLD}the episode is {end}{_RESET}"] if end else lines)


def earned_lines(
    rewards: Mapping[str, float],
    signals: Mapping[str, float],
    credits: Mapping[str, Sequence[Any]],
    turn_rewards: Sequence[float],
) -> list[str]:
    """How a turn was paid, and at the end of an episode how every turn was.

    Args:
        rewards: the components of the last turn.
        signals: of each method at the last turn.
        credits: of each method: `memenvs.rollout.records.Credit`s.
        turn_rewards: of every turn; shown where credits are known.
    """
    lines = [reward_line(rewards)]
    if signals:
        measured = ", ".join(f"{name} {value:.4g}" for name, value in signals.items())
        lines.append(f"{_YELLOW}signals{_RESET} {measured}")
    if any(credits.values()):
        lines.append(f"{_YELLOW}credits{_RESET}")
        for turn, reward in enumerate(turn_rewards):
            lines.append(f"  turn {turn + 1}: {reward:+.2f} in all{credits_of(credits, turn)}")
    return lines


def credits_of(credits: Mapping[str, Sequence[Any]], turn: int) -> str:
    """A turn's credits by method, behind commas, each with the characters it is for."""
    parts = []
    for name, some in credits.items():
        for credit in some:
            if credit.turn == turn:
                place = f" at characters {credit.span[0]} to {credit.span[1]}" if credit.span else ""
                kind = " (advantage)" if credit.advantage else ""
                why = f" ({credit.reason})" if credit.reason else ""
                value = "none" if math.isnan(credit.value) else f"{credit.value:+.3g}"
                parts.append(f", {name} {value}{kind}{place}{why}")
    return printable("".join(parts)).replace("\n", " ")


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
    """`text` with control characters, except line ends and our own colours, shown as U+FFFD."""
    bare = text.replace(_DIM, "\ue000").replace(_RESET, "\ue001")
    safe = "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else "\ufffd" for c in bare)
    return safe.replace("\ue000", _DIM).replace("\ue001", _RESET)


def reward_line(rewards: Mapping[str, float]) -> str:
    """The reward of a turn and the components that made it; one that could not be measured counts nothing."""
    parts = ", ".join(f"{name} {value:+.2f}" for name, value in rewards.items() if value) or "none"
    total = sum(value for value in rewards.values() if not math.isnan(value))
    return f"{_YELLOW}reward{_RESET} {total:+.2f} ({parts})"
