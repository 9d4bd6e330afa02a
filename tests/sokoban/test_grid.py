"""Sokoban one move at a time, on one board and on many."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import memenvs
from memenvs.core.episode import Episode
from memenvs.rollout.collect import begin
from memenvs.sokoban import parse
from memenvs.sokoban.grid import SokobanGridEnv, SokobanVectorEnv, allowed, planes
from memenvs.wrappers import ChooseReply


@pytest.mark.parametrize("channels_first", [False, True])
def test_check_env_finds_nothing_to_warn_of(channels_first, recwarn):
    check_env(gym.make("MemSokobanGrid-v0", channels_first=channels_first).unwrapped)
    assert not recwarn.list


def test_planes_are_one_hot_in_the_order_of_the_symbols():
    board = parse("#_O√XPS", "#_O√XPS")
    assert (planes(board)[0] == np.eye(7, dtype=np.uint8)).all()
    assert (planes(board, channels_first=True)[:, 0] == np.eye(7, dtype=np.uint8)).all()


def test_an_episode_is_recorded_under_the_id_of_its_level():
    request = begin(SokobanGridEnv(), Episode(seed=4))
    assert request.episode.task == f"level-{request.info['level']}"


def test_a_shortest_solution_solves_and_earns():
    env = SokobanGridEnv()
    env.reset(seed=4)
    moves = env.levels[env._level].moves
    rewards = [env.step(move)[1] for move in moves[:-1]]
    _, reward, terminated, truncated, info = env.step(moves[-1])
    assert sum(rewards) == pytest.approx(-0.1 * (len(moves) - 1))
    assert (reward, terminated, truncated, info["success"]) == (11.0, True, False, 1.0)


# The target is at the left wall: a box pushed right twice is at the right wall and never comes back.
LEVEL = "######\n#    #\n#@$  #\n#.   #\n######\n"


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "level.txt"
    file.write_text(LEVEL)
    return str(file)


def test_the_step_limit_truncates_and_a_deadlock_is_reported(path):
    env = SokobanGridEnv(path, None, max_steps=4)
    env.reset(seed=0)
    played = [env.step(action) for action in (3, 3, 3, 0)]  # two pushes: the box is at the right wall
    assert [step[2:4] for step in played] == [(False, False)] * 3 + [(False, True)]
    assert [step[4]["deadlocked"] for step in played] == [0.0, 1.0, 1.0, 1.0]


SOLVED = "######\n#    #\n#@$. #\n#    #\n######\n"


def test_a_solved_level_is_over_also_in_its_state(tmp_path):
    (tmp_path / "level.txt").write_text(SOLVED)
    env = SokobanGridEnv(str(tmp_path / "level.txt"), None)
    env.reset(seed=0)
    assert env.step(3)[2]
    state = memenvs.get_state(env)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(3)
    env.reset()
    memenvs.set_state(env, state)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(3)


@pytest.mark.parametrize("call", [lambda env: env.step(0), memenvs.get_state, SokobanGridEnv.render])
def test_boards_must_be_reset_first(call):
    with pytest.raises(gym.error.ResetNeeded):
        call(SokobanGridEnv())
    with pytest.raises(gym.error.ResetNeeded):
        SokobanVectorEnv(num_envs=2).step([0, 0])


@pytest.mark.parametrize("action", [7, -1, 1.5, None])
def test_an_action_that_is_no_move_is_refused(action):
    env = SokobanGridEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError):
        env.step(action)


@pytest.mark.parametrize("options", [{"tsk": 3}, {"task": 1.0}, {"task": -1}])
def test_an_option_that_picks_no_level_is_refused(options):
    with pytest.raises(ValueError):
        SokobanGridEnv().reset(options=options)


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({"task": 3}, [3, 3, 3]),
        ({"task": np.array([1, 0, 2])}, [1, 0, 2]),
    ],
)
def test_tasks_of_many_boards_are_one_for_all_or_one_each(options, tasks):
    venv = SokobanVectorEnv(3)
    assert venv.reset(options=options)[1]["level"].tolist() == venv._single.chosen[tasks].tolist()


@pytest.mark.parametrize("seed", [3, np.array([3, 4, 5])])
def test_seeds_of_many_boards_are_a_first_one_or_one_each(seed):
    singles = [SokobanGridEnv().reset(seed=s)[1]["level"] for s in (3, 4, 5)]
    assert SokobanVectorEnv(3).reset(seed=seed)[1]["level"].tolist() == singles


@pytest.mark.parametrize(
    "kwargs",
    [
        {"options": {"task": [-1, 0, 1]}},
        {"options": {"task": [1, 2]}},
        {"options": {"tsk": 1}},
        {"seed": [1]},
    ],
    ids=str,
)
def test_a_reset_that_does_not_fit_is_refused_and_changes_nothing(kwargs):
    venv, other = SokobanVectorEnv(3), SokobanVectorEnv(3)
    for each in (venv, other):
        each.reset(seed=0)
    with pytest.raises(ValueError):
        venv.reset(**kwargs)
    assert_equal(venv.reset(), other.reset())


@pytest.mark.parametrize("actions", [[0], [0, 1, 4], [0, 1, -1], [0.0, 1.0, 2.0]])
def test_actions_that_do_not_fit_move_no_board(actions):
    venv = SokobanVectorEnv(3)
    before = venv.reset(seed=0)[0].copy()
    with pytest.raises(ValueError):
        venv.step(actions)
    assert (venv._observe() == before).all()


@pytest.mark.parametrize("mode", ["ansi", "rgb_array", None])
def test_many_boards_are_shown_as_single_ones(mode):
    venv, env = SokobanVectorEnv(2, render_mode=mode), SokobanGridEnv(render_mode=mode)
    venv.reset(seed=5)
    env.reset(seed=5)
    shown = venv.render()
    assert shown is None if mode is None else np.array_equal(shown[0], env.render()) and len(shown) == 2


# Up is a wall, down a box before a wall, left is free, right a box before a free square.
MASKED = "#######\n# @$ .#\n#.$   #\n#######\n"


def test_masks_allow_the_moves_that_change_something(tmp_path):
    (tmp_path / "level.txt").write_text(MASKED)
    levels = str(tmp_path / "level.txt")
    env, venv = SokobanGridEnv(levels), SokobanVectorEnv(2, levels=levels)
    env.reset(seed=0)
    venv.reset(seed=0)
    assert env.action_masks().tolist() == [False, False, True, True]
    assert venv.action_masks().tolist() == [[False, False, True, True]] * 2
    choose = ChooseReply(gym.make("memenvs:MemSokoban-v0", levels=levels, min_solution=1, max_turns=9))
    choose.reset(seed=0)
    assert choose.action_masks().tolist() == [False, False, True, True]


def test_masks_allow_every_move_where_none_changes_anything():
    masks = np.array([[False] * 4, [True, False, False, False]])
    assert allowed(masks).tolist() == [[True] * 4, [True, False, False, False]]


def test_a_state_resumes():
    env, other = SokobanGridEnv(), SokobanGridEnv()
    env.reset(seed=1)
    env.step(1)
    memenvs.set_state(other, memenvs.get_state(env))
    went_on = [[e.step(action) for action in (0, 2, 3)] + [e.reset()] for e in (env, other)]
    assert data_equivalence(*went_on)


def test_make_vec_takes_the_array_engine():
    venv = gym.make_vec("MemSokobanGrid-v0", num_envs=5)
    assert isinstance(venv.unwrapped, SokobanVectorEnv)
    assert venv.reset(seed=0)[0].shape == (5, 6, 6, 7)


@pytest.mark.parametrize("channels_first", [False, True])
def test_many_boards_are_single_ones(channels_first):
    steps = played_alike(6, 60, max_steps=7, channels_first=channels_first, max_solution=6)
    assert sum((step[2] | step[3]).sum() for step in steps) > 20


def test_boards_may_begin_again_in_the_step_that_ends_them():
    mode, ends = AutoresetMode.SAME_STEP, 0
    ours = SokobanVectorEnv(6, mode, max_steps=7)
    theirs = SyncVectorEnv([lambda: SokobanGridEnv(max_steps=7)] * 6, autoreset_mode=mode)
    assert_equal(ours.reset(seed=3), theirs.reset(seed=3))
    rng = np.random.default_rng(0)
    for _ in range(20):
        moves = rng.integers(0, 4, 6)
        (*boards, infos), (*expected_boards, expected) = ours.step(moves), theirs.step(moves)
        assert_equal(boards, expected_boards)
        for row in np.flatnonzero(infos.get("_final_info", [])):
            final, expected_final = infos["final_info"], expected["final_info"]
            assert {name: final[name][row] for name in expected_final} == {
                name: expected_final[name][row] for name in expected_final
            }
            ends += 1
        finals = [each.pop("final_obs", ()) for each in (infos, expected)]
        assert all(map(np.array_equal, *finals))
        for each in (infos, expected):
            each.pop("final_info", None)
        np.testing.assert_equal(infos, expected)
    assert ends > 6
    with pytest.raises(ValueError, match="DISABLED"):
        SokobanVectorEnv(2, AutoresetMode.DISABLED)


# Two levels of different sizes without a known solution, whose boxes are soon frozen.
PAIRS = """\
#######
#     #
# $$  #
#  @..#
#######

########
#      #
#  $$  #
#   @..#
#      #
########
"""


def test_many_boards_of_two_boxes_are_lost_where_single_ones_are(tmp_path):
    (tmp_path / "levels.txt").write_text(PAIRS)
    steps = played_alike(8, 100, levels=str(tmp_path / "levels.txt"), max_steps=20)
    assert 0 < np.mean([step[4]["deadlocked"].mean() for step in steps]) < 1


def played_alike(boards, steps, **kwargs):
    """Steps of random moves, which are those of so many single environments."""
    ours = SokobanVectorEnv(num_envs=boards, **kwargs)
    theirs = SyncVectorEnv([lambda: SokobanGridEnv(**kwargs)] * boards)
    assert ours.observation_space == theirs.observation_space
    assert_equal(ours.reset(seed=3), theirs.reset(seed=3))
    rng, played = np.random.default_rng(0), []
    for _ in range(steps):
        actions = rng.integers(0, 4, boards)
        played.append(ours.step(actions))
        assert_equal(played[-1], theirs.step(actions))
        assert ours.observation_space.contains(np.ascontiguousarray(played[-1][0]))
    return played


def assert_equal(ours, theirs):
    """Compare what a reset or a step returned."""
    assert len(ours) == len(theirs)
    for mine, gymnasiums in zip(ours, theirs, strict=True):
        np.testing.assert_equal(mine, gymnasiums)


def test_observations_are_not_changed_by_later_steps():
    venv = SokobanVectorEnv(num_envs=4)
    first, _ = venv.reset(seed=0)
    kept = first.copy()
    for _ in range(10):
        venv.step(np.array([0, 1, 2, 3]))
    assert (first == kept).all()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"max_steps": 0},
        {"rewards": "x"},
        {"render_mode": "human"},
        {"levels": "nowhere.npz"},
        {"level_split": "dev"},
    ],
)
def test_a_wrong_argument_is_refused(kwargs):
    with pytest.raises((ValueError, FileNotFoundError)):
        SokobanGridEnv(**kwargs)
