"""Time Stable-Baselines3's boards: its DummyVecEnv of single ones, and ours, which are stepped together.

python -m benchmarks.sb3

Both keep the log of episodes (Monitor, VecMonitor). It counts CPU seconds; a minute on one core.
"""

from __future__ import annotations

import numpy as np
from stable_baselines3.common import env_util
from stable_baselines3.common.vec_env import VecEnv

import memenvs  # noqa: F401  # registers the environments
from benchmarks.harness import in_turns, print_head, print_row
from memenvs.adapters.sb3 import make_vec_env

ENV = "MemSokobanGrid-v0"
LEVELS = {"channels_first": True, "max_steps": 30}
STEPS = 102_400


def play(venv: VecEnv) -> None:
    """Make STEPS random moves."""
    venv.reset()
    for moves in np.random.default_rng(0).integers(0, 4, (STEPS // venv.num_envs, venv.num_envs)):
        venv.step(moves)


def main() -> None:
    """Print steps a CPU second and their ratio."""
    print_head("boards", "DummyVecEnv", "make_vec_env", "ratio")
    for boards in (16, 128, 1024):
        theirs = env_util.make_vec_env(ENV, boards, seed=0, env_kwargs=LEVELS)
        ours = make_vec_env(ENV, boards, seed=0, **LEVELS)
        costs = in_turns({"theirs": lambda: play(theirs), "ours": lambda: play(ours)}, rounds=3)  # noqa: B023
        slow, fast = (min(costs[name]) for name in ("theirs", "ours"))
        print_row(f"{boards:,}", f"{STEPS / slow:,.0f}", f"{STEPS / fast:,.0f}", f"{slow / fast:.1f}")


if __name__ == "__main__":
    main()
