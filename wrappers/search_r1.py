"""Search-R1's merged reward: answer, form and retrieval in one number at the end of a search.

`RewardWrapper(gym.make("MemSearchQA-v0"), [SearchR1()])`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memenvs.core.data import checked
from memenvs.core.episode import Turn
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import TokenScores


@checked
@dataclass
class SearchR1(RewardMethod):
    """Pay the answer, the format and the retrieval of a whole search at its last turn (Jin et al. 2025a).

        R = 1                        right answer, right format
            1 - structure            right answer, bad format
            structure + retrieval    wrong answer, right format, and a search found an accepted answer
            structure                wrong answer, right format
            answered                 wrong answer, bad format
            0                        no answer

    This is the merged reward of PPO-MR and GRPO-MR in MT-PPO's Table 2. It replaces the environment's
    outcome, which counts 0 in the sum and stays in `info["metrics"]["outcome"]`.

    Source: `qa_em_format.py` of Search-R1's public code, whose comments give the defaults. Its training
    scripts set `retrieval` to 0. Three things differ from that code:

    - The environment's metrics decide. `format` also rejects a reply with tags of other agents inside, and
      `retrieved` looks for whole words.
    - Only an answer that ends the episode counts. The code takes the last `<answer>` of prompt and episode
      together, so without an answer it grades the example in its prompt and pays `answered`.
    - The code pays `structure` to an episode in the right format without an answer, which cannot occur.

    Args:
        structure: lambda_f, for the format.
        answered: for a wrong answer in a bad format.
        retrieval: lambda_r, for an accepted answer in any search result.
    """

    structure: float = 0.2
    answered: float = 0.1
    retrieval: float = 0.1

    name = "search_r1"
    replaces_outcome = True
    needs = ("metrics/em", "metrics/format", "metrics/retrieved")

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        if turn.end != "terminated":  # only an answer terminates
            return 0.0
        metrics = turn.info["metrics"]
        formed = metrics["format"] == 1.0
        if metrics["em"] == 1.0:
            return 1.0 if formed else 1.0 - self.structure
        if formed:
            return self.structure + (self.retrieval if metrics["retrieved"] else 0.0)
        return self.answered
