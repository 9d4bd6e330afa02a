"""Calling competes with answers by luck: only the reward of the call favours it."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np

from memenvs.core.env import EpisodeState, TextEnv

QUESTION, RESULT, CALL, DIGITS = "Which digit? ", " Found. ", "h", "0123456789"


class CallOrGuess(TextEnv[str, EpisodeState]):
    """Which digit is it, one in ten? `h` calls for help, which pays 0.7 and leads to a second turn.

    Any other reply is the answer, right by luck. The second answer is never right, as that of a policy that
    cannot read the help yet.
    """

    components = ("outcome", "call")
    metric_names = ("success", "called")

    def __init__(self) -> None:
        super().__init__(len(DIGITS))

    def _begin(self, task: int) -> EpisodeState:
        self.text = QUESTION
        return EpisodeState(task)

    def _observe(self) -> str:
        return self.text

    def _feedback(self) -> str:
        return "" if self.state.end else RESULT

    def _play(self, reply: str) -> dict[str, float]:
        first = self.state.turn == 0
        self.text += reply
        if first and reply == CALL:
            self.text += RESULT
            return {"call": 0.7}
        self.state.end = "terminated"
        return {"outcome": float(first and reply == DIGITS[self.state.task])}

    def _metrics(self) -> dict[str, float]:
        return {"success": sum(self.state.turn_rewards) == 1.0, "called": float(self.state.turn == 2)}

    def gold_reply(self) -> str:
        return DIGITS[self.state.task]


gym.register("CallOrGuess-v0", f"{__name__}:CallOrGuess")


def save_model(folder: Path) -> Path:
    """A random GPT of one layer that has a token for every text of the task."""
    from memenvs.models.small_gpt import save_small_gpt

    return save_small_gpt(folder, [QUESTION, RESULT, CALL, *DIGITS], width=32, layers=1, window=16)


def often(env):
    """A teacher that calls in four turns of ten and else says any digit."""
    draws = np.random.default_rng(0)
    return lambda observation, info: CALL if draws.random() < 0.4 else DIGITS[draws.integers(10)]
