import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_values import cases

from memenvs.sokoban import LETTERS, Board, BoardBatch, Step, parse, to_text
from memenvs.sokoban.board import BOX, PLAYER, TARGET, WALL, read_masks, squares
from memenvs.sokoban.environments import REWARDS
from memenvs.sokoban.solver import frozen_boxes, is_deadlocked

CLASSIC = REWARDS["classic"]
CORRIDOR = "#######\n#PX_O_#\n#######"
UP, DOWN, LEFT, RIGHT = range(4)


def classic_reward(step: Step) -> float:
    return sum(CLASSIC.components(step))


def board_of(text: str) -> Board:
    return Board(parse(text, LETTERS))


def reference_step(board: Board, action: int) -> Step:
    """One action of gym-sokoban: 0 nothing, 1 to 4 push or move, 5 to 8 move only."""
    free = Board(board.grid)
    step = free.step((action - 1) % 4)
    if action == 0 or (action > 4 and step.moved_box):
        return Step(False, False, False, False, board.solved)
    return board.step((action - 1) % 4)


def replay_reference(case: dict, text_key: str) -> None:
    """Play a case to its first `done`, and compare board, reward and end after every step.

    The originals count boxes on targets from 0 at a reset, also where one stands there already, and as boxes
    less empty targets: the first reward is the change from there. Ours counts what is on the board.
    """
    inputs, board = case["input"], board_of(case["input"]["board"])
    counted = board.targets - inputs["num_boxes"]
    for number, expected in enumerate(case["output"], 1):
        step = reference_step(board, expected["action"])
        gained = int(np.sign(board.placed - counted))
        counted = board.placed
        assert to_text(board.grid) == expected[text_key]
        reward = classic_reward(step._replace(pushed_on=gained == 1, pushed_off=gained == -1))
        assert reward == pytest.approx(expected["reward"], abs=1e-5)
        assert expected["done"] == (step.solved or number >= inputs["max_steps"])
        info = expected.get("info", {})
        if "action.moved_player" in info:
            moved = info["action.moved_player"], info["action.moved_box"]
            assert (step.moved_player, step.moved_box) == moved
        if number > 1:
            assert gained == step.pushed_on - step.pushed_off
        if expected["done"]:
            return


def bordered(name: str) -> list[dict]:
    return [case for case in cases(name) if case["input"]["bordered"]]


@pytest.mark.parametrize("case", bordered("gym_sokoban_transitions"))
def test_boards_rewards_and_moves_are_those_of_gym_sokoban(case):
    replay_reference(case, "board")


@pytest.mark.parametrize("case", bordered("ragen_sokoban_transitions"))
def test_boards_and_rewards_are_those_of_ragen(case):
    replay_reference(case, "obs")


def test_a_box_from_target_to_target_is_neither_on_nor_off():
    board = board_of("######\n#P√O_#\n#_X__#\n######")
    assert board.step(RIGHT) == Step(True, True, False, False, False)


def test_an_action_that_does_not_exist_is_an_error_on_one_board():
    with pytest.raises(KeyError):
        board_of(CORRIDOR).step(-1)


@st.composite
def boards(draw):
    height, width = draw(st.integers(3, 8)), draw(st.integers(4, 9))
    cells = st.sampled_from([0, 0, 0, WALL, BOX, TARGET, BOX | TARGET])
    count = draw(st.integers(1, 5))
    inner = draw(
        st.lists(
            st.lists(cells, min_size=(height - 2) * (width - 2), max_size=(height - 2) * (width - 2)),
            min_size=count,
            max_size=count,
        )
    )
    stack = np.full((count, height, width), WALL, np.uint8)
    stack[:, 1:-1, 1:-1] = np.array(inner, np.uint8).reshape(count, height - 2, width - 2)
    for board in stack:
        row, column = draw(st.integers(1, height - 2)), draw(st.integers(1, width - 2))
        board[row, column] = board[row, column] & TARGET | PLAYER
    return stack


@settings(max_examples=60)
@given(boards(), st.lists(st.integers(0, 3), min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_one_board_and_a_batch_agree_on_every_step(stack, actions, random):
    batch, singles = BoardBatch(stack), [Board(board) for board in stack]
    for action in actions:
        chosen = [(action + random.randrange(4)) % 4 for _ in singles]
        together = batch.step(np.array(chosen))
        alone = [board.step(a) for board, a in zip(singles, chosen, strict=True)]
        for field, values in together._asdict().items():
            assert values.tolist() == [getattr(step, field) for step in alone]
        assert CLASSIC.totals(together).tolist() == pytest.approx([classic_reward(step) for step in alone])
        np.testing.assert_array_equal(batch.cells, [board.grid for board in singles])
        assert batch.empty.tolist() == [board.targets - board.placed for board in singles]
        assert batch.action_masks().tolist() == [board.action_masks() for board in singles]


def test_the_largest_board_steps():
    grid = np.full((64, 64), WALL, np.uint8)
    grid[1:-1, 1:-1] = 0
    grid[62, 62], grid[1, 1], grid[1, 2] = PLAYER, TARGET, BOX
    board, batch = Board(grid), BoardBatch(grid[None])
    assert not board.step(DOWN).moved_player  # the cell beyond lies under the last row
    assert not batch.step(np.array([DOWN])).moved_player[0]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("#####\n#X__#\n#_OP#\n#####", True),  # in a corner
        ("#####\n#__X#\n#P_O#\n#___#\n#####", True),  # in a corner, above its target
        ("######\n#____#\n#_PX_#\n#__O_#\n#____#\n######", False),
        ("######\n#_XX_#\n#____#\n#_OOP#\n######", True),  # side by side along a wall
        ("#######\n#_____#\n#_XX__#\n#_XX__#\n#P____#\n#OOOO_#\n#######", True),  # two by two
        ("#####\n#PX_#\n#_√_#\n#__O#\n#####", True),  # along a wall without a target
    ],
)
def test_a_board_is_deadlocked(text, lost):
    assert is_deadlocked(parse(text, LETTERS)) == lost


def test_boxes_frozen_on_their_targets_are_no_deadlock():
    board = parse("######\n#√√__#\n#_PX_#\n#__O_#\n#____#\n######", LETTERS)
    layout, boxes, _ = read_masks(board)
    assert list(squares(frozen_boxes(layout, boxes))) == [7, 8]  # row 1, columns 1 and 2 of 6
    assert not is_deadlocked(board)
