"""The verifiable rewards of MT-GRPO for one tool call and an answer.

`RewardWrapper(gym.make("MemToolQA-v0"), [ToolRewards()])`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from memenvs.core.data import checked
from memenvs.core.env import MAX_REPLY_CHARS
from memenvs.core.episode import Credit, Episode, Turn
from memenvs.core.spaces import clean_text
from memenvs.envs.tool_qa import accepted_texts, form_score, last_answer, tag_score
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import TokenScores


@checked
@dataclass
class ToolRewards(RewardMethod):
    """Reward the call at its turn, and answer and form at the end (MT-PPO appendix G.2: six rewards).

        turn:     execution  0.2 * (calls that ran without an error / calls)
                  found      0.5 if an accepted answer is in the first result
        outcome:  present    0.5 if the answer contains an accepted one
                  exact      1.0 if it is one
                  form       0.2 * mean over replies of `form_score`
                  tags       0.2 * mean over replies of `tag_score`

    What a call did is read from the environment's events, not from its texts: an error text that repeats the
    policy's own words is not a result. Accepted answers are compared in lower case, as the code they are from
    does. As there, every reply's form is worth at least 0.2 (a check of spacing that is always true), so that
    0.04 is the least. The outcome is contained, so the environment's own component of it counts 0 in the sum
    and stays in `info["metrics"]["outcome"]`.

    The turn rewards are paid at their turn, what depends on all replies at the end.

    Args:
        execution: a call that ran.
        found: an accepted answer in the first result.
        present: an accepted answer inside the answer.
        exact: the answer itself.
        form: the XML format.
        tags: every tag opened and closed once.
    """

    execution: float = 0.2
    found: float = 0.5
    present: float = 0.5
    exact: float = 1.0
    form: float = 0.2
    tags: float = 0.2

    name = "tool_rewards"
    replaces_outcome = True
    needs = ("events/called", "events/ran", "events/retrieved", "privileged/answers")

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        """What this turn's call earned by itself."""
        events = turn.info["events"]
        return self.execution * events["ran"] + self.found * events["retrieved"]

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        return [self._credits(episode.turns) for episode in episodes]

    def _credits(self, turns: Sequence[Turn]) -> list[Credit]:
        events = [turn.info["events"] for turn in turns]
        calls = [k for k, happened in enumerate(events) if happened["called"]]
        credits = [Credit(k, self.execution * events[k]["ran"] / len(calls)) for k in calls]
        credits += [Credit(k, self.found * events[k]["retrieved"]) for k in calls[:1]]
        # As the environment read them: without the summaries and the records of a wrapper's memory.
        played = [turn.info["privileged"].get("played", turn.action) for turn in turns]
        replies = [clean_text(reply, MAX_REPLY_CHARS) for reply in played if reply is not None]
        accepted = accepted_texts(turns[-1].info["privileged"]["answers"])
        outcome = sum(self.result_parts(replies, accepted).values())
        return [*credits, Credit(len(turns) - 1, outcome)]

    def result_parts(self, replies: Sequence[str], accepted: Sequence[str]) -> dict[str, float]:
        """The four rewards of a whole episode that depend on its replies; accepted answers in lower case."""
        answer = last_answer(replies)
        return {
            "present": self.present * (answer is not None and any(text in answer for text in accepted)),
            "exact": self.exact * (answer in accepted),
            "form": self.form * fmean(map(form_score, replies)),
            "tags": self.tags * max(0.0, fmean(map(tag_score, replies))),
        }
