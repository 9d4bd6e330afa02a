"""Time the Sokoban engine against the plain way of doing the same: rates and ratios of one run.

Run it with `python -m benchmarks.sokoban`; it takes about 20 seconds on one core. It counts CPU seconds, so
that other work on the machine matters little. The plain ways are written below, for a ratio within one run;
other packages are not measured here.
"""

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.harness import print_head, print_row
from memenvs.sokoban import Board, BoardBatch, Generator, LevelSet, rgb, solve, to_text
from memenvs.sokoban.board import BOX, CELLS, PLAYER, TARGET, WALL, _layout
from memenvs.sokoban.environments import REWARDS
from memenvs.sokoban.render import paint

LEVELS = LevelSet.load(Path(__file__).parents[1] / "data" / "sokoban_6x6_1box.npz")
CLASSIC = REWARDS["classic"]
DELTAS = ((-1, 0), (1, 0), (0, -1), (0, 1))


def rate(work: Callable[[], int], seconds: float = 1.0, repeats: int = 3) -> float:
    """Units a CPU second, the median of `repeats` runs: `work` does some and returns how many."""
    rates = []
    for _ in range(repeats):
        start, done = time.process_time(), 0
        while (spent := time.process_time() - start) < seconds / repeats:
            done += work()
        rates.append(done / spent)
    return sorted(rates)[repeats // 2]


def plain_step(room: np.ndarray, action: int) -> float:
    """One step on a NumPy board, cell by cell, with the reward from counting, as in most environments."""
    row, column = np.argwhere(room & PLAYER)[0]
    down, right = DELTAS[action]
    before = np.count_nonzero(room == BOX | TARGET)
    ahead, beyond = (row + down, column + right), (row + 2 * down, column + 2 * right)
    if room[ahead] & BOX and not room[beyond] & (WALL | BOX):
        room[ahead] &= ~BOX & 15
        room[beyond] |= BOX
    if not room[ahead] & (WALL | BOX):
        room[row, column] &= ~PLAYER & 15
        room[ahead] |= PLAYER
    after = np.count_nonzero(room == BOX | TARGET)
    return -0.1 + after - before + 10.0 * (after == np.count_nonzero(room & TARGET))


def plain_solve(board: np.ndarray) -> int:
    """Fewest moves by breadth-first search over tuples in a dictionary."""
    walls = {tuple(p) for p in np.argwhere(board & WALL).tolist()}
    targets = frozenset(tuple(p) for p in np.argwhere(board & TARGET).tolist())
    boxes = frozenset(tuple(p) for p in np.argwhere(board & BOX).tolist())
    start = (tuple(np.argwhere(board & PLAYER)[0].tolist()), boxes)
    moves, queue = {start: 0}, deque([start])
    while queue:
        state = queue.popleft()
        (row, column), boxes = state
        if boxes == targets:
            return moves[state]
        for down, right in DELTAS:
            ahead, beyond = (row + down, column + right), (row + 2 * down, column + 2 * right)
            if ahead in walls or (ahead in boxes and (beyond in walls or beyond in boxes)):
                continue
            pushed = boxes - {ahead} | {beyond} if ahead in boxes else boxes
            if (ahead, pushed) not in moves:
                moves[ahead, pushed] = moves[state] + 1
                queue.append((ahead, pushed))
    return -1


def plain_level(rng: np.random.Generator) -> int:
    """Draw 6x6 boards until one has a solution of 5 moves or more."""
    while True:
        board = np.ones((6, 6), np.uint8)
        board[1:-1, 1:-1] = rng.random((4, 4)) < 0.27
        free = np.flatnonzero(board == 0)
        if len(free) < 3:
            continue
        board.flat[rng.permutation(free)[:3]] = [PLAYER, BOX, TARGET]
        if plain_solve(board) >= 5:
            return 1


def plain_picture(board: np.ndarray, tile: int) -> np.ndarray:
    """Repaint every square of a frame."""
    picture = np.zeros((board.shape[0] * tile, board.shape[1] * tile, 3), np.uint8)
    for (row, column), cell in np.ndenumerate(board):
        picture[row * tile : (row + 1) * tile, column * tile : (column + 1) * tile] = paint(int(cell), tile)
    return picture


def step_rates() -> list[tuple[str, float, float]]:
    """Steps a second: one board, one board with its text, and 1,024 boards, all with the classic reward."""
    board, room = Board(LEVELS[0].board), LEVELS[0].board.copy()
    actions = np.random.default_rng(0).integers(0, 4, (1000, 1024))
    few, many = actions[0].tolist(), actions.ravel()[:100_000].tolist()
    batch = BoardBatch(LEVELS.boards[:1024])

    def lean() -> int:
        for action in many:
            sum(CLASSIC.components(board.step(action)))
        return len(many)

    def text() -> int:
        for action in many:
            board.step(action)
            board.text()
        return len(many)

    def plain() -> int:
        for action in few:
            plain_step(room, action)
        return len(few)

    def plain_text() -> int:
        for action in few:
            plain_step(room, action)
            to_text(room)
        return len(few)

    def together() -> int:
        for row in actions:
            CLASSIC.totals(batch.step(row))
        return actions.size

    slow = rate(plain)
    return [
        ("step, one board", rate(lean), slow),
        ("step and text, one board", rate(text), rate(plain_text)),
        ("step, 1,024 boards", rate(together), slow),
    ]


def level_rates() -> list[tuple[str, float, float]]:
    """Levels a second: reset from the set, solve, generate."""
    boards, rng = list(LEVELS.boards[:500]), np.random.default_rng(0)
    generator, numbers = Generator(min_solution=5, seed=1), iter(range(10**9))

    def reset() -> int:
        for index in range(500):
            Board(LEVELS[index].board)
        return 500

    def solved() -> int:
        _layout.cache_clear()  # so that the solver has seen no level
        for board in boards:
            solve(board)
        return len(boards)

    def plainly_solved() -> int:
        for board in boards:
            plain_solve(board)
        return len(boards)

    def made(split: str) -> Callable[[], int]:
        return lambda: sum(generator.item(split, next(numbers)) is not None for _ in range(50))

    plain_made = rate(lambda: plain_level(rng))
    return [
        ("reset: look-up, or make one", rate(reset), plain_made),
        ("solve, fewest moves", rate(solved), rate(plainly_solved)),
        ("generate, train split", rate(made("train")), plain_made),
        ("generate, test split", rate(made("test")), plain_made),
    ]


def main() -> None:
    """Print the table."""
    boards = list(LEVELS.boards[:100])
    rows = step_rates() + level_rates()
    frames = rate(lambda: sum(rgb(board, 16) is not None for board in boards))
    rows.append(("RGB frame, 16 px a square", frames, rate(lambda: plain_picture(boards[0], 16).ndim // 3)))
    print(f"6x6, one box, {len(CELLS)} kinds of cell; units a CPU second on one core")
    print_head("work", "ours", "the plain way", "ratio")
    for name, ours, plain in rows:
        print_row(name, f"{ours:,.0f}", f"{plain:,.0f}", f"{ours / plain:,.1f}")


if __name__ == "__main__":
    main()
