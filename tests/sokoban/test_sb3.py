"""A learner of another package on our environment: Stable-Baselines3 learns Sokoban."""

import functools
import importlib
import json
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from pages import DOCS, FILE, blocks
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN

from memenvs.commands import main
from memenvs.core.episode_file import EPISODES, read_lines

EASY = {"min_solution": 5, "max_solution": 5}


@pytest.mark.slow
def test_ppo_learns_to_solve_levels_it_has_not_seen():
    import sb3_sokoban as example
    import torch

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    chance = example.success(
        lambda observations, masks: rng.integers(0, 4, len(observations)), "test", **EASY
    )
    model = example.make_ppo(0, **EASY)
    model.learn(100_000)
    assert example.success(functools.partial(example.best_moves, model), "test", **EASY) > chance + 0.15


@pytest.mark.parametrize("algorithms", [["ppo"], ["ppo", "dqn"]])
def test_the_example_trains_saves_and_measures_models(algorithms, tmp_path, monkeypatch):
    import sb3_sokoban as example

    file, curve = tmp_path / "sokoban.zip", tmp_path / "curve.json"
    monkeypatch.setattr(example, "BOARDS", 2)
    options = f"--algorithm {' '.join(algorithms)} --moves 5 --steps 64 --save {file} --curve {curve}"
    monkeypatch.setattr(sys, "argv", ["sb3_sokoban.py", *options.split()])
    example.main()
    assert list(json.loads(curve.read_text())["runs"]) == algorithms
    assert curve.with_suffix(".png").exists()
    model = {"ppo": MaskablePPO, "dqn": DQN}[algorithms[-1]].load(file, device="cpu")
    assert model.num_timesteps >= 64


def test_the_agent_of_the_page_makes_a_saved_models_moves_in_the_text_environment(tmp_path, monkeypatch):
    import sb3_sokoban as example

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for block in blocks(DOCS / "trainers" / "sb3.md"):
        if file := FILE.match(block.body):
            (tmp_path / f"{file[1]}.py").write_text(block.body, encoding="utf-8")
    env = gym.make(example.ENV, channels_first=True, level_split="test", **EASY, max_steps=6)
    model = DQN("MlpPolicy", env, seed=0, buffer_size=1, device="cpu")
    model.save("sokoban.zip")
    moves = []
    for task in range(5):
        observation, _ = env.reset(options={"task": task})
        over = False
        while not over:
            action = example.best_moves(model, observation[None], env.unwrapped.action_masks()[None])[0]
            observation, _, terminated, truncated, _ = env.step(action)
            moves.append(("Up", "Down", "Left", "Right")[action])
            over = terminated or truncated
    importlib.invalidate_caches()
    arguments = "--env-args level_split=test max_solution=5 max_turns=6 max_actions=1 --task 0:5 --out run"
    assert (
        main(["evaluate", "run", "--env", "MemSokoban-v0", "--policy", "sb3_agent:agent", *arguments.split()])
        == 0
    )
    played = sorted(
        (episode for _, episode in read_lines(Path("run", EPISODES))), key=lambda episode: episode.number
    )
    replies = [turn.reply.text for episode in played for turn in episode.turns]
    assert replies == [f"<think></think><answer>{move}</answer>" for move in moves]
    assert main(["view", "run", "--out", "report.html"]) == 0
