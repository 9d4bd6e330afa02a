"""OTC: a right answer is worth less, the more calls of a tool it took beyond the fewest that were enough.

`memenvs.collect("MemSearchQA-v0", policy, range(8), n=4, methods=["OTC"])`, or `--reward otc` of a learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memenvs.core.data import Positive, checked
from memenvs.core.episode import Credit, Episode, Turn
from memenvs.credit import tool_efficiency
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import TokenScores

CALLS = ("searched", "called")
"""Events of a turn in which a tool was called."""


@checked
@dataclass
class OTC(RewardMethod):
    """Multiply the outcome by how near the number of calls is to the fewest that suffice (OTC).

        R      = r_tool * outcome
        r_tool = sin(m pi / (m + n))      n > 0: OTC-GRPO, in the form it takes with f = 2nm / (m + n)
        r_tool = cos(m pi / (2m + c))     n = 0, and alone: OTC-PPO

    m counts the turns of an episode that called the tool: whose event `searched` (`SearchQAEnv`) or `called`
    (`ToolQAEnv`) is not 0. n is the smallest m among the successes of the group, 0 without a success. The
    paper lowers n over all steps of training; a group remembers nothing here.

    The signal is 1.0 at a turn that called and 0.0 elsewhere. R is a credit to the last turn and takes the
    place of the environment's outcome, whose component counts 0 and stays in `info["metrics"]["outcome"]`. A
    product, so that a wrong answer earns nothing by saving calls. An episode without a group has no n to
    compare with.

    Source: arXiv 2504.14870; of the formulas see `memenvs.credit.tool_efficiency`.

    Args:
        smooth: c > 0; the larger, the less each call costs where n is 0. The paper's value is
            not known to us.
    """

    smooth: Positive = 1.0

    name = "otc"
    group = True
    immediate = False
    replaces_outcome = True
    needs = ("events", "metrics/success")

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        return float(any(turn.info["events"].get(name) for name in CALLS))

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        calls = [float(sum(self.signal(turn, ()) for turn in episode.turns)) for episode in episodes]
        enough = [
            count
            for count, episode in zip(calls, episodes, strict=True)
            if episode.success and not episode.error
        ]
        fewest = min(enough, default=0.0) if len(episodes) > 1 else 0.0
        factors = tool_efficiency(calls, fewest, smooth=self.smooth).tolist()
        return [
            [Credit(len(episode.turns) - 1, factor * episode.outcome, from_signal=False)]
            for episode, factor in zip(episodes, factors, strict=True)
        ]
