"""MemPO: the tokens of a memory are rewarded by what the memory adds to the answer's probability.

`RewardWrapper(env, [MemPO()], scorer="hf:MODEL")`, `memenvs train grpo --reward mempo`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from memenvs.core.data import checked
from memenvs.core.episode import Credit, Episode, Floats, Turn
from memenvs.credit import mempo
from memenvs.wrappers.comparison import COMPARISONS, ComparisonSettings
from memenvs.wrappers.infomem import TARGETS, Target, asks_another, target_requests
from memenvs.wrappers.method import RememberingMethod, mean_logprobs
from memenvs.wrappers.scorers import ScoreRequest, TokenScores

Measure = Literal["probability", "log"]


@checked
@dataclass
class MemPO(RememberingMethod):
    """Give the tokens of each memory an advantage of their own (MemPO eq. 4 to 9).

        r_i      = 1 if the answer is right and the format proper, else 0      section 4.1
        R_ij     = P(y* given q, mem_ij) - b,    P = exp(mean log p)
        A_memory = (R_ij - mean) / (std + eps)   over all memories of the group

    b is P(y* given q, the turns before j). Eq. 4 is a picture in our copy of the paper: this is our reading
    of the text around it, and `bias="none"` leaves b out. The signal is R_ij; the credit is A_memory on the
    span of characters inside `<mem>…</mem>` (or, where the whole reply becomes the memory, on what was kept
    of it).

    r_i is a credit to the last turn and replaces the environment's outcome, whose component counts
    0 and stays in `info["metrics"]["outcome"]`. Right and proper are the environment's metrics `success` and
    `format`: half of two questions right is 0, and so is an answer without its `<mem>`. A_trajectory, r_i
    normalised in its group, is added to every token: `memenvs.credit.mempo` gives both advantages.

    A turn that wrote no memory gets no credit. Where several questions are answered in a turn each
    (`ChunkQAEnv(ask="each")`), neither does the last memory, whose b would be of another question. Without a
    group, memories are normalised by the mean and the standard deviation of all memories so far.

    Args:
        bias: `"history"` or `"none"` (b = 0).
        measure: `"probability"`, or `"log"`: mean log p instead of P.
        trajectory: r_i as above (`"strict"`), or `"outcome"`: the environment's outcome is unchanged.
        target: y* as `"bare"` answer, `"inside"` or `"wrapped"`, as of `InfoMem`.
    """

    bias: Literal["history", "none"] = "history"
    measure: Measure = "probability"
    trajectory: Literal["strict", "outcome"] = "strict"
    target: Target = "bare"

    name = "mempo"
    uses = COMPARISONS["outcome"].uses
    group = True
    immediate = False

    @property
    def replaces_outcome(self) -> bool:
        return self.trajectory == "strict"

    @property
    def needs(self) -> tuple[str, ...]:
        prompts = ("privileged/prompt_with_memory", "privileged/prompt_with_history")
        scored = (*prompts[: 2 if self.bias == "history" else 1], *TARGETS[self.target])
        return (*scored, "privileged/memory_span", *(("metrics/format",) if self.replaces_outcome else ()))

    def requests(self, turn: Turn) -> list[ScoreRequest]:
        """The answer after the memory, and after the turns before."""
        if self._measured_span(turn) is None:
            return []
        prompts = [turn.info["privileged"]["prompt_with_memory"]]
        if self.bias == "history":
            prompts.append(turn.before["privileged"]["prompt_with_history"])
        return target_requests(prompts, turn.info["privileged"], self.target)

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        """R_ij; 0.0 where no memory was written, NaN where the target is empty."""
        if not scores:
            return 0.0
        likely = mean_logprobs(scores)
        if self.measure == "probability":
            likely = [math.exp(value) for value in likely]
        return likely[0] - (likely[1] if len(likely) > 1 else 0.0)

    def assign_credit(self, episodes: Sequence[Episode]) -> list[list[Credit]]:
        spans = [[self._measured_span(turn) for turn in episode.turns] for episode in episodes]
        signals = [
            [np.nan if span is None else signal for span, signal in zip(places, measured, strict=True)]
            for places, measured in zip(spans, self.signals_of(episodes), strict=True)
        ]
        if len(episodes) == 1:
            earlier = self._earlier["memory"]
            earlier.add(signals[0])
            normal = [[earlier.normalize(value, ddof=1) for value in signals[0]]]
        else:
            rewards = [trajectory_reward(episode) for episode in episodes]
            normal = [turns.tolist() for turns in mempo(rewards, signals).memory]
        assigned: list[list[Credit]] = []
        for episode, places, values in zip(episodes, spans, normal, strict=True):
            memories = enumerate(zip(values, places, strict=True))
            credits = [Credit(k, value, span, advantage=True) for k, (value, span) in memories if span]
            if self.replaces_outcome and episode.turns:
                credits.append(Credit(len(places) - 1, trajectory_reward(episode), from_signal=False))
            assigned.append(credits)
        return assigned

    def _measured_span(self, turn: Turn) -> tuple[int, int] | None:
        """The memory that a turn wrote, if it is compared."""
        return None if self.bias == "history" and asks_another(turn) else memory_span(turn)

    def advantages(self, episodes: Sequence[Episode], how: ComparisonSettings) -> list[Floats]:
        """A_trajectory, of the outcome alone; A_memory is a credit that a learner adds (eq. 9)."""
        return COMPARISONS["outcome"].advantages(episodes, how)


def trajectory_reward(episode: Episode) -> float:
    """1.0 if and only if the answer is right and the format proper, else 0.0 (MemPO section 4.1)."""
    proper = bool(episode.turns) and episode.turns[-1].info["metrics"]["format"] == 1.0
    return float(episode.success and proper)


def memory_span(turn: Turn) -> tuple[int, int] | None:
    """Where in the action the memory was written, in characters; None where none was.

    The environment says where: inside the `<mem>…</mem>` that it took for the memory, or, where the whole
    reply is the memory, the part that it kept.
    """
    span = turn.info["privileged"]["memory_span"]
    return None if span is None else (span[0], span[1])
