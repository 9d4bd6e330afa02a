"""Environments are reset and stepped one at a time; where one raises, the end of its episode comes out."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym

from memenvs.text_env import Info
from memenvs.vector_errors import ERRORS, error_line, failed_reset, failed_turn


class Shown(NamedTuple):
    """What an environment shows after a reset or a step.

    Attributes:
        observation: the one it had, if it raised.
        reward: 0.0 if it raised.
        terminated: the task is over.
        truncated: a limit, or an error, cut it.
        info: with `error` unless errors are raised.
    """

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: Info


class Members:
    """The environments of a vector environment.

    Args:
        envs: N environments.
        errors: `"raise"`, or `"truncate"`: an error ends its episode as truncated.

    Raises:
        ValueError: `errors` is neither.
    """

    def __init__(self, envs: list[gym.Env[Any, Any]], errors: str) -> None:
        if errors not in ERRORS:
            raise ValueError(f"errors must be one of {', '.join(ERRORS)}, got {errors!r}")
        self.envs = envs
        self.errors = errors
        self.observations: list[Any] = [""] * len(self.envs)
        self.infos: list[Info] = [{}] * len(self.envs)

    def reset(self, i: int, **how: Any) -> Shown:
        """Begin an episode; truncated if it could not begin."""
        try:
            observation, info = self.envs[i].reset(**how)
        except Exception as error:
            if self.errors == "raise":
                raise
            return self._failed(i, failed_reset(self.envs[i], self.infos[i]), error)
        return self._keep(i, Shown(observation, 0.0, False, False, self._marked(info)))

    def step(self, i: int, action: str) -> Shown:
        """Play a reply."""
        try:
            observation, reward, terminated, truncated, info = self.envs[i].step(action)
        except Exception as error:
            if self.errors == "raise":
                raise
            return self._failed(i, failed_turn(self.infos[i]), error)
        return self._keep(i, Shown(observation, float(reward), terminated, truncated, self._marked(info)))

    def _failed(self, i: int, info: Info, error: Exception) -> Shown:
        marked = {**info, "error": error_line(error)}
        return self._keep(i, Shown(self.observations[i], 0.0, False, True, marked))

    def _marked(self, info: Info) -> Info:
        return info if self.errors == "raise" else {**info, "error": ""}

    def _keep(self, i: int, shown: Shown) -> Shown:
        self.observations[i], self.infos[i] = shown.observation, shown.info
        return shown
