"""Boards that are stepped together, as Stable-Baselines3 takes them."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

from gymnasium.utils.env_checker import data_equivalence
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from sb3_contrib.common.maskable.utils import get_action_masks, is_masking_supported
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecCheckNan, VecFrameStack, VecNormalize

from memenvs.adapters.sb3 import POLICY_KWARGS, make_vec_env

ENV = "MemSokobanGrid-v0"
SHORT = {"max_solution": 6, "max_steps": 7}


def test_boards_are_those_of_a_dummy_vec_env():
    ours = make_vec_env(ENV, 6, **SHORT).venv
    theirs = DummyVecEnv([lambda: gym.make(ENV, channels_first=True, **SHORT).unwrapped] * 6)
    for venv in (ours, theirs):
        venv.seed(3)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert np.array_equal(ours.reset(), theirs.reset())
    rng, ends = np.random.default_rng(0), 0
    for _ in range(60):
        moves = rng.integers(0, 4, 6)
        step, expected = ours.step(moves), theirs.step(moves)
        ends += int(step[2].sum())
        for info in step[3]:
            assert info.pop("is_success", False) <= info["success"]
        assert all(map(data_equivalence, step[3], expected[3]))
        assert all(map(np.array_equal, step[:3], expected[:3]))
        assert [array.dtype for array in step[:3]] == [array.dtype for array in expected[:3]]
        assert ours.reset_infos == theirs.reset_infos
    assert ends > 20


def test_seeds_and_tasks_are_used_by_the_next_reset_alone():
    venv = make_vec_env(ENV, 3, seed=5)
    first = venv.reset()
    venv.seed(5)
    assert np.array_equal(venv.reset(), first)
    assert not np.array_equal(venv.reset(), first)
    venv.set_options([{"task": task} for task in (2, 0, 1)])
    venv.reset()
    chosen = gym.make(ENV).unwrapped.chosen
    assert [info["level"] for info in venv.venv.reset_infos] == chosen[[2, 0, 1]].tolist()


def test_ends_are_logged_with_their_success():
    venv = make_vec_env(ENV, 4, seed=0, max_steps=2)
    venv.reset()
    venv.step(np.zeros(4, int))
    *_, over, infos = venv.step(np.zeros(4, int))
    assert over.all()
    assert [info["episode"]["l"] for info in infos] == [2] * 4
    assert [(info["is_success"], info["TimeLimit.truncated"]) for info in infos] == [(False, True)] * 4


def test_methods_and_attributes_are_those_of_each_board():
    venv = make_vec_env(ENV, 4, seed=0, render_mode="rgb_array")
    venv.reset()
    assert is_masking_supported(venv)
    assert get_action_masks(venv).shape == (4, 4)
    assert len(venv.env_method("action_masks", indices=[1, 2])) == 2
    assert venv.get_attr("render_mode") == ["rgb_array"] * 4
    assert len(venv.get_images()) == 4
    assert venv.render().shape == (2 * 192, 2 * 192, 3)
    assert not venv.has_attr("no_such_name")


@pytest.mark.parametrize("algorithm", [PPO, MaskablePPO, DQN])
def test_a_policy_with_convolutions_learns_is_saved_and_measured(algorithm, tmp_path):
    settings = {"n_steps": 8, "batch_size": 32} if algorithm is not DQN else {"learning_starts": 8}
    venv = VecCheckNan(make_vec_env(ENV, 8, seed=0, **SHORT), raise_exception=True)
    model = algorithm("CnnPolicy", venv, policy_kwargs=POLICY_KWARGS, seed=0, device="cpu", **settings)
    model.learn(128)
    assert len(model.ep_success_buffer) == len(model.ep_info_buffer) > 0
    model.save(tmp_path / "model.zip")
    loaded = algorithm.load(tmp_path / "model.zip", device="cpu")
    observations = make_vec_env(ENV, 5, seed=1, **SHORT).reset()
    assert np.array_equal(
        model.predict(observations, deterministic=True)[0],
        loaded.predict(observations, deterministic=True)[0],
    )
    if algorithm is MaskablePPO:
        mean, _ = evaluate_policy(model, make_vec_env(ENV, 4, seed=2, **SHORT), n_eval_episodes=8)
        assert np.isfinite(mean)


def test_wrappers_of_stable_baselines3_go_around_the_boards():
    venv = VecFrameStack(VecNormalize(make_vec_env(ENV, 3, seed=0, **SHORT), norm_obs=False), 2, "first")
    assert venv.reset().shape == (3, 14, 6, 6)
    for _ in range(10):
        observations, rewards, _, _ = venv.step(np.array([3, 1, 0]))
    assert observations.shape == (3, 14, 6, 6)
    assert np.isfinite(rewards).all()


def test_what_has_no_boards_that_are_stepped_together_is_refused():
    with pytest.raises(ValueError, match="ChooseReply"):
        make_vec_env("MemToolQA-v0", 2)
    with pytest.raises(ValueError, match="max_steps"):
        make_vec_env(ENV, 2, max_stepz=3)
    with pytest.raises(gym.error.NameNotFound, match="MemSokobanGrid-v0"):
        make_vec_env("MemSokobanGrd-v0", 2)
