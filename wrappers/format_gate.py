"""The outcome, if an episode has the right format: the rewards of ReSearch and others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memenvs.core.data import checked
from memenvs.core.episode import Turn
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import TokenScores


@checked
@dataclass
class FormatGate(RewardMethod):
    """Pay the outcome at the last turn if the episode has the right format.

        R = improper   where the environment's metric `format` is not 1
            wrong      where the outcome is 0; with `partial=False`, where it is below 1
            outcome    otherwise

    DeepResearcher (Zheng et al. 2025): `improper` -1, over `form="deep_researcher", metric="set_f1"`.
    ReSearch (Chen et al. 2025): `improper` 0, `wrong` 0.1, over `form="research", metric="f1"`; an F1 below
    0.1 is paid as it is, as in its code. MemPO's trajectory reward (section 4.1), for its baselines that are
    trained by GRPO: `improper` 0 and `partial=False`. R replaces the environment's outcome, whose
    component counts 0 and stays in `info["metrics"]["outcome"]`.

    Args:
        improper: reward of an episode in a bad format, or without an answer.
        wrong: reward of an episode in the right format whose outcome is 0.
        partial: pay an outcome between 0 and 1, such as one of two questions right, as it is.
    """

    improper: float = -1.0
    wrong: float = 0.0
    partial: bool = True

    name = "format_gate"
    replaces_outcome = True
    needs = ("metrics/format",)

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        if not turn.over:
            return 0.0
        if turn.info["metrics"]["format"] != 1.0:
            return self.improper
        outcome = float(turn.info["rewards"].get("outcome", 0.0))
        return (outcome if self.partial or outcome == 1.0 else 0.0) or self.wrong
