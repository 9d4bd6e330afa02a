"""Credit for conversations that another agent had: what can be computed, computing it, what came out."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memenvs.core.episode import OUTCOME, Credit, Episode, Turn
from memenvs.core.errors import counted, one_line
from memenvs.evaluation.summary import markdown_table, show_number
from memenvs.logs.conversation import MAY_LACK, LogConversation
from memenvs.logs.files import LogFiles, episodes_of
from memenvs.logs.forms import LogForm
from memenvs.wrappers.comparison import COMPARISONS, ComparisonSettings
from memenvs.wrappers.credit import assign_credit, has_entry
from memenvs.wrappers.method import RememberingMethod, RewardMethod, RunningStatistics
from memenvs.wrappers.names import METHODS
from memenvs.wrappers.registry import ScorerSpec, make_methods, make_scorer

BATCH = 256  # turns that are scored by one call
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
        lacking: by value of `MAY_LACK` how many conversations lack it.
        entries: an info, for the entries that every conversation has.
        broken: the records that were left out.
    """

    forms: Counter[str] = field(default_factory=Counter)
    of_file: dict[Path, LogForm] = field(default_factory=dict)
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

    def __str__(self) -> str:
        """A paragraph of Markdown, and what was left out."""
        forms = ", ".join(f"{name} {count:,}" for name, count in self.forms.items())
        has = [self.conversations - self.lacking[what] for what in ("an answer", "a reward")]
        text = (
            f"{counted(self.conversations, 'conversation')} ({forms}) about "
            f"{counted(len(self.tasks), 'question')}, "
            f"{counted(self.turns, 'turn')}; {has[0]:,} with an answer, {has[1]:,} with a reward.\n"
        )
        skipped = "".join(f"- {line}\n" for line in self.broken[:5])
        return text + (
            f"\n{counted(len(self.broken), 'record')} skipped:\n\n{skipped}" if self.broken else ""
        )

    def unmet(self, method: RewardMethod) -> list[str]:
        """What a method needs that no conversation has; empty if it can run."""
        wants = [MAY_LACK[need] for need in method.needs if need in MAY_LACK]
        wanted = [what for what in wants if self.lacking[what] == self.conversations]
        unknown = [need for need in method.needs if not (need in MAY_LACK or has_entry(self.entries, need))]
        if unknown:
            wanted.append(f"what only environments of memenvs give ({', '.join(unknown)})")
        if method.continuations:
            wanted.append("a policy that plays on from each turn")
        alone = self.conversations == len(self.tasks)
        if alone and method.group and not isinstance(method, RememberingMethod):
            wanted.append("a group")
        return list(dict.fromkeys(wanted))


def contents(source: LogFiles) -> Contents:
    """Read a log once, and count what is in it; errors are those of `LogFiles.entries`."""
    log = Contents()
    for entry in source.entries():
        log.of_file[entry.path] = entry.form
        for conversation in entry.conversations:
            log.forms[entry.form.name] += 1
            log.tasks[conversation.task] += 1
            log.models.update([conversation.model] if conversation.model else [])
            log.turns += len(conversation.turns)
            log.lacking.update(conversation.lacks)
            if not log.entries:
                log.entries = conversation.to_episode().turns[0].before
    log.broken = list(source.broken)
    return log


def runnable(log: Contents) -> tuple[list[RewardMethod], dict[str, str]]:
    """The reward methods that can run on a log, with the settings they need for it; and why others cannot."""
    methods: list[RewardMethod] = []
    others: dict[str, str] = {}
    for name in METHODS:
        for settings in ({}, FALLBACKS.get(name, {})):
            try:
                (method,) = make_methods([[name, settings]])
            except ValueError as error:  # an argument without a default
                others[name] = str(error).removeprefix(f"{name} ")
                break
            if not (unmet := log.unmet(method)):
                methods.append(method)
                others.pop(name, None)
                break
            others[name] = f"needs {' and '.join(unmet)}"
    return methods, others


def check(log: Contents, methods: Sequence[RewardMethod]) -> None:
    """Raise a one-line `ValueError` if a method needs what no conversation has."""
    for method in methods:
        if unmet := log.unmet(method):
            remedies = [REMEDIES[what] for what in unmet if what in REMEDIES]
            fix = f"; give {' and '.join(remedies)}" if remedies else "; leave it out"
            raise ValueError(f"{method.name} needs {' and '.join(unmet)}, which no conversation has{fix}")


def credited(
    source: LogFiles,
    log: Contents,
    methods: Sequence[RewardMethod],
    scorer: ScorerSpec = None,
    compare: str | None = None,
) -> Iterator[tuple[LogConversation, Episode]]:
    """The conversations of a log as episodes with credit, in the order in which their groups are complete.

    A conversation waits for the others about its task only where a method compares them. What is scored
    together is bounded, so the whole log is never in memory.

    Args:
        source: the log.
        log: its contents.
        methods: reward methods that can run on it.
        scorer: gives log-probabilities, and writes the prompts in its chat template.
        compare: a name of `COMPARISONS`, whose advantages become signals named `"advantage"`.
    """
    scoring = make_scorer(scorer)
    needs_groups = bool(compare) or any(method.group for method in methods)
    waiting: dict[str, list[tuple[LogConversation, Episode]]] = {}
    batch: list[tuple[LogConversation, Episode]] = []
    for pair in episodes_of(source.conversations(), log.tasks, scoring):
        task = pair[0].task
        waiting.setdefault(task, []).append(pair)
        if needs_groups and len(waiting[task]) < log.tasks[task]:
            continue
        batch += waiting.pop(task)
        if sum(len(one.turns) for one, _ in batch) >= BATCH:
            yield from _pay(batch, methods, scoring, compare)
            batch = []
    yield from _pay(batch, methods, scoring, compare)


def _pay(
    batch: list[tuple[LogConversation, Episode]],
    methods: Sequence[RewardMethod],
    scorer: Any,
    compare: str | None,
) -> list[tuple[LogConversation, Episode]]:
    assign_credit([episode for _, episode in batch], methods, scorer)
    rewarded = []
    for conversation, episode in batch:
        if conversation.reward is None:
            del episode.metrics[OUTCOME]  # which is not known
        elif not episode.error:
            rewarded.append(episode)
        for method in methods:
            if lacking := conversation.lacks.intersection(map(MAY_LACK.get, method.needs)):
                reason = f"the conversation lacks {min(lacking)}"
                for number, turn in enumerate(episode.turns):
                    turn.credits[method.name] = [Credit(number, math.nan, reason=reason)]
    if compare:
        advantages = COMPARISONS[compare].advantages(rewarded, ComparisonSettings())
        for episode, values in zip(rewarded, advantages, strict=True):
            for turn, value in zip(episode.turns, values.tolist(), strict=True):
                turn.signals[ADVANTAGE] = value  # no credit, which the turn's reward would hold a second time
    return batch


def credits_of(turn: Turn) -> dict[str, float]:
    """What each method gave to a turn, without what it gave nothing or could not measure."""
    measured = {name: [c.value for c in credits if c.known] for name, credits in turn.credits.items()}
    return {name: math.fsum(values) for name, values in measured.items() if values}


class Ranking:
    """Which turns of a log earned and lost most, method by method.

    Args:
        methods: what gave the credit.
        scorer: the name of what was asked for log-probabilities.
        keep: turns shown at either end.
        texts: keep the texts of these turns.
    """

    def __init__(self, methods: Sequence[RewardMethod], scorer: str, keep: int, *, texts: bool) -> None:
        self.failed: list[str] = []
        self._scorers = {method.name: scorer if method.asks else "" for method in methods}
        self._numbers = defaultdict[str, RunningStatistics](RunningStatistics)
        # By method the turns at either end, the worst first: credit, minus its number, cells, text.
        self._turns = defaultdict[str, list[tuple[float, int, list[str], str]]](list)
        self._keep, self._texts = keep, texts

    def add(self, conversation: LogConversation, episode: Episode) -> None:
        """Rank the turns of a conversation."""
        if episode.error:
            self.failed.append(f"{conversation.place}: {episode.error}")
            return
        for number, (place, turn) in enumerate(zip(conversation.turns, episode.turns, strict=True), 1):
            called = ", ".join(call.name for call in conversation.messages[place].calls) or "replied"
            cells = [f"{number} of {len(episode.turns)}", called, conversation.place]
            advantage = {name: value for name, value in turn.signals.items() if name == ADVANTAGE}
            for name, value in (credits_of(turn) | advantage).items():
                self._numbers[name].add([value])
                text = turn.action if self._texts else ""
                self._turns[name].append((value, -self._numbers[name].count, cells, text))
        for ranked in self._turns.values():
            ranked.sort()
            del ranked[self._keep : -self._keep]

    def __str__(self) -> str:
        """Markdown: a table of the methods, then for each the turns that earned and lost most."""
        rows = [
            [name, self._scorers.get(name, ""), f"{numbers.count:,}"]
            + [show_number(value, "+") for value in (numbers.mean, numbers.low, numbers.high)]
            for name, numbers in self._numbers.items()
        ]
        lines = markdown_table(["method", "scorer", "turns", "mean", "lowest", "highest"], rows)
        for name in self._turns:
            if ranked := self._ranked(name):
                by = f"{name}, scorer {scorer}" if (scorer := self._scorers.get(name)) else name
                lines += ["", f"Turns that earned and lost most ({by}):", ""]
                table = [[show_number(value, "+"), *cells] for value, cells, _ in ranked]
                lines += markdown_table(["credit", "turn", "called", "conversation"], table)
                texts = [one_line(text) for *_, text in ranked if text]
                lines += [f"\n> {text if len(text) <= 300 else f'{text[:299]}…'}" for text in texts]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """By method its statistics, and the turns that earned and lost most, the best first."""
        columns = ("turn", "called", "conversation")
        return {
            name: {
                "scorer": self._scorers.get(name, ""),
                **{key: getattr(numbers, key) for key in ("count", "mean", "low", "high")},
                "turns": [
                    {"credit": value, **dict(zip(columns, cells, strict=True)), "text": text}
                    for value, cells, text in self._ranked(name)
                ],
            }
            for name, numbers in self._numbers.items()
        }

    def _ranked(self, name: str) -> list[tuple[float, list[str], str]]:
        """Credit, cells and text of the turns that a method paid most, and of those that it charged most."""
        turns = self._turns[name]
        best = [turn for turn in turns[: -self._keep - 1 : -1] if turn[0] > 0]
        worst = [turn for turn in turns[self._keep - 1 :: -1] if turn[0] < 0]
        return [(value, cells, text) for value, _, cells, text in best + worst]
