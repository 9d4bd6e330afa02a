"""Sokoban levels: size, boxes and lengths in, a level file out."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from memenvs.sokoban.generator import SPLITS, Generator
from memenvs.sokoban.levels import LevelSet


def build(
    size: int | tuple[int, int],
    boxes: int,
    min_solution: int,
    max_solution: int | None,
    levels: int | Mapping[str, int],
    split: str,
    seed: int,
    out: str | Path,
    workers: int = 1,
) -> dict[str, Any]:
    """Make levels and write them whole to `out`; the same bytes on any number of processes.

    `size` is squares a side, walls included, or height and width; solutions are counted in moves. `levels` is
    how many of `split`, or how many of each split in a file of several ({"train": 4000, "test": 512}). An
    `out` that ends in .npz keeps solutions and card, any other is text in Boxoban's layout.

    Returns:
        A summary: `out`, `bytes`, `levels` by split, `mean_solution` and `longest_solution` in moves.

    Raises:
        LevelError: fewer levels exist than were asked for.
        ValueError: an argument out of its range.
    """
    counts = dict(levels) if isinstance(levels, Mapping) else {split: levels}
    for name, count in counts.items():
        if name not in SPLITS or count < 1:
            raise ValueError(f"levels is 1 or more of {', '.join(SPLITS)}, got {count} of {name!r}")
    shape = (size, size) if isinstance(size, int) else size
    made = _make(Generator(shape, boxes, min_solution, max_solution, seed), counts, workers)
    made.save(out)
    return {
        "out": str(out),
        "bytes": Path(out).stat().st_size,
        "levels": counts,
        "mean_solution": float(made.lengths.mean()),
        "longest_solution": int(made.lengths.max()),
    }


def _make(generator: Generator, counts: Mapping[str, int], workers: int) -> LevelSet:
    """The levels of all splits in one set."""
    parts = [generator.levels(name, count, workers) for name, count in counts.items()]
    moves = [level.moves for part in parts for level in part]
    boards = np.concatenate([part.boards for part in parts])
    return LevelSet(boards, moves, counts, {"generator": asdict(generator)})
