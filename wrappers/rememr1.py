"""ReMemR1: a turn earns the words of the answer that it adds to the memory before.

`RewardWrapper(gym.make("MemChunkQA-v0"), [ReMemR1()])`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memenvs.core.data import Share, checked
from memenvs.core.episode import Episode, Floats, Turn
from memenvs.credit import rememr1
from memenvs.tasks.mentions import spelling
from memenvs.wrappers.comparison import ComparisonSettings, results_of
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import TokenScores


@checked
@dataclass
class ReMemR1(RewardMethod):
    """Reward what each turn adds to the known words of the answer (ReMemR1's state reward).

        s_k = recall(m_k and c_k) - recall(m_{k-1} and c_{k-1})    0 at the last turn, which answers
        m_k the memory, c_k the earlier memory that the reply called back
        recall(m) = mean over objectives of the largest share of an accepted answer's words that m holds

    c_k is empty except with `memory_mode="callback"`. Made for environments that keep a memory (`ChunkQAEnv`,
    `SearchQAEnv(memory_mode="rewrite")`); where the context is appended, the last reply counts as the memory.

    The signals are paid at their turns, beside the outcome. `grpo --reward rememr1` takes the paper's
    advantage instead (`memenvs.credit.rememr1`): alpha of the outcome's and 1 - alpha of the state reward's,
    which is compared with the rollouts at the same turn. The authors divide neither by its std:
    `--reward-args scale=none`.

    The signals of an episode add up to what its last reading turn holds less what the first began with, at
    most 1, whatever it held, dropped and called back in between. The paper pays callbacks differently:

        s_k = recall(m_k) - recall(m_{k-1}) + max(0, recall(x_k and c_k) - recall(x_k))    x_k the prompt

    and does not take that back when the callback is gone, so holding the answer once and calling it back
    every other turn earns 1 each time (docs/exploits.md). `bounded=False` is the paper's form.

    Other differences from the paper's code: words are whole and compared without case, accents, punctuation
    and articles, where the code looks for the exact characters anywhere in the text; the best accepted
    answer counts, where the code takes the mean over all of them; and a memory in its tags does not earn 1,
    since a whole reply is the memory here. Source: arXiv 2509.23040, by its public code (`metric_utils.py`,
    `ray_trainer.py`).

    Args:
        alpha: share of the outcome in the paper's advantage, 0 to 1.
        bounded: False pays callbacks as the paper does, without a bound.
    """

    alpha: Share = 0.8
    bounded: bool = True

    name = "rememr1"
    uses = ("scale",)
    adds_advantages = False
    needs = ("privileged/memory", "privileged/answers")

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        if turn.over:
            return 0.0
        before, after = turn.before["privileged"], turn.info["privileged"]
        answers = before["answers"]  # of all questions, until they are asked one by one
        if self.bounded:
            return recall(_at_hand(after), answers) - recall(_at_hand(before), answers)
        prompt = str(turn.observation)
        callback = recall(f"{prompt}\n{after.get('recalled', '')}", answers) - recall(prompt, answers)
        return recall(after["memory"], answers) - recall(before["memory"], answers) + callback

    def advantages(self, episodes: Sequence[Episode], how: ComparisonSettings) -> list[Floats]:
        """The paper's: `alpha` of the outcome's advantage and the rest of the state reward's at that turn."""
        groups = [episode.group for episode in episodes]
        return rememr1(
            self.signals_of(episodes), results_of(episodes), alpha=self.alpha, groups=groups, scale=how.scale
        )


def _at_hand(privileged: Mapping[str, Any]) -> str:
    """The memory and what was called back beside it."""
    return f"{privileged['memory']}\n{privileged.get('recalled', '')}"


def recall(text: str, answers: Sequence[Sequence[str]]) -> float:
    """The share of the answer's words that a text holds, 0 to 1: a mean over objectives.

    Of the accepted answers of an objective the one counts whose words the text holds most of.

    >>> recall("Rain falls on Bel.", [["the town of Bel", "Bel"], ["snow"]])
    0.5
    """
    share = spelling(text).share
    best = [max(map(share, objective), default=0.0) for objective in answers]
    return sum(best) / len(best) if best else 0.0
