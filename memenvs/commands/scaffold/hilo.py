# hilo.py
"""Find a number by guessing."""

from dataclasses import dataclass, field

import gymnasium as gym
import memenvs
from memenvs.core.env import EpisodeState

QUESTION = "Which number from 1 to 100 is it?\n"


@dataclass
class HiloEpisode(EpisodeState):
    """What changes during an episode."""

    number: int = 1
    history: list[str] = field(default_factory=list)  # reply, feedback, reply, …


class HiloEnv(memenvs.TextEnv[str, HiloEpisode]):
    """Find a number in seven guesses; the environment says "higher" or "lower"."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(n_tasks=1000, render_mode=render_mode)

    def _begin(self, task: int) -> HiloEpisode:  # reset
        number = int(self.np_random.integers(1, 101))
        return HiloEpisode(task, number=number)

    def _play(self, reply: str) -> dict[str, float]:  # step, before episode.turn += 1
        episode, guess = self.episode, reply.strip()[:3]
        is_right = guess == str(episode.number)
        if is_right or episode.turn == 6:
            episode.end = "terminated" if is_right else "truncated"
        is_low = guess.isdecimal() and int(guess) < episode.number
        hint = "\nhigher\n" if is_low else "\nlower\n"
        episode.history += [reply, "" if episode.end else hint]
        return {"outcome": float(is_right)}

    def _metrics(self) -> dict[str, float]:  # at the end
        return {"success": self.episode.turn_rewards[-1]}

    def _observe(self) -> str:
        return QUESTION + "".join(self.episode.history)

    def _feedback(self) -> str:  # what the environment added after the last reply
        return self.episode.history[-1]

    def gold_reply(self) -> str:
        """What an agent that knows the answer replies."""
        return str(self.episode.number)


gym.register("Hilo-v0", "hilo:HiloEnv")
