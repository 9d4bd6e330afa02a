"""Sokoban steps compared with two packages, in one process: GEM (text) and Jumanji (arrays).

pip install gem-llm jumanji
python -m benchmarks.sokoban_peers
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

import memenvs  # noqa: F401

BOARDS, STEPS, REPEATS = 1024, 300, 3
NAMES = ("up", "down", "left", "right")


def main() -> None:
    """Measure the installed packages."""
    ours = {"text": text_rate(), "grid": grid_rate()}
    print(f"memenvs  text, one environment: {ours['text']:>12,.0f} moves/s")
    print(f"memenvs  {BOARDS} boards 6x6:      {ours['grid']:>12,.0f} steps/s")
    peers: list[tuple[str, str, Callable[[], float]]] = [
        ("GEM", "text", gem_rate),
        ("GEM, resets not counted", "text", lambda: gem_rate(count_resets=False)),
        ("Jumanji", "grid", jumanji_rate),
    ]
    for name, kind, measure in peers:
        try:
            theirs = measure()
        except ImportError as error:
            print(f"{name}: not installed ({error})")
            continue
        print(f"{name}, {kind}: {theirs:,.0f} /s; memenvs is {ours[kind] / theirs:.1f} times as fast")


def best(work: Callable[[], int]) -> float:
    """Units a second, the best of some repeats."""
    rates = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        rates.append(work() / (time.perf_counter() - started))
    return max(rates)


def text_rate() -> float:
    """Moves a second of `MemSokoban-v0`, three a turn, including resets."""
    env = gym.make("MemSokoban-v0", disable_env_checker=True)
    rng = np.random.default_rng(0)
    replies = [
        f"<think>go</think><answer>{' || '.join(NAMES[i] for i in rng.integers(0, 4, 3))}</answer>"
        for _ in range(3000)
    ]

    def work() -> int:
        env.reset(seed=0)
        for reply in replies:
            _, _, terminated, truncated, _ = env.step(reply)
            if terminated or truncated:
                env.reset()
        return 3 * len(replies)

    return best(work)


def gem_rate(count_resets: bool = True) -> float:
    """Moves a second of GEM's text Sokoban, 6x6 with one box, episodes of 100 moves."""
    from gem.envs.game_env.sokoban import SokobanEnv

    env = SokobanEnv(dim_room=(6, 6), num_boxes=1, max_turns=100)
    rng = np.random.default_rng(0)
    actions = [f"\\boxed{{{NAMES[i]}}}" for i in rng.integers(0, 4, 5000)]
    env.reset(seed=0)
    spent = 0.0
    for action in actions:
        started = time.perf_counter()
        _, _, terminated, truncated, _ = env.step(action)
        spent += time.perf_counter() - started
        if terminated or truncated:
            started = time.perf_counter()
            env.reset()
            spent += count_resets * (time.perf_counter() - started)
    return len(actions) / spent


def grid_rate() -> float:
    """Steps a second of `MemSokobanGrid-v0` over 1,024 boards, including observations and autoreset."""
    venv = gym.make_vec("MemSokobanGrid-v0", num_envs=BOARDS)
    venv.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 4, (STEPS, BOARDS))

    def work() -> int:
        for row in actions:
            venv.step(row)
        return actions.size

    work()  # warm up, past the first resets
    return best(work)


def jumanji_rate() -> float:
    """Steps a second of Jumanji's Sokoban (10x10, four boxes), jitted, vmapped and with its autoreset."""
    import jax
    import jumanji
    from jumanji.environments.routing.sokoban.generator import ToyGenerator
    from jumanji.wrappers import VmapAutoResetWrapper

    env: Any = VmapAutoResetWrapper(jumanji.make("Sokoban-v0", generator=ToyGenerator()))
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    state, _ = reset(jax.random.split(jax.random.PRNGKey(0), BOARDS))
    actions = np.random.default_rng(0).integers(0, 4, (STEPS, BOARDS)).astype(np.int32)
    state, timestep = step(state, actions[0])

    def work() -> int:
        nonlocal state, timestep
        for row in actions:
            state, timestep = step(state, row)
        jax.block_until_ready(timestep.observation)
        return actions.size

    work()
    return best(work)


if __name__ == "__main__":
    main()
