"""Files of Sokoban levels."""

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

    Args:
        size: squares a side, walls included, or height and width.
        boxes: boxes.
        min_solution: fewest moves of a shortest solution.
        max_solution: most moves of one; None for any.
        levels: how many of `split`, or of each split ({"train": 4000, "test": 512}).
        split: `"train"`, `"validation"` or `"test"`.
        seed: of the levels.
        out: a name that ends in .npz keeps solutions and card, any other is text in Boxoban's layout.
        workers: processes.

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
    generator = Generator(shape, boxes, min_solution, max_solution, seed)
    parts = [generator.levels(name, count, workers) for name, count in counts.items()]
    boards = np.concatenate([part.boards for part in parts])
    moves = [level.moves for part in parts for level in part]
    made = LevelSet(boards, moves, counts, {"generator": asdict(generator)})
    made.save(out)
    return {
        "out": str(out),
        "bytes": Path(out).stat().st_size,
        "levels": counts,
        "mean_solution": float(made.lengths.mean()),
        "longest_solution": int(made.lengths.max()),
    }
