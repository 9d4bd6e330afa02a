"""Solve a level file, .npz or text, and print the curve of solved against time.

python -m benchmarks.sokoban_solver FILE [--seconds 5] [--levels 100]
"""

import time

import numpy as np

from benchmarks.harness import run
from memenvs.sokoban import Board, LevelSet, solve

TIMES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0)


def main(file: str, /, seconds: float = 5.0, levels: int = 10**6) -> None:
    """Print the curve of solved against time, and the slowest level."""
    times, lengths, pushes = [], [], []
    chosen = list(LevelSet.load(file))[:levels]
    for level in chosen:
        start = time.perf_counter()
        solution = solve(level.board, seconds=seconds)
        took = time.perf_counter() - start
        board = Board(level.board)
        pushed = sum(board.step(move).moved_box for move in solution.moves)
        if solution.status == "solved" and board.solved:  # the engine confirms the solution
            times.append(took)
            lengths.append(len(solution.moves))
            pushes.append(pushed)
    print(f"{file}, limit {seconds:g} s a level")
    print(f"solved {len(times)} of {len(chosen)}; {np.mean(lengths):.1f} moves, {np.mean(pushes):.1f} pushes")
    mean, median = np.mean(times), np.median(times)
    print(f"seconds a level: mean {mean:.4f}, median {median:.4f}, most {max(times):.2f}")
    for limit in TIMES:
        print(f"  within {limit:5g} s: {sum(took <= limit for took in times) / len(chosen):6.1%}")


if __name__ == "__main__":
    run(main)
