"""The verifiable turn rewards of MT-PPO for an agent that searches.

`RewardWrapper(gym.make("MemSearchQA-v0"), [SearchRewards()])`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memenvs.core.data import NonNegative, checked
from memenvs.core.episode import Turn
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import TokenScores


@checked
@dataclass
class SearchRewards(RewardMethod):
    """Reward what each turn of a search did (MT-PPO section 5.2).

        last turn:    1 if the answer is exact and the reply well-formed, 0.2 if it is well-formed, -1 if not
        other turns:  retrieval + format + search
                      retrieval  0.3 if an accepted answer is in the passages that came back
                      format     0.1 if the reply is well-formed, -0.2 if not
                      search     -search_cost * searches so far

    The last turn is well-formed if it is a well-formed answer; a search at the last turn is not.
    Text outside the tags makes a reply ill-formed here, as in Search-R1's code; section 5.2 asks only for
    known tags, once each and in order.

    The first line contains the outcome, so the environment's own component of it counts 0 in the sum and
    stays in `info["metrics"]["outcome"]`. Everything is known at its turn and paid there.

    As in the paper, one search that finds the answer pays `retrieval` as often as it is repeated, up to three
    times more than it costs; with `once=True` a passage pays the first time (docs/exploits.md).

    Args:
        exact: last turn, exact and well-formed.
        answered: last turn, well-formed only.
        malformed: last turn, otherwise.
        retrieval: another turn that found the answer.
        well_formed: another turn in the right form.
        ill_formed: another turn not in it.
        search_cost: lambda_s >= 0; the paper's 0.1 steadied training, 0.3 hurt it.
        once: pay `retrieval` only for a passage that the episode has not shown before.
    """

    exact: float = 1.0
    answered: float = 0.2
    malformed: float = -1.0
    retrieval: float = 0.3
    well_formed: float = 0.1
    ill_formed: float = -0.2
    search_cost: NonNegative = 0.1
    once: bool = False

    name = "search_rewards"
    replaces_outcome = True
    needs = ("events/searches", "metrics/em")

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        return sum(self.parts(turn).values())

    def parts(self, turn: Turn) -> dict[str, float]:
        """The reward of the turn by its parts: `outcome`, or `retrieval`, `format` and `search`."""
        events = turn.info["events"]
        if turn.over:
            if turn.end == "truncated" or not events["well_formed"]:  # only an answer terminates
                return {"outcome": self.malformed}
            return {"outcome": self.exact if turn.info["metrics"]["em"] == 1.0 else self.answered}
        return {
            "retrieval": self.retrieval if events["retrieved_new" if self.once else "retrieved"] else 0.0,
            "format": self.well_formed if events["well_formed"] else self.ill_formed,
            "search": -self.search_cost * events["searches"],
        }
