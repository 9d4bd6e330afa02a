"""The real Stable-Baselines3 on choice versions of text environments."""

import re
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("sb3_contrib", reason='install it with `pip install -e ".[sb3]"`')

from easy_sokoban import save_levels
from sb3_contrib import MaskablePPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env

from memenvs.wrappers import ChooseReply, HashText

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

CASES = [
    ("MemChunkQA-v0", {"tasks": "world-test"}),
    ("MemSearchQA-v0", {"tasks": "world-test"}),
    ("MemToolQA-v0", {"tasks": "world-test"}),
    ("MemSokoban-v0", {}),
]


def made(env_id, arguments, size=16):
    env = gym.make(f"memenvs:{env_id}", disable_env_checker=True, **arguments)
    return HashText(ChooseReply(env), size)


@pytest.mark.parametrize(("env_id", "arguments"), CASES)
def test_its_own_checker_finds_nothing_wrong(env_id, arguments):
    check_env(made(env_id, arguments))


@pytest.mark.parametrize(("env_id", "arguments"), CASES)
def test_two_updates_of_ppo_change_the_policy(env_id, arguments):
    venv = make_vec_env(lambda: made(env_id, arguments), n_envs=2, seed=0)
    model = PPO("MlpPolicy", venv, n_steps=8, batch_size=16, n_epochs=1, seed=0, device="cpu")
    before = [weight.detach().clone() for weight in model.policy.parameters()]
    model.learn(32)  # two rollouts of 2 * 8 steps, an update each
    assert model._n_updates == 2
    after = model.policy.parameters()
    assert any(not old.equal(new) for old, new in zip(before, after, strict=True))


def test_dqn_takes_the_same_environment():
    env = made(*CASES[2])
    model = DQN("MlpPolicy", env, learning_starts=4, buffer_size=100, seed=0, device="cpu").learn(20)
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(int(model.predict(observation)[0]))


@pytest.mark.parametrize(
    "env",
    [lambda: gym.make("memenvs:MemSokobanGrid-v0"), lambda: made("MemSokoban-v0", {})],
    ids=["grid", "choices"],
)
def test_maskable_ppo_makes_only_moves_that_change_the_board(env):
    env = env()
    model = MaskablePPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu")
    model.learn(32)
    inner = env.unwrapped
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        before = inner._board.text()
        masks = env.get_wrapper_attr("action_masks")()
        env.step(int(model.predict(observation, action_masks=masks)[0]))
        assert inner._board.text() != before


def test_ppo_learns_the_boards_whose_move_is_always_right(tmp_path):
    arguments = save_levels(tmp_path)
    venv = make_vec_env(lambda: made("MemSokoban-v0", arguments), n_envs=8, seed=0)
    model = PPO("MlpPolicy", venv, n_steps=16, batch_size=64, learning_rate=3e-3, seed=0, device="cpu")
    model.learn(2048)
    env = made("MemSokoban-v0", arguments)
    chosen = [
        model.predict(env.reset(options={"task": task})[0], deterministic=True)[0].item() for task in range(8)
    ]
    assert chosen == [3] * 8  # Right, of four moves


def test_a_reply_that_its_passages_speak_of_is_right_more_often_than_chance():
    env = made("MemToolQA-v0", {"tasks": "world-test"})
    draws, solved = np.random.default_rng(0), []
    for task in range(64):
        env.reset(seed=task, options={"task": task})
        vector, *_ = env.step(4)  # search for the question
        shares = vector[-9:][:4]
        best = int(draws.choice(np.flatnonzero(shares == shares.max())))
        solved.append(env.step(best)[4]["metrics"]["success"])
    assert np.mean(solved) > 0.25 + 0.15  # chance is a quarter


def test_the_example_trains_and_tells_how_often_it_was_right(monkeypatch, capsys):
    import sb3_choices as example

    monkeypatch.setattr(example, "TESTED", 3)
    monkeypatch.setattr(sys, "argv", ["sb3_choices.py", "--steps", "1024"])
    example.main()
    told = capsys.readouterr().out
    assert re.fullmatch(r"before: \d\.\d\d of 3 test tasks\nafter 1,024 steps, \d+ s: \d\.\d\d\n", told)
