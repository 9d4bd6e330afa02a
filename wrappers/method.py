"""The base class of reward methods, and the running statistics that replace a group."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Literal

import numpy as np

from memenvs.core.data import convert
from memenvs.core.episode import Credit, Episode, Turn
from memenvs.credit import all_equal
from memenvs.wrappers.comparison import Comparison
from memenvs.wrappers.scorers import ScoreRequest, TokenScores

Outcome = Literal["keep", "replace", "multiply"]
Score = tuple[float, str]
"""A number and an empty text, or NaN and the reason."""


class RewardMethod(Comparison):
    """Measures a signal at every turn, assigns credit to turns of ended episodes, and compares episodes.

    A method knows nothing about Gymnasium or other methods, and keeps no data of a running episode. A
    subclass is a dataclass whose fields are its settings, all plain data. The decorator
    `memenvs.core.data.checked` checks them against their annotations.

    A learner that uses this method (`grpo --reward NAME`) trains with `advantages`. By default it compares
    the sums of all rewards, with this method's among them. A method whose paper compares in another way
    overrides it, with the attributes of `Comparison`.

    Attributes:
        name: name of its component in `info["rewards"]`.
        group: whether it compares the rollouts of a task. If it gets one episode at a time, it compares with
            earlier ones; its docstring says how.
        immediate: whether signals are measured and paid at their turn; the end of the episode then pays the
            rest of the credits. If False all turns are measured at the end, with one call of the scorer, and
            everything is paid then.
        replaces_outcome: whether its credits contain the environment's outcome, whose component then counts 0
            in the sum.
    """

    name: ClassVar[str]
    group: ClassVar[bool] = False
    immediate: ClassVar[bool] = True

    @property
    def replaces_outcome(self) -> bool:
        """Whether its credits contain the outcome; False by default."""
        return False

    @property
    def continuations(self) -> int:
        """How often the policy plays on from each state, whose value is then the signal; 0 by default.

        `memenvs.rollout.collect.Loop` plays on when a group has ended.
        """
        return 0

    @property
    def needs(self) -> tuple[str, ...]:
        """Entries of `info` that it reads, checked at `reset`, as `"events"` or `"privileged/target"`."""
        return ()

    def requests(self, turn: Turn) -> list[ScoreRequest]:
        """The continuations whose log-probabilities it needs at this turn; none by default."""
        return []

    @property
    def asks(self) -> bool:
        """Whether it asks a scorer for log-probabilities."""
        return type(self).requests is not RewardMethod.requests

    @property
    def has_signal(self) -> bool:
        """Whether it measures anything; a method that does not override `signal` does not."""
        return type(self).signal is not RewardMethod.signal

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        """The raw number of this turn, 0.0 if nothing is measured.

        Args:
            turn: the turn.
            scores: nats (T,) of each of `requests(turn)`.
        """
        return 0.0

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        """The credits of each episode; by default every turn's signal.

        Args:
            episodes: the whole group if `group`, else any ended episodes. In a group some may have an
                `error`: their signals are NaN, they may have no turns, and their credits are not read.
        """
        return [
            [Credit(turn, signal) for turn, signal in enumerate(signals)]
            for signals in self.signals_of(episodes)
        ]

    def signals_of(self, episodes: Sequence[Episode]) -> list[list[float]]:
        """This method's signal (K,) at the turns of each episode; NaN where it is not measured."""
        return [[turn.signals.get(self.name, math.nan) for turn in episode.turns] for episode in episodes]

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments, as plain data."""
        this: Any = self
        return {item.name: getattr(self, item.name) for item in fields(this) if item.init}

    def get_memory(self) -> dict[str, Any]:
        """What it remembers of earlier episodes, as plain data; nothing by default."""
        return {}

    def set_memory(self, memory: dict[str, Any]) -> None:
        """Remember what a memory of `get_memory` holds.

        Raises:
            ValueError: it is not such a memory.
        """


def mean_logprobs(scores: Sequence[TokenScores]) -> list[float]:
    """Mean log p, nats per token, of each continuation; NaN for one without tokens."""
    return [float(np.mean(nats)) if len(nats) else math.nan for nats in scores]


class ScoreMethod(RewardMethod):
    """Pays scores of turns beside the environment's outcome, in its place, or times it.

    Scores are given when an episode has ended. A subclass is a dataclass that has the two attributes as
    fields.

    Attributes:
        outcome: `"keep"` pays scores in addition to the outcome, `"replace"` instead of it, `"multiply"` each
            score times the outcome instead of it (TAMTRL appendix B.2).
        weight: of a score in the reward.
    """

    outcome: Outcome
    weight: float

    immediate = False

    @property
    def replaces_outcome(self) -> bool:
        return self.outcome != "keep"

    def pay(self, episode: Episode, scores: Sequence[Score], first: int = 0) -> list[Credit]:
        """The credits of the scores of turn `first` and the turns after it."""
        weight = self.weight * (episode.outcome if self.outcome == "multiply" else 1.0)
        return [
            Credit(turn, weight * value, reason=reason, from_signal=False)
            for turn, (value, reason) in enumerate(scores, first)
        ]


@dataclass
class RunningStatistics:
    """Mean, spread and extremes of all numbers added so far; for methods without a group to compare with."""

    count: int = 0  # how many numbers were added
    mean: float = 0.0
    squares: float = 0.0  # sum of squared deviations from the mean
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: Iterable[float]) -> None:
        """Add numbers (Welford's update); NaN is left out."""
        for value in values:
            if math.isnan(value):
                continue
            self.count += 1
            step = value - self.mean
            self.mean += step / self.count
            self.squares += step * (value - self.mean)
            self.low, self.high = min(self.low, value), max(self.high, value)

    def normalize(self, value: float, *, ddof: int) -> float:
        """(value - mean) / (std + 1e-6); 0.0 where nothing differs yet."""
        if math.isnan(value) or self.count <= ddof or all_equal([self.low, self.high]):
            return 0.0
        return (value - self.mean) / (math.sqrt(self.squares / (self.count - ddof)) + 1e-6)


@dataclass
class RememberingMethod(RewardMethod):
    """A method that compares a lone episode with the numbers of earlier ones, `_earlier` by their kind."""

    _earlier: dict[str, RunningStatistics] = field(
        default_factory=lambda: defaultdict(RunningStatistics), init=False, repr=False, compare=False
    )

    def get_memory(self) -> dict[str, Any]:
        return {kind: asdict(numbers) for kind, numbers in self._earlier.items()}

    def set_memory(self, memory: dict[str, Any]) -> None:
        earlier = convert(memory, dict[str, RunningStatistics], f"the memory of {self.name}")
        self._earlier = defaultdict(RunningStatistics, earlier)
