"""Monte-Carlo values of states: a turn earns what it adds to the success of playing on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memenvs.core.data import Count, checked
from memenvs.core.episode import Credit, Episode, Floats, Turn
from memenvs.wrappers.comparison import ComparisonSettings, same_at_every_turn
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import TokenScores


@checked
@dataclass
class Continuations(RewardMethod):
    """Give each turn the value after it less the value before it, by playing on from every state (VinePPO).

        A_k = r_k + V(s_{k+1}) - V(s_k)      V(s) = mean of what n continuations from s earn,   V(end) = 0

    When a group has ended, the policy plays on n times from the state of each of its turns. Turns in equal
    states share their continuations: turns of one group whose number, observation and `privileged/state`, if
    there is one, are equal. r are the environment's rewards. The signal of a turn is V(s_k), and A_k is its
    credit, marked as an advantage: `grpo --reward continuations` trains on it alone. Continuations are not
    trained on. The credits of an episode sum to its return less V of its start.

    Cost: n (K + 1) / 2 times the replies of an episode of K turns that shares no state. The log says how many
    the first group needs before they are played.

    What an environment draws by itself is drawn as in the episode, since a state includes its generator. A
    continuation is played in a copy of the environment, which is not closed, as it may share what `close`
    closes; a `TextEnv` copies what `changing` names and shares the rest.
    The policy must sample, since a deterministic one has credits of 0. A function that keeps notes of its own
    is not set back to the state; a scripted policy is made afresh. A `RewardWrapper` has no policy, so it
    refuses this method.

    Source: arXiv 2410.01679, of which we read the abstract and summaries. It values the steps of a single
    reply; here the turns of an episode are valued.

    Args:
        n: continuations of each state.
    """

    n: Count = 8

    name = "continuations"
    immediate = False
    uses = ()

    @property
    def continuations(self) -> int:
        return self.n

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        """NaN: the value is there already wherever the policy has played on."""
        return math.nan

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        credits = []
        for episode, values in zip(episodes, self.signals_of(episodes), strict=True):
            rewards = [math.fsum(turn.components.values()) for turn in episode.turns]
            changes = np.add(rewards, np.diff([*values, 0.0]))
            credits.append([Credit(k, change, advantage=True) for k, change in enumerate(changes.tolist())])
        return credits

    def advantages(self, episodes: Sequence[Episode], how: ComparisonSettings) -> list[Floats]:
        """Zeros, to which a learner adds the credits."""
        return same_at_every_turn(episodes, np.zeros(len(episodes)))
