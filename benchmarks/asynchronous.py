"""1,000 episodes on one event loop, each step of which waits: `AsyncTextEnv` and `asyncio.to_thread`.

python -m benchmarks.asynchronous
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import gymnasium as gym

from benchmarks.harness import run
from memenvs import AsyncTextEnv

REPLY = "<think>a</think><search>the mayor of the town</search>"


class Waiting(gym.Wrapper[str, str, str, str]):
    """Waits at every step, as for a search server."""

    def __init__(self, env: Any, seconds: float) -> None:
        super().__init__(env)
        self._seconds = seconds

    def step(self, action: str) -> Any:
        """Wait, then step the environment."""
        time.sleep(self._seconds)
        return self.env.step(action)


async def play(envs: list[Any], turns: int, step: Callable[[Any, str], Awaitable[Any]]) -> float:
    """The seconds for some turns of every environment."""

    async def episode(env: Any) -> None:
        for _ in range(turns):
            await step(env, REPLY)

    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    start = time.perf_counter()
    await asyncio.gather(*map(episode, envs))
    return time.perf_counter() - start


def main(episodes: int = 1000, wait: float = 0.05, turns: int = 4) -> None:
    """Print both, and their ratio; a step waits for so many seconds."""
    envs = [Waiting(gym.make("MemSearchQA-v0", tasks="world-test"), wait) for _ in range(episodes)]
    ours = asyncio.run(play(envs, turns, lambda env, reply: AsyncTextEnv(env).step(reply)))
    theirs = asyncio.run(play(envs, turns, lambda env, reply: asyncio.to_thread(env.step, reply)))
    steps = episodes * turns
    print(f"{episodes} episodes, steps that wait {1000 * wait:g} ms")
    print(f"AsyncTextEnv {steps / ours:,.0f} steps/s, asyncio.to_thread {steps / theirs:,.0f} steps/s")
    print(f"ratio {theirs / ours:.1f}")


if __name__ == "__main__":
    run(main)
