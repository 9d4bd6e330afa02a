"""Solve a level file, .npz or text, and print the curve of solved against time.

python -m benchmarks.sokoban_solver FILE [--seconds 5] [--levels 100]
"""

import time

import numpy as np

from benchmarks.harness import arguments
from memenvs.sokoban import Board, LevelSet, solve

TIMES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0)


def main() -> None:
    """Print the curve of solved against time, and the slowest level."""
    args = arguments(__doc__, _file=str, seconds=5.0, levels=10**6)
    seconds, lengths, pushes = [], [], []
    levels = list(LevelSet.load(args.file))[: args.levels]
    for level in levels:
        start = time.perf_counter()
        solution = solve(level.board, seconds=args.seconds)
        took = time.perf_counter() - start
        board = Board(level.board)
        pushed = sum(board.step(move).moved_box for move in solution.moves)
        if solution.status == "solved" and board.solved:  # the engine confirms the solution
            seconds.append(took)
            lengths.append(len(solution.moves))
            pushes.append(pushed)
    print(f"{args.file}, limit {args.seconds:g} s a level")
    print(
        f"solved {len(seconds)} of {len(levels)}; {np.mean(lengths):.1f} moves, {np.mean(pushes):.1f} pushes"
    )
    mean, median = np.mean(seconds), np.median(seconds)
    print(f"seconds a level: mean {mean:.4f}, median {median:.4f}, most {max(seconds):.2f}")
    for limit in TIMES:
        print(f"  within {limit:5g} s: {sum(took <= limit for took in seconds) / len(levels):6.1%}")


if __name__ == "__main__":
    main()
