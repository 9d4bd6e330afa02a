"""The Sokoban reproduction measures what its page says."""

import gymnasium as gym
import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")

from benchmarks.reproduce import sokoban


def test_a_solver_that_wastes_no_move_has_the_whole_of_every_metric():
    env = gym.make("memenvs:MemSokoban-v0", level_split="test", disable_env_checker=True)
    for task in range(20):
        env.reset(seed=task)
        over = False
        while not over:
            *_, terminated, truncated, info = env.step(env.unwrapped.gold_reply())
            over = terminated or truncated
        found = {name: info["metrics"][name.removeprefix("eval_")] for name in sokoban.METRICS}
        assert found == dict.fromkeys(sokoban.METRICS, 1.0)
