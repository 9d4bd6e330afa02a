"""What a rollout leaves behind: episodes, and the sequences of token ids that a model is trained on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from memenvs.models.policy import Ids, Reply
from memenvs.wrappers import Episode as Record

Floats = NDArray[np.float64]


@dataclass
class Sample:
    """One training sequence: what a model read and what it wrote, as it was sampled.

    Attributes:
        ids: (T,) tokens.
        written: (T,) bool, the tokens that the policy wrote.
        logprobs: (T,) nats of the written tokens when they were sampled; 0 elsewhere.
        turns: (T,) number of the turn that wrote a token; -1 elsewhere.
        values: (N,) a critic's values of the written tokens, if there is one.
        reference: (N,) nats of the written tokens under a reference model, if there is one.
    """

    ids: Ids
    written: NDArray[np.bool_]
    logprobs: Floats
    turns: NDArray[np.int64]
    values: Floats | None = None
    reference: Floats | None = None

    @classmethod
    def prompt(cls, ids: Ids) -> Sample:
        """A sequence of which nothing is written yet."""
        none = np.zeros(len(ids), np.bool_)
        return cls(ids, none, np.zeros(len(ids)), np.full(len(ids), -1, np.int64))

    def trimmed(self) -> Sample:
        """This sequence to its last written token: what came back behind it teaches nothing."""
        end = int(np.flatnonzero(self.written)[-1]) + 1
        return Sample(self.ids[:end], self.written[:end], self.logprobs[:end], self.turns[:end])

    def then(self, ids: Ids, logprobs: Floats | None = None, turn: int = -1) -> Sample:
        """This sequence and what follows it: a reply with its log-probabilities, or what came back."""
        wrote = logprobs is not None
        return Sample(
            np.concatenate([self.ids, ids]),
            np.concatenate([self.written, np.full(len(ids), wrote)]),
            np.concatenate([self.logprobs, logprobs if logprobs is not None else np.zeros(len(ids))]),
            np.concatenate([self.turns, np.full(len(ids), turn if wrote else -1, np.int64)]),
        )


@dataclass
class Episode:
    """An episode as the policy played it.

    Attributes:
        group: name of its group, the seed of the task that its members played.
        task: the task's id.
        samples: its training sequences in order: one for an episode whose prompts grow (`"append"`), one a
            turn where every prompt is fresh (`"rewrite"`). Each holds a written token.
        replies: K replies as they were sampled; of a turn whose prompt did not fit the window an empty one.
        turn_rewards: (K,), the reward of every turn, known now.
        outcome: what the environment paid for the result, whatever a method has made of it since.
        outcomes: (K,) the part of `turn_rewards` that is the outcome reward R^O. Where a method has spent
            the environment's, it is that method's reward of the last turn.
        charge: what a learner adds to the result, such as a penalty of its length.
        metrics: the environment's.
        rewards: of each component of the reward, its sum over the turns; NaN where it never was a number.
        signals: of each reward method, the mean of what it measured, over the turns that it had scored (over
            all, where it needs no scores); without an entry where there are none.
        record: what reward methods measured; None without any.
        end: how it ended; `"failed"` if the environment or a scorer broke.
        error: what broke.
        cut_replies: replies that ran into their limit.
        unread: turns whose prompt left no room for a reply, which was then empty.
    """

    group: int
    task: str
    samples: list[Sample] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    turn_rewards: list[float] = field(default_factory=list)
    outcome: float = 0.0
    outcomes: list[float] = field(default_factory=list)
    charge: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    signals: dict[str, float] = field(default_factory=dict)
    record: Record | None = None
    end: Literal["", "terminated", "truncated", "failed"] = ""
    error: str = ""
    cut_replies: int = 0
    unread: int = 0

    @property
    def tokens(self) -> int:
        """Tokens written, N."""
        return sum(len(reply.ids) for reply in self.replies)

    @property
    def turn_ends(self) -> NDArray[np.int64]:
        """(K,) the last token of each turn, counted over all written tokens of the episode in order.

        A turn that wrote nothing ends where the one before it did (the first one on token 0).
        """
        lengths = [len(reply.ids) for reply in self.replies]
        return np.maximum(np.cumsum(lengths, dtype=np.int64) - 1, 0)

    def split(self, values: Floats) -> list[Floats]:
        """Numbers (N,) for its written tokens, sample by sample."""
        lengths = [int(sample.written.sum()) for sample in self.samples]
        return np.split(values, np.cumsum(lengths)[:-1])

    def by_token(self, turns: Sequence[float] | Floats) -> Floats:
        """Numbers (K,) of turns, given to each token (N,) that the turn wrote."""
        return np.repeat(np.asarray(turns, np.float64), [len(reply.ids) for reply in self.replies])


def component_sums(turns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The sum of each component over the turns, without those that could not be measured (NaN).

    >>> component_sums([{"format": 0.5, "judge": float("nan")}, {"format": 0.5, "judge": float("nan")}])
    {'format': 1.0, 'judge': nan}
    """
    found = {}
    for name in turns[-1] if turns else ():
        known = [turn[name] for turn in turns if not math.isnan(turn[name])]
        found[name] = math.fsum(known) if known else math.nan
    return found


def sound(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes that a learner can use: nothing broke, and something was written."""
    return [episode for episode in episodes if episode.end != "failed" and episode.tokens]
