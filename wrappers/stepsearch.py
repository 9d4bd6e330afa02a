"""StepSearch: a search earns what it adds to the evidence found so far, less the share it found before.

`RewardWrapper(gym.make("MemSearchQA-v0"), [StepSearch()])`.
"""

from __future__ import annotations

import functools
import math
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from memenvs.core.data import NonNegative, checked
from memenvs.core.episode import Credit, Episode, Turn
from memenvs.credit import novelty, redundancy, search_gains
from memenvs.tasks.metrics import normalize_answer
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import TokenScores

NO_EVIDENCE = "the task names no evidence to compare passages with"
_WORD = re.compile(r"\w\w+")


@checked
@dataclass
class StepSearch(RewardMethod):
    """Reward what each search adds to the evidence found, less its redundancy (StepSearch).

        R_t = gain * G_t - redundancy * P_t
        G_t = mean_i max(0, c_i^t - best c_i of earlier turns)
        P_t = share of the passages of turn t that an earlier turn has brought

    c_i^t is the largest TF-IDF cosine of a passage of turn t with evidence document i (`matches`). The signal
    is mean_i c_i^t, by itself; R_t depends on the turns before and is paid at the end, to its own turn. The
    environment's outcome stays beside it; the paper's is F1, which is `metric="f1"` of the environment.

    A task whose set names no evidence, as questions without documents, has credits of NaN, which pay nothing,
    and a warning says so. `gains="new"` needs no evidence: G_t is then the share of the passages of turn t
    that no earlier turn has brought, 0 where none came back. That form is ours, not the paper's.
    Left out of the paper's rewards: the overlap of queries with reference queries of sub-questions, which
    our task sets do not have, and the -1 for a last turn without an answer.

    Source: arXiv 2505.15107 (step rewards), in the form of its public code (`qa_step.py`).

    Args:
        gain: weight of G_t.
        redundancy: weight of P_t, 0 or more.
        gains: what G_t measures: `"evidence"` as above, or `"new"`.
    """

    gain: float = 1.0
    redundancy: NonNegative = 1.0
    gains: Literal["evidence", "new"] = "evidence"

    name = "stepsearch"
    immediate = False

    @property
    def needs(self) -> tuple[str, ...]:
        return ("privileged/passages", *(("privileged/evidence",) if self.gains == "evidence" else ()))

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        """mean_i c_i^t, NaN without evidence; of new passages, how many passages came back."""
        if self.gains == "new":
            return float(len(turn.info["privileged"]["passages"]))
        matched = _matches_of(turn)
        return float(np.mean(matched)) if matched else math.nan

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        return [self._credits(episode.turns) for episode in episodes]

    def _credits(self, turns: Sequence[Turn]) -> list[Credit]:
        passages = [turn.info["privileged"]["passages"] for turn in turns]
        is_new = self.gains == "new"
        matched = [] if is_new else [_matches_of(turn) for turn in turns]
        if not all(matched):
            warnings.warn(
                "StepSearch pays nothing where a task names no evidence, as questions without documents do; "
                "train on tasks with evidence, as of `memenvs build musique` or `hotpotqa`",
                stacklevel=2,
            )
            return [Credit(k, math.nan, reason=NO_EVIDENCE) for k in range(len(turns))]
        gains = novelty(passages) if is_new else search_gains(matched)
        values = (self.gain * gains - self.redundancy * redundancy(passages)).tolist()
        return [Credit(k, value) for k, value in enumerate(values)]


@functools.lru_cache(maxsize=20_000)  # the searches of a group bring the same passages again and again
def matches(passage: str, evidence: tuple[str, ...]) -> list[float]:
    """(E,) TF-IDF cosine of a passage with each evidence document, 0 to 1.

        weight of word w = count(w) (1 + ln((1 + D) / (1 + documents with w)))

    over the D = E + 1 texts, of words with two characters or more in the form of answers (lower case, without
    punctuation and articles): the weights of scikit-learn's TfidfVectorizer, which StepSearch uses.

    >>> [round(c, 3) for c in matches("River Ano", ("River Ano", "Town of Bel", "River Cor"))]
    [1.0, 0.0, 0.339]
    """
    counts = [Counter(_WORD.findall(normalize_answer(text))) for text in (passage, *evidence)]
    documents = Counter(word for count in counts for word in count)
    rarity = {word: 1 + math.log((1 + len(counts)) / (1 + held)) for word, held in documents.items()}
    weights = [{word: times * rarity[word] for word, times in count.items()} for count in counts]
    lengths = [math.sqrt(sum(value**2 for value in weight.values())) for weight in weights]
    (of_passage, *of_evidence), (length, *norms) = weights, lengths
    return [
        min(
            1.0,
            sum(value * other.get(word, 0.0) for word, value in of_passage.items()) / (length * norm or 1.0),
        )
        for other, norm in zip(of_evidence, norms, strict=True)
    ]


def _matches_of(turn: Turn) -> list[float]:
    """(E,) c_i^t, zeros where the turn brought no passage; empty without evidence."""
    privileged = turn.info["privileged"]
    evidence = tuple(privileged["evidence"])
    best = [0.0] * len(evidence)
    for passage in privileged["passages"]:
        best = list(map(max, best, matches(passage, evidence)))
    return best
