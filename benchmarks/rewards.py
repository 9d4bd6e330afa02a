"""Reward methods: 64 episodes credited together against 64 wrappers; the cost of a stack of four methods.

python -m benchmarks.rewards
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks import timed
from memenvs.core.env import Info
from memenvs.core.episode import Episode
from memenvs.rollout.collect import Loop, maker
from memenvs.rollout.policy import agent_policy
from memenvs.wrappers import Judge, RewardMethod, RewardWrapper
from memenvs.wrappers.scorers import LexicalScorer, ScoreRequest, TokenScores

ENVS, ROUNDS = 64, 5
READING: dict[str, Any] = {"tasks": "world-test", "chunk_size": 5000}
SEARCHING: dict[str, Any] = {"tasks": "world-test", "memory_mode": "rewrite"}
MEMORY = "The mayor of the town of Talnitsa is Vino Nokemi, who was born in 1903. " * 4


class FixedCost:
    """A scorer that takes a fixed time per call and per request, like a model on a GPU.

    Args:
        call: seconds.
        request: seconds.
    """

    def __init__(self, call: float, request: float):
        self.call, self.request, self.calls = call, request, 0

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Zeros, after the time."""
        self.calls += 1
        time.sleep(self.call + self.request * len(requests))
        return [np.zeros(1)] * len(requests)


class Free:
    """A scorer that takes no time, so that only everything else is measured."""

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Zeros."""
        return [np.zeros(1)] * len(requests)


def main() -> None:
    """Measure and print."""
    print(f"{'64 environments, 3 methods, 1 episode each':46}{'64 wrappers':>12}{'collect':>12}{'ratio':>8}")
    for label, make in (
        ("20 ms a call + 1 ms a request", lambda: FixedCost(0.020, 0.001)),
        ("20 ms a call + 0.1 ms a request", lambda: FixedCost(0.020, 0.0001)),
        ("5 ms a call + 1 ms a request", lambda: FixedCost(0.005, 0.001)),
        ("LexicalScorer", LexicalScorer),
    ):
        compare(label, make)
    print(f"\n{'a step of one environment, median of all, ms':46}{'bare':>12}{'4 methods':>12}{'more':>8}")
    for label, env_id, kwargs, methods in (
        ("chunk reading", "MemChunkQA-v0", READING, ["TAMTRL", "InfoMem", "MemPO", Judged()]),
        ("search with memory", "MemSearchQA-v0", SEARCHING, ["SearchRewards", "InfoMem", "MemPO", Judged()]),
    ):
        overhead(label, env_id, kwargs, methods)


class Judged(Judge):
    """A judge without calls: their time is the endpoint's."""

    def __init__(self) -> None:
        super().__init__("http://localhost:1/v1", "none", rubric="general")

    def assign_credit(self, episodes: Sequence[Any]) -> list[list[Any]]:
        """Assign nothing."""
        return [[] for _ in episodes]


def compare(label: str, make: Callable[[], Any]) -> None:
    """Play the same episodes of 64 environments both ways; return the seconds."""
    methods = ["TAMTRL", "InfoMem", "MemPO"]
    alone, together = make(), make()
    singles = [
        RewardWrapper(gym.make("MemChunkQA-v0", disable_env_checker=True, **READING), methods, alone)
        for _ in range(ENVS)
    ]
    loop = Loop(maker("MemChunkQA-v0", READING), agent_policy(reply), methods, together, concurrency=ENVS)
    apart = statistics.median(timed(lambda: play_singles(singles)) for _ in range(3))
    play_together(loop)  # once, so that the environments are made
    before = getattr(together, "calls", 0)
    joined = statistics.median(timed(lambda: play_together(loop)) for _ in range(3))
    if before:
        label += f" ({(together.calls - before) / 3:g} calls)"
    print(f"{label:46}{apart:11.2f}s{joined:11.2f}s{apart / joined:8.1f}", flush=True)


def play_singles(envs: Sequence[RewardWrapper]) -> None:
    """One episode each."""
    for i, env in enumerate(envs):
        env.reset(options={"task": i // 8})
        over = False
        while not over:
            _, _, terminated, truncated, _ = env.step(f"{i} {MEMORY}")
            over = terminated or truncated


def play_together(loop: Loop) -> None:
    """One episode each."""
    for _ in loop.play([[Episode(group=i, number=i, member=j) for j in range(8)] for i in range(ENVS // 8)]):
        pass


def reply(observation: str, info: Info) -> str:
    """Another memory in each environment."""
    return f"{len(observation)} {MEMORY}"


def overhead(label: str, env_id: str, kwargs: dict[str, Any], methods: list[str | RewardMethod]) -> None:
    """A bare and a wrapped environment, turn by turn in the same episodes; milliseconds a step."""
    bare = gym.make(env_id, disable_env_checker=True, **kwargs)
    wrapped = RewardWrapper(gym.make(env_id, disable_env_checker=True, **kwargs), methods, Free())
    times: dict[str, list[float]] = {"bare": [], "wrapped": []}
    reply = f"<mem>{MEMORY}</mem><think></think><search>mayor of Talnitsa</search>"
    for task in range(40 * ROUNDS):
        for name, env in (("bare", bare), ("wrapped", wrapped)):
            env.reset(options={"task": task % 128})
            over = False
            while not over:
                started = time.perf_counter()
                _, _, terminated, truncated, _ = env.step(reply)
                times[name].append(1e3 * (time.perf_counter() - started))
                over = terminated or truncated
    one, four = (statistics.median(times[name]) for name in ("bare", "wrapped"))
    mean = statistics.mean(times["wrapped"]) - statistics.mean(times["bare"])
    print(f"{label:46}{one:12.3f}{four:12.3f}{four - one:8.3f}  (mean {mean:.3f})", flush=True)


if __name__ == "__main__":
    main()
