"""Environments in Ray actors against one process: steps a second, and what a step costs the driver.

python -m benchmarks.distributed
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np

from memenvs.core.optional import require
from memenvs.core.vector import TextVectorEnv
from memenvs.distributed import RayTextVectorEnv

CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "reading": ("MemChunkQA-v0", {"tasks": "world-test"}, "what I want to remember {}"),
    "search": (
        "MemSearchQA-v0",
        {"tasks": "world-test"},
        "<think>a</think><search>the mayor of town {}</search>",
    ),
    "sokoban": ("MemSokoban-v0", {}, "<think>{}</think><answer>Up || Left || Down</answer>"),
}


def main() -> None:
    """Measure every case in one process, and with one and two workers."""
    parser = argparse.ArgumentParser(description="environments in Ray actors")
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5, help="of one episode in every environment")
    args = parser.parse_args()
    require("ray", "ray").init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    print(f"{'family':10}{'where':>12}{'steps/s':>10}{'ms an episode':>16}{'driver, worker ms':>20}")
    for family, (env_id, kwargs, reply) in CASES.items():
        for workers in (0, 1, 2):
            if workers:
                venv: TextVectorEnv = RayTextVectorEnv(env_id, args.envs, workers, **kwargs)
            else:
                venv = TextVectorEnv(env_id, args.envs, autoreset_mode="Disabled", **kwargs)
            measure(family, f"{workers} workers" if workers else "one process", venv, reply, args.rounds)
            venv.close()


def measure(family: str, where: str, venv: TextVectorEnv, reply: str, rounds: int) -> None:
    """Print the median over rounds, each one episode in every environment."""
    rates, episodes, driver, workers = [], [], [], []
    for number in range(rounds + 1):
        start, own, theirs = time.perf_counter(), time.process_time(), worker_seconds(venv)
        steps = play(venv, reply, number)
        seconds = time.perf_counter() - start
        rates.append(steps / seconds)
        episodes.append(1000 * seconds / venv.num_envs)
        driver.append(1000 * (time.process_time() - own) / steps)
        workers.append(1000 * (worker_seconds(venv) - theirs) / steps)
    found = [
        statistics.median(each[1:]) for each in (rates, episodes, driver, workers)
    ]  # without the warm-up round
    rate, episode, here, there = found
    print(f"{family:10}{where:>12}{rate:10.0f}{episode:16.2f}{here:12.3f}{there:8.3f}", flush=True)


def worker_seconds(venv: TextVectorEnv) -> float:
    """Processor time of all workers; 0 without workers."""
    if not isinstance(venv, RayTextVectorEnv):
        return 0.0
    asked = [actor.__ray_call__.remote(lambda worker: time.process_time()) for actor in venv._pool.actors]
    return sum(require("ray", "ray").get(asked))


def play(venv: TextVectorEnv, reply: str, seed: int) -> int:
    """Play one episode in every environment; return the steps taken."""
    venv.reset(seed=seed)
    playing, steps = np.ones(venv.num_envs, np.bool_), 0
    while playing.any():
        actions = [reply.format(f"{seed} {steps} {i}") for i in range(venv.num_envs)]
        _, _, terminated, truncated, _ = venv.step(actions, mask=playing)
        steps += int(playing.sum())
        playing &= ~(terminated | truncated)
    return steps


if __name__ == "__main__":
    main()
