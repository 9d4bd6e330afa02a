"""Sokoban a move at a time, one board and many."""

import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from memenvs.envs.sokoban_grid import SokobanGridEnv, planes
from memenvs.envs.sokoban_vector import SokobanVectorEnv
from memenvs.sokoban import parse

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


@pytest.mark.parametrize("channels_first", [False, True])
def test_check_env_finds_nothing_to_warn_of(channels_first, recwarn):
    check_env(gym.make("MemSokobanGrid-v0", channels_first=channels_first).unwrapped)
    assert not recwarn.list


def test_planes_are_one_hot_in_the_order_of_the_symbols():
    board = parse("#_O√XPS", "#_O√XPS")
    assert (planes(board)[0] == np.eye(7, dtype=np.uint8)).all()
    assert (planes(board, channels_first=True)[:, 0] == np.eye(7, dtype=np.uint8)).all()


def test_a_shortest_solution_solves_and_earns():
    env = SokobanGridEnv()
    env.reset(seed=4)
    moves = env.levels[env._level].moves
    rewards = [env.step(move)[1] for move in moves[:-1]]
    _, reward, terminated, truncated, info = env.step(moves[-1])
    assert sum(rewards) == pytest.approx(-0.1 * (len(moves) - 1))
    assert (reward, terminated, truncated, info["success"]) == (11.0, True, False, 1.0)


def test_the_step_limit_truncates_and_a_deadlock_is_reported():
    env = SokobanGridEnv(max_steps=4)
    env.reset(seed=0)
    ends = [env.step(0)[2:4] for _ in range(4)]
    assert ends[-1] == (False, True)


def test_a_state_goes_on_as_it_was():
    env, other = SokobanGridEnv(), SokobanGridEnv()
    env.reset(seed=1)
    env.step(1)
    other.set_state(pickle.loads(pickle.dumps(env.get_state())))
    went_on = [[e.step(action) for action in (0, 2, 3)] + [e.reset()] for e in (env, other)]
    assert data_equivalence(*went_on)


def test_make_vec_takes_the_array_engine():
    venv = gym.make_vec("MemSokobanGrid-v0", num_envs=5)
    assert isinstance(venv.unwrapped, SokobanVectorEnv)
    assert venv.reset(seed=0)[0].shape == (5, 6, 6, 7)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("channels_first", [False, True])
def test_many_boards_are_single_ones_in_every_autoreset_mode(mode, channels_first):
    kwargs = {"max_steps": 7, "channels_first": channels_first, "max_solution": 6}
    ours = SokobanVectorEnv(num_envs=6, autoreset_mode=mode, **kwargs)
    theirs = SyncVectorEnv([lambda: SokobanGridEnv(**kwargs)] * 6, autoreset_mode=mode)
    assert ours.observation_space == theirs.observation_space
    assert_equal(ours.reset(seed=3), theirs.reset(seed=3))
    rng, ended = np.random.default_rng(0), 0
    for _ in range(60):
        actions = rng.integers(0, 4, 6)
        mine, gymnasiums = ours.step(actions), theirs.step(actions)
        assert_equal(mine, gymnasiums)
        assert ours.observation_space.contains(np.ascontiguousarray(mine[0]))
        over = mine[2] | mine[3]
        ended += over.sum()
        if mode is AutoresetMode.DISABLED and over.any():
            assert_equal(
                ours.reset(options={"reset_mask": over.copy()}),
                theirs.reset(options={"reset_mask": over.copy()}),
            )
    assert ended > 20


def assert_equal(ours, theirs):
    """Compare what a reset or a step returned; of infos, the values their masks call valid."""
    *arrays, infos = ours
    *expected, their_infos = theirs
    for array, other in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(array, other)
    assert set(their_infos) <= set(infos)
    compare_infos(infos, their_infos)


def compare_infos(infos, expected):
    for name in (name for name in expected if not name.startswith("_")):
        mask = expected[f"_{name}"]
        np.testing.assert_array_equal(infos[f"_{name}"], mask)
        if isinstance(expected[name], dict):
            compare_infos_masked(infos[name], expected[name], mask)
        else:
            for row in np.flatnonzero(mask):
                np.testing.assert_allclose(infos[name][row], expected[name][row])


def compare_infos_masked(infos, expected, mask):
    for name in (name for name in expected if not name.startswith("_")):
        np.testing.assert_allclose(infos[name][mask], expected[name][mask])


def test_observations_are_not_changed_by_later_steps():
    venv = SokobanVectorEnv(num_envs=4)
    first, _ = venv.reset(seed=0)
    kept = first.copy()
    for _ in range(10):
        venv.step(np.array([0, 1, 2, 3]))
    assert (first == kept).all()


def test_a_finished_board_is_not_stepped_without_autoreset():
    venv = SokobanVectorEnv(num_envs=2, autoreset_mode="Disabled", max_steps=1)
    venv.reset(seed=0)
    venv.step([0, 0])
    with pytest.raises(ValueError, match="reset_mask"):
        venv.step([0, 0])


def test_stepping_before_a_reset_is_refused():
    with pytest.raises(gym.error.ResetNeeded):
        SokobanVectorEnv(num_envs=2).step([0, 0])


def test_the_spec_rebuilds_through_json():
    env = gym.make("MemSokobanGrid-v0", max_steps=9)
    rebuilt = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert data_equivalence(env.reset(seed=2), rebuilt.reset(seed=2))


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"max_steps": 0}, "max_steps"),
        ({"rewards": "x"}, "mt_ppo"),
        ({"render_mode": "human"}, "render_mode"),
        ({"levels": "nowhere.npz"}, "nowhere.npz"),
        ({"level_split": "dev"}, "train, validation, test"),
    ],
)
def test_a_wrong_argument_is_one_line_at_the_door(kwargs, said):
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        SokobanGridEnv(**kwargs)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_task_can_be_chosen_by_number():
    env = SokobanGridEnv()
    assert env.reset(options={"task": 3})[1]["level"] == int(env.chosen[3])
    with pytest.raises(ValueError, match="task"):
        env.reset(options={"task": -1})
