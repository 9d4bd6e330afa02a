"""Repeated calls: a turn is charged for the calls of tools that the episode has made before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memenvs.core.data import NonNegative, checked
from memenvs.core.episode import Turn
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import TokenScores


@checked
@dataclass
class RepeatedCalls(RewardMethod):
    """Charge a turn for calls of tools that repeat an earlier call, with the same arguments.

        R_t = -cost * (calls of turn t that an earlier turn has made / calls of turn t)

    It needs no model, no answer and no group, so it runs on any log with calls. It is our own rule, not a
    paper's: a call may be repeated for a good reason, as a test that is run again.

    Args:
        cost: reward that a turn of nothing but repeated calls loses.
    """

    cost: NonNegative = 1.0

    name = "repeated_calls"
    needs = ("events/repeated",)

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        return 0.0 - self.cost * float(turn.info["events"]["repeated"])
