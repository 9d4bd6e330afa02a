"""TRACE: a turn earns how far it and the next turns close the gap to the right answer.

`RewardWrapper(env, [TRACE()], scorer="hf:MODEL")`, `memenvs train grpo --reward trace`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memenvs.core.data import Count, NonNegative, Positive, checked
from memenvs.core.episode import Credit, Episode, Floats
from memenvs.credit import mean_ahead, trace
from memenvs.wrappers.comparison import ComparisonSettings, results_of
from memenvs.wrappers.igpo import GainMethod
from memenvs.wrappers.infomem import Target


@checked
@dataclass
class TRACE(GainMethod):
    """Reward each turn's temporal difference of a log-ratio value of the answer (TRACE).

        d_t = epsilon - mean log p(a given q, o_<=t),   V_t = log(d_0 / d_t),   g_t = V_t - V_(t-1)
        R_t = weight * D_t,   D_t the discounted mean of g_t and the gains after it, `horizon` in all

    o_<=t are the turns so far, as for `IGPO`. The signal of a turn is g_t; gains add up to the value at the
    end, so turns that repeat each other gain nothing. R_t is paid when the episode has ended, to every turn
    but the last; the outcome stays beside it. The paper's scorer is a frozen copy of the model before
    training.

    `grpo --reward trace` takes the paper's advantage (`memenvs.credit.trace`), which adds the outcome's.

    Source: arXiv 2607.13988, algorithm 1, which we read in two independent implementations and summaries.
    Left out: a rule of the paper's experiments for tokens of the final answer, which these leave open.

    Args:
        epsilon: keeps d_t above 0 where the answer is certain, nats a token.
        horizon: number of gains in D_t.
        gamma: discount per turn.
        weight: of D_t beside the outcome.
        terminal: in the paper's advantage, weight of the outcome in turns whose D_t reaches the last gain.
        target: a as `"bare"` answer, `"inside"` or `"wrapped"`, as of `InfoMem`.
    """

    epsilon: Positive = 0.1
    horizon: Count = 3
    gamma: NonNegative = 0.8
    weight: float = 0.2
    terminal: float = 2.0
    target: Target = "bare"

    name = "trace"
    immediate = False
    uses = ()
    adds_advantages = False

    def gain(self, after: float, before: float) -> float:
        """g_t."""
        return math.log(self.epsilon - before) - math.log(self.epsilon - after)

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        return [
            [Credit(k, self.weight * value) for k, value in enumerate(self._ahead(signals))]
            for signals in self.signals_of(episodes)
        ]

    def _ahead(self, signals: Sequence[float]) -> list[float]:
        """D_t, 0 at the last turn."""
        ahead = mean_ahead(signals[:-1], horizon=self.horizon, gamma=self.gamma).tolist()
        return [*ahead, *signals[-1:]]

    def advantages(self, episodes: Sequence[Episode], how: ComparisonSettings) -> list[Floats]:
        """The paper's: the outcome's, and at every turn but the last what it adds."""
        return trace(
            self.signals_of(episodes),
            results_of(episodes),
            horizon=self.horizon,
            gamma=self.gamma,
            weight=self.weight,
            terminal=self.terminal,
            groups=[episode.group for episode in episodes],
        )
