"""A learner of another package on our environment: Stable-Baselines3 learns Sokoban."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

EASY = {"min_solution": 5, "max_solution": 5}


def test_ppo_learns_to_solve_levels_it_has_not_seen():
    import sb3_sokoban as example
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    chance = example.success(
        lambda observations, masks: rng.integers(0, 4, len(observations)), "test", **EASY
    )
    model = example.make_model(0, **EASY)
    model.learn(100_000)
    assert example.success(example.likeliest(model), "test", **EASY) > chance + 0.15
