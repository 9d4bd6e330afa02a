"""How a learner compares the episodes of a group: by outcome, by return, by turn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from memenvs.core.episode import Episode, Floats
from memenvs.credit import Ended, Scale, combine_turns, gdpo, grpo, mt_grpo, mt_rloo, normalize_turns, rloo


@dataclass(frozen=True)
class ComparisonSettings:
    """A learner's settings of a comparison; `Comparison.uses` names those that one reads.

    Attributes:
        estimator: `"grpo"`; `"rloo"`, which compares with the mean of the others; or `"reinforce"`, which
            compares with nothing: the reward is the advantage (A = R, MT-GRPO eq. 6).
        scale: `"std"`, or `"none"` to leave the standard deviation out.
        alpha: discount per turn, see `mt_grpo`.
        ended: what an episode that is over counts as, see `mt_grpo`.
        normalize: `"sum"`, or `"components"`: each component of the reward is normalised by itself (GDPO, see
            `memenvs.credit.gdpo`).
        component_weights: of components that are normalised by themselves; 1 by default.
    """

    estimator: Literal["grpo", "rloo", "reinforce"] = "grpo"
    scale: Scale = "std"
    alpha: float = 1.0
    ended: Ended = "zero"
    normalize: Literal["sum", "components"] = "sum"
    component_weights: Mapping[str, float] = field(default_factory=dict)

    def check(self) -> None:
        """Raise a one-line `ValueError` where settings contradict each other."""
        if self.normalize == "components" and (self.estimator, self.scale) != ("grpo", "std"):
            raise ValueError(
                "normalize components uses each component's mean and std: leave estimator grpo and scale "
                f"std, got {self.estimator} and {self.scale}"
            )
        if self.component_weights and self.normalize == "sum":
            raise ValueError("component_weights need normalize=components; set it, or leave them out")

    def compare(self, values: Sequence[float], groups: Sequence[int]) -> Floats:
        """Advantages (G,) of one number for each episode."""
        if self.estimator == "reinforce":
            return np.nan_to_num(np.asarray(values, np.float64))
        return rloo(values, groups) if self.estimator == "rloo" else grpo(values, groups, scale=self.scale)


class Comparison:
    """Compares the episodes of each group by the sum of all their rewards (GRPO-MR); base of the others.

    A `RewardMethod` is a comparison too: a learner trains by its `advantages`.

    Attributes:
        uses: the names of the `ComparisonSettings` that it reads.
        adds_advantages: whether credits that are advantages already (`Credit.advantage`) are added to it.
        needs_both_answers: whether only groups with right and wrong answers are trained on (TAMTRL eq. 3).
            The advantages of a group whose outcomes are all equal are then 0, whatever its turns earned.
    """

    uses: ClassVar[tuple[str, ...]] = ("estimator", "scale", "normalize", "component_weights")
    adds_advantages: ClassVar[bool] = True
    needs_both_answers: ClassVar[bool] = False

    def advantages(self, episodes: Sequence[Episode], how: ComparisonSettings) -> list[Floats]:
        """Advantages (K,) of each episode's turns.

        Args:
            episodes: of any number of groups, each complete.
            how: the learner's settings.
        """
        groups = [episode.group for episode in episodes]
        if how.normalize == "components":
            return same_at_every_turn(
                episodes, gdpo(components_of(episodes), groups, weights=how.component_weights)
            )
        returns = [
            sum(episode.turn_rewards) - sum(episode.turn_advantages) + episode.length_penalty
            for episode in episodes
        ]
        return same_at_every_turn(episodes, how.compare(returns, groups))


class OutcomeComparison(Comparison):
    """Compares the outcomes alone (GRPO-OR)."""

    uses = ("estimator", "scale")
    adds_advantages = False

    def advantages(self, episodes: Sequence[Episode], how: ComparisonSettings) -> list[Floats]:
        groups = [episode.group for episode in episodes]
        return same_at_every_turn(episodes, how.compare(results_of(episodes), groups))


class TurnComparison(Comparison):
    """Compares each turn with those of its number, and adds later turns and the result (MT-PPO eq. 12).

    The result is the outcome and everything else that the last turn earned, so that nothing is lost. A turn
    reward that could not be measured (NaN) is compared with none.
    """

    uses = ("estimator", "scale", "alpha", "ended")

    def advantages(self, episodes: Sequence[Episode], how: ComparisonSettings) -> list[Floats]:
        groups = [episode.group for episode in episodes]
        turns = [
            _rewards_of_turns(episode, np.subtract(episode.turn_rewards, episode.outcome_rewards))
            for episode in episodes
        ]
        last = [float(np.nan_to_num(earned[-1])) for earned in turns]
        results = np.add(results_of(episodes), last)
        if how.estimator == "reinforce":
            results = np.nan_to_num(results)
            return [combine_turns(*earned, how.alpha) for earned in zip(turns, results, strict=True)]
        if how.estimator == "rloo":
            return mt_rloo(turns, results, alpha=how.alpha, groups=groups, ended=how.ended)
        return mt_grpo(turns, results, alpha=how.alpha, groups=groups, ended=how.ended, scale=how.scale)


class PooledTurnComparison(Comparison):
    """Compares each turn with all turns of its group (TAMTRL eq. 7).

    Only groups with right and wrong answers are trained on (eq. 3); see `Comparison.needs_both_answers`. A
    turn's reward is all that it earned, the outcome at the last one. DAPO's length penalty is added to each
    turn, as to TAMTRL's R_t, so that a method that pays every turn a share of the outcome
    (`Judge(outcome="multiply")`) is compared as TAMTRL's LLM-judge and PRM are.
    """

    uses = ()
    needs_both_answers = True

    def advantages(self, episodes: Sequence[Episode], how: ComparisonSettings) -> list[Floats]:
        earned = [
            _rewards_of_turns(episode, episode.turn_rewards) + episode.length_penalty for episode in episodes
        ]
        return normalize_turns(earned, tasks=[episode.group for episode in episodes])


COMPARISONS: dict[str, Comparison] = {
    "outcome": OutcomeComparison(),
    "merged": Comparison(),
    "turn": TurnComparison(),
    "turn-pool": PooledTurnComparison(),
}
"""The comparisons that belong to no reward method."""


def same_at_every_turn(episodes: Sequence[Episode], values: Floats) -> list[Floats]:
    """(K,) for each episode: the episode's own number at each of its turns."""
    return [np.full(len(episode.turns), value) for episode, value in zip(episodes, values, strict=True)]


def results_of(episodes: Sequence[Episode]) -> list[float]:
    """(G,) the outcome reward of each episode, with its length penalty.

    NaN where reward methods replace the outcome and none could measure the last turn, as a judge that was not
    reached: the episode is then compared with none.
    """
    results = []
    for episode in episodes:
        last = [credit for credits in list(episode.credits.values()) for credit in credits]
        last = [credit for credit in last if credit.turn == len(episode.turns) - 1 and not credit.advantage]
        unknown = episode.replaces_outcome and bool(last) and not any(credit.known for credit in last)
        results.append(math.nan if unknown else sum(episode.outcome_rewards) + episode.length_penalty)
    return results


def components_of(episodes: Sequence[Episode]) -> dict[str, Floats]:
    """(G,) of each component of the reward by name: its sum over an episode's turns, NaN where there is none.

    Credits that are marked as advantages are left out; a length penalty is a separate component.
    """
    names = list(dict.fromkeys(name for episode in episodes for name in episode.rewards))
    sums = {name: np.array([episode.rewards.get(name, math.nan) for episode in episodes]) for name in names}
    for number, episode in enumerate(episodes):
        for name, credits in episode.credits.items():
            marked = [credit.value for credit in credits if credit.advantage and credit.known]
            if marked:
                sums[name][number] -= math.fsum(marked)
    sums["length_penalty"] = np.array([episode.length_penalty for episode in episodes], np.float64)
    return sums


def _rewards_of_turns(episode: Episode, rewards: Sequence[float] | Floats) -> Floats:
    """(K,) rewards of turns without credits that are advantages; NaN where a method could not measure one."""
    turns = np.subtract(rewards, episode.turn_advantages)
    for signals in episode.signals.values():
        turns[np.isnan(signals)] = np.nan
    for credits in episode.credits.values():
        unknown = [credit.turn for credit in credits if not credit.advantage and np.isnan(credit.value)]
        turns[unknown] = np.nan
    return turns
