"""The name of a text environment comes in; its tasks, as verifiers knows them, go out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf

from memenvs.adapters.plain import TextEnvironment, open_env
from memenvs.text_env import TextEnv


class MemData(vf.TaskData):
    """A task by its number; the seed makes every other random choice, so that rollouts share them."""

    number: int
    seed: int = 0


class MemTask(vf.Task[MemData]):
    """Nothing but its data: the environment says what an episode is worth."""


class MemTasksetConfig(vf.TasksetConfig):
    """Which environment: `env` (an id), `env_args`, `methods` and `scorer`; and the seed of every task."""

    env: str = "MemChunkQA-v0"
    env_args: dict[str, Any] = {}  # noqa: RUF012  # pydantic copies it
    methods: list[Any] = []  # noqa: RUF012
    scorer: Any = None
    seed: int = 0

    def open(self) -> TextEnvironment:
        """The environment."""
        return open_env(self.env, self.env_args, self.methods, self.scorer)


class MemTaskset(vf.Taskset[MemTask, MemTasksetConfig]):
    """The tasks of an environment."""

    def load(self) -> Iterator[MemTask]:
        """Each task once; `--select.include.idx 0:100` takes some of them."""
        inner = self.config.open().unwrapped
        for number in range(inner.n_tasks if isinstance(inner, TextEnv) else 0):
            yield MemTask(MemData(number=number, seed=self.config.seed), self.config.task)
