"""The policies without a model, one an episode, behind the interface of those that play many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from memenvs.evaluation.protocol import Answer, Ask
from memenvs.policies import Policy, make_policy


class ScriptedPolicy:
    """`memenvs.policies`, made anew for each episode; a `BatchPolicy`.

    Args:
        name: one of them.
        envs: the environment of each seat.

    Raises:
        ValueError: no such policy.
    """

    def __init__(self, name: str, envs: Sequence[gym.Env[Any, Any]]) -> None:
        make_policy(name, envs[0])
        self.name, self.envs = name, envs
        self._policies: dict[int, Policy] = {}
        self._waiting: list[Ask] = []

    def ask(self, asked: Ask) -> None:
        """See `BatchPolicy`."""
        if asked.first:
            seed = int(asked.rng.integers(2**32))
            self._policies[asked.seat] = make_policy(self.name, self.envs[asked.seat], seed)
        self._waiting.append(asked)

    def answered(self) -> list[Answer]:
        """See `BatchPolicy`."""
        waiting, self._waiting = self._waiting, []
        return [Answer(ask.seat, self._policies[ask.seat](ask.observation, ask.info)) for ask in waiting]

    def close(self) -> None:
        """See `BatchPolicy`."""
