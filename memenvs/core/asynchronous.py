"""Environments on an event loop: `AsyncTextEnv`, whose `reset` and `step` are awaited."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import gymnasium as gym

from memenvs.core.env import Info

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

THREADS = 4096  # they are started when they are needed, and cost little while they wait

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *args: Any, **options: Any) -> T:
    """Call a function that may wait, without holding up the event loop.

    `asyncio.to_thread` does the same with cores + 4 threads at first, and at most 32, so that hundreds of
    episodes would wait for each other's searches and judges.
    """
    import asyncio  # slow, and most programs need none

    call = functools.partial(contextvars.copy_context().run, function, *args, **options)
    return await asyncio.get_running_loop().run_in_executor(_pool(), call)


@functools.cache
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor  # slow, likewise

    return ThreadPoolExecutor(THREADS, thread_name_prefix="memenvs")


class AsyncTextEnv:
    """A text environment, with or without reward methods around it, whose `reset` and `step` are awaited.

        env = AsyncTextEnv(gym.make("memenvs:MemSearchQA-v0"))
        observation, info = await env.reset(seed=0)
        observation, reward, terminated, truncated, info = await env.step("<answer>1623</answer>")

    Many can run on one event loop, because each call runs in its own thread. Every other attribute is the
    environment's.

    Args:
        env: the environment. One episode is played in it at a time.
    """

    def __init__(self, env: gym.Env[str, str]) -> None:
        self.env = env

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, Info]:
        """As the environment's."""
        return await in_thread(self.env.reset, seed=seed, options=options)

    async def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """As the environment's."""
        observation, reward, terminated, truncated, info = await in_thread(self.env.step, action)
        return observation, float(reward), terminated, truncated, info

    def __getattr__(self, name: str) -> Any:
        if name == "env" or name.startswith("__"):  # asked of a copy that has no environment yet
            raise AttributeError(name)
        return getattr(self.env, name)
