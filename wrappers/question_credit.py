"""Credit by question, where several questions are answered one by one from one memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memenvs.core.data import checked
from memenvs.core.episode import Credit, Episode, Turn
from memenvs.credit import group_normalize
from memenvs.wrappers.method import RememberingMethod
from memenvs.wrappers.scorers import TokenScores


@checked
@dataclass
class QuestionCredit(RememberingMethod):
    """Credit each answer for its own question, and the memory for all of them.

        A_j = (r_j - mean r_j) / (std r_j + eps)    over the group, question by question
        an answer gets the A_j of its question, every turn before the answers the mean of all A_j

    r_j is what the environment paid for the answer to question j, which is the signal of its turn. No answer
    changes the memory, so none is credited for another question. This is GRPO's comparison, a question at a
    time, and ours: papers that read once and ask many questions (MemoryAgentBench, Mem-alpha) reward their
    mean. Credits are advantages and replace the outcome. A question that a limit left unanswered
    earned 0.

    It needs an environment that asks questions one by one, such as `ChunkQAEnv(ask="each")`. Without a group,
    a question is compared with all questions so far.
    """

    name = "question_credit"
    group = True
    immediate = False
    replaces_outcome = True
    needs = ("privileged/answered",)

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        return float(turn.info["rewards"]["outcome"]) if _answers(turn) else 0.0

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        answered = [[k for k, turn in enumerate(episode.turns) if _answers(turn)] for episode in episodes]
        most = max(map(len, answered))
        earned = np.zeros((len(episodes), most))
        for row, episode, turns in zip(earned, episodes, answered, strict=True):
            row[: len(turns)] = [episode.signals[self.name][k] for k in turns]
            row[:] = np.nan if episode.error else row
        if len(episodes) == 1:
            earlier = self._earlier["answer"]
            earlier.add(earned[0])
            normal = np.array([[earlier.normalize(r, ddof=1) for r in earned[0]]])
        else:
            columns = [group_normalize(column, eps=1e-6) for column in earned.T]
            normal = np.array(columns).T if columns else earned
        assigned = []
        for episode, turns, values in zip(episodes, answered, normal, strict=True):
            of_memory = float(values.mean()) if most else 0.0
            credit = [of_memory] * len(episode.turns)
            for k, value in zip(turns, values.tolist(), strict=False):
                credit[k] = value
            assigned.append([Credit(k, value, advantage=True) for k, value in enumerate(credit)])
        return assigned


def _answers(turn: Turn) -> bool:
    return bool(turn.info["privileged"]["answered"])
