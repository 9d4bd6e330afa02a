"""Solve a level file, print the curve of solved against time: `python -m benchmarks.sokoban_solver FILE`."""

import argparse
import time

import numpy as np

from memenvs.sokoban import Board, LevelSet, solve

TIMES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0)


def main() -> None:
    """Print the curve of solved against time, and the slowest level."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", help="a level file, .npz or text")
    parser.add_argument("--seconds", type=float, default=5.0, help="wall-clock limit for each level")
    parser.add_argument("--levels", type=int, default=None, help="number of levels, from the first")
    arguments = parser.parse_args()
    seconds, lengths, pushes = [], [], []
    levels = list(LevelSet.load(arguments.file))[: arguments.levels]
    for level in levels:
        start = time.perf_counter()
        solution = solve(level.board, seconds=arguments.seconds)
        took = time.perf_counter() - start
        board = Board(level.board)
        pushed = sum(board.step(move).moved_box for move in solution.moves)
        if solution.status == "solved" and board.solved:  # the engine confirms the solution
            seconds.append(took)
            lengths.append(len(solution.moves))
            pushes.append(pushed)
    print(f"{arguments.file}, limit {arguments.seconds:g} s a level")
    print(
        f"solved {len(seconds)} of {len(levels)}; {np.mean(lengths):.1f} moves, {np.mean(pushes):.1f} pushes"
    )
    mean, median = np.mean(seconds), np.median(seconds)
    print(f"seconds a level: mean {mean:.4f}, median {median:.4f}, most {max(seconds):.2f}")
    for limit in TIMES:
        print(f"  within {limit:5g} s: {sum(took <= limit for took in seconds) / len(levels):6.1%}")


if __name__ == "__main__":
    main()
