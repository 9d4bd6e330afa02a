# hilo.py
"""Find a number by guessing."""

from dataclasses import dataclass, field

import gymnasium as gym
import memenvs
from memenvs.core.env import EpisodeState

QUESTION = "Which number from 1 to 100 is it?\n"


@dataclass
class HiloState(EpisodeState):
    """What changes during an episode."""

    number: int = 1
    history: list[str] = field(default_factory=list)  # reply, feedback, reply, …


class HiloEnv(memenvs.TextEnv[str, HiloState]):
    """Find a number in seven guesses; the environment says "higher" or "lower"."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(n_tasks=1000, render_mode=render_mode)

    def _begin(self, task: int) -> HiloState:  # reset
        number = int(self.np_random.integers(1, 101))
        return HiloState(task, number=number)

    def _play(self, reply: str) -> dict[str, float]:  # step, before state.turn += 1
        state, guess = self.state, reply.strip()[:3]
        is_right = guess == str(state.number)
        if is_right or state.turn == 6:
            state.end = "terminated" if is_right else "truncated"
        is_low = guess.isdecimal() and int(guess) < state.number
        hint = "\nhigher\n" if is_low else "\nlower\n"
        state.history += [reply, "" if state.end else hint]
        return {"outcome": float(is_right)}

    def _metrics(self) -> dict[str, float]:  # at the end
        return {"success": self.state.turn_rewards[-1]}

    def _observe(self) -> str:
        return QUESTION + "".join(self.state.history)

    def _feedback(self) -> str:  # what the environment added after the last reply
        return self.state.history[-1]

    def gold_reply(self) -> str:
        """What an agent that knows the answer replies."""
        return str(self.state.number)


gym.register("Hilo-v0", "hilo:HiloEnv")
