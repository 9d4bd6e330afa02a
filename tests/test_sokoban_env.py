"""Sokoban in turns: rewards, tolerated mistakes, and texts."""

import itertools
import os

import gymnasium as gym
import pytest
from reference_values import cases

from memenvs.core.text import in_order
from memenvs.envs.sokoban import SokobanEnv, read_moves

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
        return SokobanEnv(**{"levels": str(path), "level_split": None, **kwargs})

    return build


def reply(*moves):
    return f"<think>so</think><answer>{' || '.join(moves)}</answer>"


@pytest.mark.parametrize(("rewards", "earned"), [("mt_ppo", 16.0), ("bounded", -4.0)])
def test_idling_in_form_pays_more_than_solving_unless_rewards_are_bounded(make, rewards, earned):
    env = make(rewards=rewards, max_turns=40)  # of walking up, into the wall; the best solution earns 11.5
    env.reset(seed=0)
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
    env.reset(seed=0)
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
    env.reset(seed=0)
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
    env.reset(seed=0)
    observation, _, _, _, info = env.step(reply("Up", "Jump", "Down"))
    assert info["rewards"]["format"] == 0.0
    assert "'Jump' is not a move" in observation
    assert info["rewards"]["step"] == pytest.approx(-0.1)


def test_the_limits_of_turns_and_of_steps_truncate(make):
    env = make(max_turns=3)
    env.reset(seed=0)
    assert [env.step("nothing")[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    env = make(max_steps=2)
    env.reset(seed=0)
    _, _, terminated, truncated, info = env.step(reply("Up", "Up", "Up"))
    assert (terminated, truncated, info["metrics"]["steps"]) == (False, True, 2.0)


def test_metrics_count_moves_that_moved_the_player_and_the_box(make):
    env = make(max_turns=1, max_actions=4)
    env.reset(seed=0)
    # left into the wall, up, down, right with the box: 3 of 4 moved the player, 1 the box
    metrics = env.step(reply("Left", "Up", "Down", "Right"))[4]["metrics"]
    assert metrics["effective_player"] == 0.75
    assert metrics["effective_box"] == 0.25
    assert metrics["success"] == 1.0


def test_a_deadlock_is_reported_also_before_any_move(make):
    env = make("#####\n#@  #\n# $.#\n#   #\n#   #\n#####\n", max_turns=2)
    env.reset(seed=0)
    info = env.step(reply("Right", "Down", "Down"))[4]  # now at the lower wall
    assert info["privileged"]["deadlocked"] is True
    assert env.step("")[4]["metrics"]["deadlocked"] == 1.0
    lost = make("######\n#$ @ #\n#  . #\n#    #\n######\n")
    assert lost.reset(seed=0)[1]["privileged"]["deadlocked"] is True


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
    ("kwargs", "said"),
    [
        ({"rewards": "huge"}, "mt_ppo, classic, outcome, bounded"),
        ({"rewards": {"outcom": 1.0}}, "outcom"),
        ({"max_turns": 0}, "max_turns"),
        ({"max_actions": -1}, "max_actions"),
        ({"min_solution": 50, "levels": "sokoban_6x6_1box", "level_split": "train"}, "5 to 21"),
        ({"render_mode": "human"}, "render_mode"),
    ],
)
def test_a_wrong_argument_is_refused(make, kwargs, said):
    with pytest.raises(ValueError, match=said):
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
