from collections import deque
from pathlib import Path

import numpy as np
import pytest
from reference_values import cases

from memenvs.sokoban import LETTERS, Board, BoardBatch, Generator, LevelSet, is_deadlocked, parse, solve
from memenvs.sokoban.board import BOX, FAR, PLAYER, TARGET, read_masks
from memenvs.sokoban.solver import PushBound, are_deadlocked

SHIPPED = Path(__file__).parents[2] / "data" / "sokoban_6x6_1box.npz"


def solves(board: np.ndarray, moves: tuple[int, ...]) -> bool:
    """Whether all boxes end on targets; there may be more targets."""
    state = Board(board)
    for move in moves:
        state.step(move)
    return BOX not in state.cells


def plain_search(board: np.ndarray) -> int | None:
    """Fewest moves by a slow search over engine boards; None where there is no solution."""
    seen, queue = set(), deque([(Board(board), 0)])
    while queue:
        state, cost = queue.popleft()
        if state.solved:
            return cost
        if bytes(state.cells) in seen:
            continue
        seen.add(bytes(state.cells))
        for action in range(4):
            after = Board(state.grid)
            if after.step(action).moved_player:
                queue.append((after, cost + 1))
    return None


def random_boards(count: int) -> list[np.ndarray]:
    """Boards of 6x6 with two boxes anywhere, many of them without a solution."""
    rng, boards = np.random.default_rng(5), []
    while len(boards) < count:
        board = np.ones((6, 6), np.uint8)
        board[1:-1, 1:-1] = rng.random((4, 4)) < 0.2
        free = np.flatnonzero(board == 0)
        if len(free) >= 5:
            board.flat[rng.permutation(free)[:5]] = [PLAYER, BOX, BOX, TARGET, TARGET]
            boards.append(board)
    return boards


@pytest.mark.parametrize("case", cases("ragen_shortest_path"))
def test_the_fewest_moves_are_those_of_the_reference_search(case):
    board = parse(case["input"]["board"], LETTERS)
    moves = solve(board).moves
    assert len(moves) == len(case["output"])
    assert not moves or solves(board, moves)


@pytest.mark.parametrize(("boxes", "size", "count"), [(1, (6, 6), 60), (2, (6, 6), 15), (3, (6, 7), 2)])
def test_moves_are_as_few_as_a_plain_search_finds(boxes, size, count):
    generator = Generator(size, boxes, min_solution=3, max_solution=20, seed=11)
    for level in generator.levels({"test": count}):
        assert plain_search(level.board) == len(solve(level.board).moves)


def test_boards_at_random_are_solved_or_not_as_a_plain_search_says():
    for board in random_boards(80):
        expected = "unsolvable" if plain_search(board) is None else "solved"
        assert solve(board).status == expected


def test_a_board_that_is_deadlocked_has_no_solution():
    lost = [board for board in random_boards(300) if is_deadlocked(board)]
    assert len(lost) > 50
    assert all(plain_search(board) is None for board in lost)


def test_a_box_in_a_corner_is_unsolvable():
    assert solve(parse("#####\n#$ @#\n#  .#\n#####")).status == "unsolvable"


def test_more_boxes_than_targets_are_unsolvable():
    assert solve(parse("######\n#@$. #\n# $  #\n#    #\n######")).status == "unsolvable"


def test_many_boards_are_lost_as_each_of_them_is_and_stay_lost():
    levels, rng = LevelSet(np.stack(random_boards(300))), np.random.default_rng(0)
    batch, before = BoardBatch(levels.boards), np.zeros(300, bool)
    for _ in range(30):
        lost = are_deadlocked(batch.cells, levels.dead)
        assert lost.tolist() == [is_deadlocked(board) for board in batch.cells]
        assert lost[before].all()
        batch.step(rng.integers(0, 4, 300))
        before = lost
    assert (
        ((batch.cells & BOX != 0) & levels.dead).any((1, 2)).sum() < lost.sum() < 300
    )  # some are only frozen


def test_a_solved_board_takes_no_moves():
    assert solve(parse("#####\n#@* #\n#####")) == ("solved", (), 1)


def test_a_search_with_too_few_nodes_says_so():
    assert solve(parse("######\n#@$ .#\n######"), nodes=1).status == "limit"


def test_two_boxes_for_one_reachable_target_are_lost():
    # Both lie along the upper wall, from where only the target in the corner can be reached.
    layout, boxes, _ = read_masks(parse("########\n#@$ $ .#\n#      #\n#  .   #\n########"))
    assert PushBound(layout)(boxes) == FAR


def test_every_shipped_level_is_solved_by_its_moves_and_a_quarter_of_them_by_no_fewer():
    levels = LevelSet.load(SHIPPED)
    assert levels.splits == {"train": 4000, "validation": 512, "test": 512}
    assert all(solves(level.board, level.moves) for level in levels)
    for level in list(levels)[::4]:
        assert len(solve(level.board).moves) == len(level.moves)


def test_boxoban_levels_of_four_boxes_are_solved(real_data):
    for level in list(LevelSet.load(real_data / "sokoban/boxoban_medium_valid_000.txt"))[:15]:
        assert solves(level.board, solve(level.board).moves)
