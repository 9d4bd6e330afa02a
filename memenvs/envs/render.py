"""Turns as text for a terminal."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from memenvs.core.errors import printable
from memenvs.core.terminal import BOLD, DIM, RESET, YELLOW, terminal_width


def show_turn(
    title: str, reply: str | None, earned: Sequence[str], blocks: Sequence[Sequence[str]], end: str
) -> str:
    """A turn: the last reply and what it earned, what the agent now reads, and how the episode ended.

    `reply` is None at reset, `earned` are `TextEnv.reward_lines`, and `end` is empty while the episode runs.
    """
    lines = [f"{BOLD}{title}{RESET}"]
    if reply is not None:
        lines += [*block("replied", reply, limit=500), *earned]
    lines += itertools.chain.from_iterable(blocks)
    return "\n".join([*lines, f"{BOLD}the episode is {end}{RESET}"] if end else lines)


def earned_lines(
    rewards: Mapping[str, float],
    signals: Mapping[str, Sequence[float]],
    credits: Mapping[str, Sequence[Any]],
    turn_rewards: Sequence[float],
    has_ended: bool = False,
) -> list[str]:
    """How the last turn was paid by its components, and at the end of an episode how every turn was.

    `signals` are each method's by turn, `credits` its `memenvs.core.episode.Credit`s; `turn_rewards`, of
    every turn, are shown where credits are known.
    """
    lines = [reward_line(rewards)]
    if any(credits.values()):
        lines.append(f"{YELLOW}credits{RESET}")
        for turn in range(0 if has_ended else len(turn_rewards) - 1, len(turn_rewards)):
            measured = signals_at(signals, turn)
            earned = f"  turn {turn + 1}: {turn_rewards[turn]:+.2f} in all{credits_of(credits, turn)}"
            lines.append(f"{earned}; signals {measured}" if measured else earned)
    elif measured := signals_at(signals, -1):
        lines.append(f"{YELLOW}signals{RESET} {measured}")
    return lines


def signals_at(signals: Mapping[str, Sequence[float]], turn: int) -> str:
    """The signals of one turn by method; a method without signals is left out."""
    return printable(", ".join(f"{name} {values[turn]:.4g}" for name, values in signals.items() if values))


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
    """A labelled, indented paragraph of at most about `limit` characters, its middle left out.

    It is wrapped to the width of the terminal.
    """
    width = terminal_width()
    paragraphs = excerpt(printable(text), limit).strip() or "(empty)"
    lines = [
        line
        for paragraph in paragraphs.splitlines()
        for line in textwrap.wrap(paragraph, width, initial_indent="  ", subsequent_indent="  ") or [""]
    ]
    return [f"{YELLOW}{label}{RESET}", *(f"{colour}{line}{RESET}" if colour else line for line in lines)]


def excerpt(text: str, limit: int) -> str:
    """`text`, or its first and last words with the number of characters left out on a line between them."""
    if len(text) <= limit + 100:  # the line between takes room too
        return text
    first, last = text[: limit // 2], text[-(limit // 2) :]
    first, last = first.rpartition(" ")[0] or first, last.partition(" ")[2] or last
    return f"{first}\n{DIM}[… {len(text) - len(first) - len(last):,} characters …]{RESET}\n{last}"


def reward_line(rewards: Mapping[str, float]) -> str:
    """The reward of a turn and the components that made it; one that could not be measured counts nothing."""
    rounded = {name: round(value, 2) + 0.0 for name, value in rewards.items() if value}  # no -0.00
    parts = ", ".join(f"{name} {value:+.2f}" for name, value in rounded.items()) or "none"
    total = sum(value for value in rewards.values() if not math.isnan(value))
    return f"{YELLOW}reward{RESET} {round(total, 2) + 0.0:+.2f} ({printable(parts)})"
