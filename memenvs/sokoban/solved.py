"""Sokoban levels from a collection, each with a shortest solution."""

from __future__ import annotations

import warnings
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

from memenvs.core.processes import Workers, map_jobs
from memenvs.core.progress import progress
from memenvs.sokoban import Level, LevelError, LevelSet, solve
from memenvs.sokoban.generator import Split
from memenvs.sokoban.levels import why_unplayable


def solve_levels(
    source: Path,
    split: Split,
    *,
    min_solution: int,
    max_solution: int | None,
    count: int | None,
    budget: int,
    workers: Workers = 1,
) -> LevelSet:
    """The levels of a file that can be solved, in its order; the same on any number of processes.

    `source` is a level file, .npz or a collection; `workers` are processes, or "ray" for those of a cluster.
    Shortest solutions have `min_solution` to `max_solution` moves (None: no limit), and the first `count`
    levels are kept (None: all), as one split. `budget` counts search nodes for each level. The card's
    `left_out` counts the other levels by reason, and its `faults` names the boards that are no levels.

    Raises:
        FileNotFoundError: no such file.
        LevelError: not a level file, or no level is left.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the card has every fault
        read = LevelSet.load(source)
    faults = list(read.card.get("left_out", []))
    left_out = Counter({"no level": len(faults)} if faults else {})
    kept = list[Level]()
    find = partial(_solved, min_solution=min_solution, max_solution=max_solution, budget=budget)
    with closing(map_jobs(find, list(read), workers)) as results:
        for result in progress(results, len(read), "levels"):
            if isinstance(result, Level):
                kept.append(result)
            else:
                left_out[result] += 1
            if len(kept) == count:
                break
    if not kept:
        raise LevelError(f"{source}: no level is left: {count_line(left_out)}")
    card = {
        "source": source.name,
        "min_solution": min_solution,
        "max_solution": max_solution,
        "budget": budget,
        "left_out": dict(left_out),
        "faults": faults,
    }
    boards, moves = zip(*kept, strict=True)
    return LevelSet(boards, moves, {split: len(kept)}, card)


def count_line(left_out: Counter[str]) -> str:
    """Counts of levels by reason, in a line."""
    return ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())


def _solved(level: Level, min_solution: int, max_solution: int | None, budget: int) -> Level | str:
    """The level with its moves, or why it is left out."""
    board, moves = level
    if moves is None:
        if reason := why_unplayable(board):
            return reason
        solution = solve(board, nodes=budget, max_moves=max_solution)
        if solution.status == "limit":
            return f"not solved within {budget:,} search nodes"
        if solution.status == "unsolvable":
            return "without a solution"
        moves = solution.moves if solution.status == "solved" else None
    if moves is None or (max_solution is not None and len(moves) > max_solution):
        return f"of more than {max_solution} moves"
    return Level(board, moves) if len(moves) >= min_solution else f"of fewer than {min_solution} moves"
