"""Credit for conversations that another agent had: what can be computed, computing it, what came out."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from memenvs.core.episode import OUTCOME, Episode, Turn
from memenvs.core.errors import printable
from memenvs.evaluation.summary import markdown_table, show_number
from memenvs.logs.conversation import MAY_LACK, Conversation
from memenvs.logs.files import Numbering, Source
from memenvs.logs.forms import Form
from memenvs.wrappers.comparison import COMPARISONS, ComparisonSettings
from memenvs.wrappers.credit import assign_credit, has_entry
from memenvs.wrappers.method import RememberingMethod, RewardMethod
from memenvs.wrappers.names import METHODS
from memenvs.wrappers.registry import ScorerSpec, make_methods, make_scorer

BATCH_TURNS, BATCH_CHARS = 512, 4_000_000  # turns, and characters of their texts, that are scored by one call
ADVANTAGE = "advantage"
"""Name under which turns have the advantage of a comparison."""
FALLBACKS: dict[str, dict[str, Any]] = {
    "InfoMem": {"side": "both"},
    "MemPO": {"trajectory": "outcome"},
    "StepSearch": {"gains": "new"},
}
"""Settings with which a method needs less, where a log lacks what it needs by default."""
REMEDIES = {
    "an answer": "--answers FILE, or --fields answer=NAME",
    "evidence": "--fields evidence=NAME",
    "a reward": "--fields reward=NAME",
    "a group": "several conversations about one question, or --fields group=NAME",
}


@dataclass
class Contents:
    """What a log holds, without its texts.

    Attributes:
        forms: how many conversations there are of each form.
        of_file: the form of each file.
        tasks: how many conversations there are about each task.
        models: how many conversations each model had, where the log names it.
        turns: number of turns.
        lacking: by entry of an info how many conversations lack it.
        entries: an info, for the entries that every conversation has.
        broken: the records that were left out.
    """

    forms: Counter[str] = field(default_factory=Counter)
    of_file: dict[Path, Form] = field(default_factory=dict)
    tasks: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    turns: int = 0
    lacking: Counter[str] = field(default_factory=Counter)
    entries: dict[str, Any] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @property
    def conversations(self) -> int:
        """Number of conversations."""
        return self.tasks.total()

    @property
    def grouped(self) -> bool:
        """Whether two conversations are about one task."""
        return self.conversations > len(self.tasks)

    def unmet(self, method: RewardMethod) -> list[str]:
        """What a method needs that no conversation has; empty if it can run."""
        wanted = [
            MAY_LACK[need]
            for need in method.needs
            if need in MAY_LACK and self.lacking[need] == self.conversations
        ]
        unknown = [need for need in method.needs if not (need in MAY_LACK or has_entry(self.entries, need))]
        if unknown:
            wanted.append(f"what only environments of memenvs give ({', '.join(unknown)})")
        if method.continuations:
            wanted.append("to play on from each turn, which a log cannot")
        if method.group and not isinstance(method, RememberingMethod) and not self.grouped:
            wanted.append("a group")
        return list(dict.fromkeys(wanted))


def contents(source: Source) -> Contents:
    """Read a log once, and count what is in it; errors are those of `Source.entries`."""
    found = Contents()
    for entry in source.entries():
        found.of_file[entry.path] = entry.form
        for conversation in entry.conversations:
            found.forms[entry.form.name] += 1
            found.tasks[conversation.task] += 1
            found.models.update([conversation.model] if conversation.model else [])
            found.turns += len(conversation.turns)
            found.lacking.update(conversation.lacks)
            if not found.entries:
                found.entries = conversation.to_episode().turns[0].before
    found.broken = list(source.broken)
    return found


def runnable(found: Contents) -> tuple[list[RewardMethod], dict[str, str]]:
    """The reward methods that can run on a log, with the settings they need for it; and why others cannot."""
    methods: list[RewardMethod] = []
    others: dict[str, str] = {}
    for name in METHODS:
        for settings in ({}, FALLBACKS.get(name, {})):
            try:
                (method,) = make_methods([[name, settings]])
            except ValueError as error:  # an argument without a default
                others[name] = str(error)
                break
            if not (unmet := found.unmet(method)):
                methods.append(method)
                others.pop(name, None)
                break
            others[name] = f"needs {' and '.join(unmet)}"
    return methods, others


def check(found: Contents, methods: Sequence[RewardMethod]) -> None:
    """Raise a one-line `ValueError` if a method needs what no conversation has."""
    for method in methods:
        if unmet := found.unmet(method):
            remedies = [REMEDIES[what] for what in unmet if what in REMEDIES]
            fix = f"; give {' and '.join(remedies)}" if remedies else "; leave it out"
            raise ValueError(f"{method.name} needs {' and '.join(unmet)}, which no conversation has{fix}")


def credited(
    source: Source,
    found: Contents,
    methods: Sequence[RewardMethod],
    scorer: ScorerSpec = None,
    compare: str | None = None,
) -> Iterator[tuple[Conversation, Episode]]:
    """The conversations of a log as episodes with credit, in the order in which their groups are complete.

    A conversation waits for the others about its task only where a method compares them. What is scored
    together is bounded, so the whole log is never in memory.

    Args:
        source: the log.
        found: its contents.
        methods: reward methods that can run on it.
        scorer: gives log-probabilities, and writes the prompts in its chat template.
        compare: a name of `COMPARISONS`, whose advantages become signals named `"advantage"`.
    """
    scoring = make_scorer(scorer)
    numbering = Numbering(found.tasks, scoring)
    needs_groups = bool(compare) or any(method.group for method in methods)
    waiting: dict[str, list[tuple[Conversation, Episode]]] = {}
    batch: list[tuple[Conversation, Episode]] = []
    turns = chars = 0
    for conversation in source.conversations():
        group = waiting.setdefault(conversation.task, [])
        group.append((conversation, numbering.episode(conversation)))
        if needs_groups and len(group) < found.tasks[conversation.task]:
            continue
        batch += waiting.pop(conversation.task)
        turns += sum(len(one.turns) for one, _ in group)
        chars += sum(one.chars for one, _ in group)
        if turns >= BATCH_TURNS or chars >= BATCH_CHARS:
            yield from _pay(batch, methods, scoring, compare)
            batch, turns, chars = [], 0, 0
    yield from _pay(
        [*batch, *(pair for group in waiting.values() for pair in group)], methods, scoring, compare
    )


def _pay(
    batch: list[tuple[Conversation, Episode]],
    methods: Sequence[RewardMethod],
    scorer: Any,
    compare: str | None,
) -> list[tuple[Conversation, Episode]]:
    episodes = [episode for _, episode in batch]
    if not episodes:
        return batch
    assign_credit(episodes, methods, scorer)
    for conversation, episode in batch:
        if conversation.reward is None:
            del episode.metrics[OUTCOME]  # which is not known
    if compare:
        played = [episode for episode in episodes if not episode.error]
        for episode, values in zip(
            played, COMPARISONS[compare].advantages(played, ComparisonSettings()), strict=True
        ):
            for turn, value in zip(episode.turns, values.tolist(), strict=True):
                turn.signals[ADVANTAGE] = value  # no credit, which the turn's reward would hold a second time
    return batch


def credits_of(turn: Turn) -> dict[str, float]:
    """What each method gave to a turn, without what it gave nothing or could not measure."""
    known = {name: [c.value for c in credits if c.known] for name, credits in turn.credits.items()}
    return {name: math.fsum(values) for name, values in known.items() if values}


class RankedTurn(NamedTuple):
    """A turn with its credit by one method."""

    credit: float
    order: int  # of the turn among all, so that equal credits stay in order
    place: str
    turn: int
    turns: int
    what: str
    text: str


@dataclass
class MethodCredit:
    """What one method gave over a log.

    Attributes:
        scored: the scorer that it asked; empty without one.
        turns: number of turns with a credit.
        total: the sum of these credits.
        most: the turns that earned most, the best first.
        least: the turns that lost most, or earned least, the worst first.
    """

    scored: str
    turns: int = 0
    total: float = 0.0
    most: list[RankedTurn] = field(default_factory=list)
    least: list[RankedTurn] = field(default_factory=list)

    def add(self, ranked: RankedTurn, keep: int) -> None:
        """Count a turn, and keep it if it is among the most or least paid."""
        self.turns += 1
        self.total += ranked.credit
        self.most = heapq.nsmallest(keep, [*self.most, ranked], key=lambda turn: (-turn.credit, turn.order))
        self.least = heapq.nsmallest(keep, [*self.least, ranked], key=lambda turn: (turn.credit, turn.order))


class Ranking:
    """Which turns of a log earned and lost most, method by method.

    Args:
        methods: what gave the credit.
        scorer: the name of what was asked for log-probabilities.
        keep: turns shown at either end.
        texts: keep the texts of these turns.
    """

    def __init__(self, methods: Sequence[RewardMethod], scorer: str, keep: int, *, texts: bool) -> None:
        self.of = {method.name: MethodCredit(scorer if method.asks else "") for method in methods}
        self.failed: list[str] = []
        self._keep, self._texts, self._count = keep, texts, 0

    def add(self, conversation: Conversation, episode: Episode) -> None:
        """Rank the turns of a conversation."""
        if episode.error:
            self.failed.append(f"{conversation.place}: {episode.error}")
            return
        for number, (place, turn) in enumerate(zip(conversation.turns, episode.turns, strict=True)):
            self._count += 1
            calls = ", ".join(call.name for call in conversation.messages[place].calls)
            advantage = {name: value for name, value in turn.signals.items() if name == ADVANTAGE}
            for name, value in (credits_of(turn) | advantage).items():
                ranked = RankedTurn(
                    value + 0.0,
                    self._count,
                    conversation.place,
                    number + 1,
                    len(episode.turns),
                    calls or "replied",
                    turn.action if self._texts else "",
                )
                self.of.setdefault(name, MethodCredit("")).add(ranked, self._keep)

    def __str__(self) -> str:
        """Markdown: a table of the methods, then for each the turns that earned and lost most."""
        rows = [
            [name, credit.scored, f"{credit.turns:,}", show_number(credit.total / max(credit.turns, 1), "+")]
            + [show_number(end[0].credit, "+") if end else "" for end in (credit.least, credit.most)]
            for name, credit in self.of.items()
        ]
        lines = markdown_table(["method", "scorer", "turns", "mean", "lowest", "highest"], rows)
        for name, credit in self.of.items():
            ranked = [turn for turn in credit.most if turn.credit > 0]
            ranked += [turn for turn in reversed(credit.least) if turn.credit < 0]
            if not ranked:
                continue
            by = f"{name}, scorer {credit.scored}" if credit.scored else name
            lines += ["", f"Turns that earned and lost most ({by}):", ""]
            table = [
                [show_number(turn.credit, "+"), f"{turn.turn} of {turn.turns}", turn.what, turn.place]
                for turn in ranked
            ]
            lines += markdown_table(["credit", "turn", "called", "conversation"], table)
            lines += [f"\n> {_quoted(turn.text)}" for turn in ranked if turn.text]
        return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """A reply in one line of at most 300 characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= 300 else f"{line[:299]}…"
