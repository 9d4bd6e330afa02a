"""MemSearchQA-v0 of memenvs, with the rewards of MT-PPO."""

from typing import Any

import verifiers.v1 as vf

from memenvs.adapters.verifiers import MemEnv, MemTask, MemTaskset, MemTasksetConfig, ReplyHarness

__all__ = ["MemEnv", "ReplyHarness", "Tasks"]


class Config(MemTasksetConfig):
    """The environment; vf-eval can set each value, as `--env.taskset.env-args`."""

    env: str = "MemSearchQA-v0"
    env_args: dict[str, Any] = {"tasks": "world-test"}  # noqa: RUF012  # pydantic copies it
    methods: list[Any] = ["SearchRewards"]  # noqa: RUF012
    scorer: Any = None


class Tasks(MemTaskset, vf.Taskset[MemTask, Config]):
    """Its questions."""
