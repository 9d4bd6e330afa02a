"""Sokoban in turns: rewards, tolerated mistakes, and texts."""

import itertools
import os

import gymnasium as gym
import pytest
from reference_values import cases

from memenvs.core.text import in_order
from memenvs.rollout.scripted import make_policy
from memenvs.sokoban import LevelError
from memenvs.sokoban.environments import SokobanEnv, read_moves

# One box: right, then down, down puts it on the target; the box could also go on along the row.
LEVEL = """\
#######
#     #
#@$.  #
#     #
#     #
#######
"""


@pytest.fixture
def make(tmp_path):
    def build(text=LEVEL, **kwargs):
        path = tmp_path / f"{len(os.listdir(tmp_path))}.txt"  # a file is read once
        path.write_text(text)
        env = SokobanEnv(**{"levels": str(path), "min_solution": 1, **kwargs})
        env.reset(seed=0)
        return env

    return build


def reply(*moves):
    return f"<think>so</think><answer>{' || '.join(moves)}</answer>"


@pytest.mark.parametrize(("rewards", "earned"), [("mt_ppo", 16.0), ("bounded", -4.0)])
def test_idling_in_form_pays_more_than_solving_unless_rewards_are_bounded(make, rewards, earned):
    env = make(rewards=rewards, max_turns=40)  # of walking up, into the wall; the best solution earns 11.5
    assert sum(env.step(reply("Up"))[1] for _ in range(40)) == pytest.approx(earned)


TWO_BOXES = """\
#########
#       #
#@$.  . #
#   $   #
#       #
#########
"""


@pytest.mark.parametrize(("rewards", "placement"), [("mt_ppo", 2.0), ("bounded", 1.0)])
def test_a_box_pushed_on_and_off_and_on_again_pays_once_in_bounded_rewards(make, rewards, placement):
    env = make(TWO_BOXES, rewards=rewards, max_actions=20)
    around = ["Up", "Right", "Right", "Down"]  # to the other side of the box
    info = env.step(reply("Right", "Right", *around, "Left"))[4]  # on, off, and back on from the right
    assert info["rewards"]["placement"] == placement


UNSOLVED = reply("Up", "Down", "Up")
SOLVED = reply("Right")


@pytest.mark.parametrize(
    ("rewards", "text", "outcome", "placement", "form", "step"),
    [
        ("mt_ppo", SOLVED, 10.0, 1.0, 0.5, 0.0),
        ("mt_ppo", UNSOLVED, 0.0, 0.0, 0.5, -0.3),
        ("classic", SOLVED, 10.0, 1.0, 0.0, -0.1),
        ("outcome", SOLVED, 10.0, 0.0, 0.0, 0.0),
        ("outcome", UNSOLVED, 0.0, 0.0, 0.0, 0.0),
        ("bounded", "Up", 0.0, 0.0, -0.5, 0.0),
        ("bounded", UNSOLVED, 0.0, 0.0, 0.0, -0.3),
        ({"outcome": 1.0, "step": -0.5}, reply("Up", "Down", "Right"), 1.0, 0.0, 0.0, -1.0),
    ],
)
def test_a_turn_earns_what_its_weights_say(make, rewards, text, outcome, placement, form, step):
    env = make(rewards=rewards)
    _, reward, terminated, _, info = env.step(text)
    earned = {"outcome": outcome, "placement": placement, "format": form, "step": pytest.approx(step)}
    assert (info["rewards"], reward) == (earned, pytest.approx(outcome + placement + form + step))
    assert terminated == (outcome > 0)


@pytest.mark.parametrize(
    ("text", "actions", "well_formed"),
    [
        (reply("up", " RIGHT ", "lEfT"), (0, 3, 2), True),
        (reply(*["Up"] * 5), (0, 0, 0), True),  # more than a turn allows
        ("<think></think><answer>\nUp\n||\nDown\n</answer>\n", (0, 1), True),
        ("<think>t</think><answer>Up || || Down ||</answer>", (0, 1), True),
        (reply("Up", "Jump", "Down"), (0,), False),
        ("<think>t</think><answer>Up, Down</answer>", (), False),
        ("<answer>Up</answer>", (0,), False),
        ("<think>t<answer>Up</answer></think><answer>Down</answer>", (1,), True),
        ("<think>t</think><answer>Up", (), False),
        ("", (), False),
    ],
)
def test_a_reply_is_read_forgivingly_and_its_form_strictly(text, actions, well_formed):
    moves = read_moves(text, 3)
    assert (moves.actions, moves.well_formed) == (actions, well_formed)
    assert well_formed or moves.remark


def test_an_unknown_word_costs_the_format_and_is_named_in_the_observation(make):
    env = make()
    observation, _, _, _, info = env.step(reply("Up", "Jump", "Down"))
    assert info["rewards"]["format"] == 0.0
    assert "'Jump' is not a move" in observation
    assert info["rewards"]["step"] == pytest.approx(-0.1)


def test_the_limits_of_turns_and_of_steps_truncate(make):
    env = make(max_turns=3)
    assert [env.step("nothing")[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    env = make(max_steps=2)
    _, _, terminated, truncated, info = env.step(reply("Up", "Up", "Up"))
    assert (terminated, truncated, info["metrics"]["steps"]) == (False, True, 2.0)


def test_metrics_count_moves_that_moved_the_player_and_the_box(make):
    env = make(max_turns=1, max_actions=4)
    # left into the wall, up, down, right with the box: 3 of 4 moved the player, 1 the box
    metrics = env.step(reply("Left", "Up", "Down", "Right"))[4]["metrics"]
    assert metrics["effective_player"] == 0.75
    assert metrics["effective_box"] == 0.25
    assert metrics["success"] == 1.0


def test_a_deadlock_is_reported(make):
    env = make("#####\n#@  #\n# $.#\n#   #\n#   #\n#####\n", max_turns=2)
    info = env.step(reply("Right", "Down", "Down"))[4]  # now at the lower wall
    assert info["privileged"]["deadlocked"] is True
    assert env.step("")[4]["metrics"]["deadlocked"] == 1.0


# Shortest solutions: 1 move; 13 moves. The last two are solved and lost at the start.
ONE = "######\n#@$. #\n######\n"
THIRTEEN = "##########\n#@       #\n# ###### #\n#      # #\n# #### # #\n#.$    # #\n##########\n"
SOLVED_AT_START = "######\n#@*  #\n######\n"
LOST_AT_START = "######\n#$ .@#\n######\n"


@pytest.mark.parametrize(
    ("limits", "chosen"),
    [
        ({"min_solution": 1}, [0]),  # three turns of three moves
        ({"min_solution": 1, "max_turns": 5}, [0, 1]),
        ({"min_solution": 5, "max_solution": 13}, [1]),
        ({"min_solution": 1, "max_solution": 12}, [0]),
    ],
)
def test_levels_of_a_text_are_chosen_by_their_shortest_solutions(make, limits, chosen):
    env = make(f"{ONE}\n{THIRTEEN}", **limits)
    assert env.chosen.tolist() == chosen
    _, info = env.reset(options={"task": len(chosen) - 1})
    assert len(info["privileged"]["solution"]) == (13 if chosen[-1] else 1)


@pytest.mark.parametrize("env_id", ["MemSokoban-v0", "MemSokobanGrid-v0"])
def test_levels_that_are_solved_or_lost_at_the_start_are_left_out_and_named(tmp_path, env_id):
    path = tmp_path / "levels.txt"
    path.write_text("\n".join([SOLVED_AT_START, ONE, LOST_AT_START]))
    with pytest.warns(UserWarning, match=r"level 0 .*; level 2 "):
        env = gym.make(f"memenvs:{env_id}", levels=str(path), min_solution=1)
    assert env.unwrapped.chosen.tolist() == [1]


@pytest.mark.parametrize(
    ("text", "limits"), [(SOLVED_AT_START, {}), (LOST_AT_START, {}), (ONE, {"min_solution": 5})]
)
def test_a_text_with_nothing_to_play_is_refused(make, text, limits):
    with pytest.raises(LevelError):
        make(text, **limits)


# Eight boxes in an empty hall: a search for the shortest solution does not end.
HALL = "\n".join(
    [
        "##############",
        "#@           #",
        "#  $ $ $ $   #",
        "#            #",
        "#   $ $ $ $  #",
        "#            #",
        "#            #",
        "#........    #",
        "##############",
    ]
)


def test_a_level_that_takes_long_to_solve_is_refused_where_its_length_matters(make, monkeypatch):
    monkeypatch.setattr("memenvs.sokoban.environments.SEARCH_BUDGET", {"nodes": 100})
    with pytest.raises(LevelError):
        make(HALL, max_turns=1000, max_steps=3000)


def test_the_gold_policy_ends_on_a_level_that_takes_long_to_solve(tmp_path, monkeypatch):
    monkeypatch.setattr("memenvs.rollout.scripted.GOLD_BUDGET", {"nodes": 100})
    (tmp_path / "hall.txt").write_text(HALL)
    env = gym.make("memenvs:MemSokobanGrid-v0", levels=str(tmp_path / "hall.txt"), max_steps=5)
    policy = make_policy("gold", env)
    observation, info = env.reset()
    for _ in range(5):
        observation, _, _, truncated, info = env.step(policy(observation, info))
    assert truncated


def test_the_gold_policy_solves_from_where_another_left_off(make):
    env = make(THIRTEEN, max_turns=6, max_actions=4)
    over, info = False, env.step(reply("Right", "Left", "Right"))[4]
    while not over:
        *_, terminated, truncated, info = env.step(env.gold_reply())
        over = terminated or truncated
    assert info["metrics"]["success"] == 1.0


def test_each_level_of_a_set_is_shown_in_its_own_size(make):
    env = make(f"{ONE}\n{THIRTEEN}", max_turns=5)
    first, _ = env.reset(options={"task": 0})
    assert "\n\n######\n#PXO_#\n######\n\n" in first
    second, _ = env.reset(options={"task": 1})
    assert "\n\n##########\n#P_______#\n" in second


def test_pictures_of_different_sizes_fill_one_space(tmp_path):
    (tmp_path / "levels.txt").write_text(f"{ONE}\n{THIRTEEN}")
    env = gym.make(
        "memenvs:MemSokobanImage-v0", levels=str(tmp_path / "levels.txt"), min_solution=1, max_turns=5, tile=4
    )
    small, _ = env.reset(options={"task": 0})
    assert small in env.observation_space
    assert small["image"].shape == (28, 40, 3)


def read_alike(case):
    """Whether we mean to read the reply as RAGEN does, but for unknown words; see docs/decisions.md."""
    text = case["input"]["response"]
    if not case["input"]["enable_think"] or "<|" in text:
        return False
    pairs = in_order(text, "think", "answer")
    return pairs is not None and "<" not in pairs[1].text


@pytest.mark.parametrize("case", [*filter(read_alike, cases("ragen_parse_response"))])
def test_where_ragen_drops_an_unknown_word_our_list_ends(case):
    number = {name: i for i, name in enumerate(("up", "down", "left", "right"))}
    text, most = case["input"]["response"], case["input"]["max_actions_per_turn"]
    words = [word.lower() for word in case["output"]["actions"]]
    ours = read_moves(text, most)
    known = list(itertools.takewhile(number.__contains__, words))
    assert ours.actions == tuple(number[word] for word in known)[:most]
    assert ours.well_formed == (not case["output"]["format_penalty_applied"])


@pytest.mark.parametrize(
    "kwargs",
    [
        {"rewards": "huge"},
        {"rewards": {"outcom": 1.0}},
        {"max_turns": 0},
        {"max_actions": -1},
        {"min_solution": 50, "levels": "sokoban_6x6_1box", "level_split": "train"},
        {"render_mode": "human"},
    ],
)
def test_a_wrong_argument_is_refused(make, kwargs):
    with pytest.raises(ValueError):
        make(**kwargs)


def test_every_level_of_the_default_can_be_solved_within_its_turns():
    lengths = [
        env.levels.lengths[env.chosen]
        for split in ("train", "validation", "test")
        for env in [SokobanEnv(level_split=split)]
    ]
    assert all(((part >= 5) & (part <= 9)).all() and len(part) > 400 for part in lengths)


def test_the_picture_is_the_board_in_the_text():
    env = gym.make("MemSokobanImage-v0", tile=16)
    observation, _ = env.reset(seed=1)
    assert observation["image"].shape == (96, 96, 3)
    env = gym.make("MemSokoban-v0", render_mode="rgb_array")
    assert observation["text"] == env.reset(seed=1)[0]
    assert env.render().shape == (192, 192, 3)
