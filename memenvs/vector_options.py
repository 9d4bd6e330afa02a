"""Seeds, tasks and masks come in as a caller of N environments gives them; one entry each goes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_whole(value: Any) -> bool:
    """Whether a value is an integer of Python or NumPy; a bool is none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def one_each(name: str, value: Any, count: int) -> list[Any]:
    """The entries of a sequence, unchanged; anything else stands `count` times.

    Raises:
        ValueError: a sequence of another length.
    """
    if isinstance(value, np.ndarray):
        value = list(value) if value.ndim else value[()]
    if isinstance(value, str) or not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} must have {count} entries, or be one number, got {len(value)} entries")
    return list(value)


def read_seeds(seed: Any, count: int) -> list[int | None]:
    """A seed an environment: a number s stands for s, s + 1, …; None for no seed.

    Raises:
        ValueError: another length, or what is no whole number of at least 0.
    """
    seeds = one_each("seed", seed, count)
    for value in seeds:
        if value is not None and not (is_whole(value) and value >= 0):
            raise ValueError(f"a seed must be None or a whole number, at least 0, got {value!r}")
    alone = not isinstance(seed, Sequence) and np.ndim(seed) == 0
    return [None if value is None else int(value) + i * alone for i, value in enumerate(seeds)]


def read_mask(name: str, mask: Any, count: int) -> NDArray[np.bool_]:
    """A mask (N,) bool, a copy; None stands for all.

    Raises:
        ValueError: another shape, or entries that are no bools.
    """
    array = np.ones(count, np.bool_) if mask is None else np.array(mask)
    if array.shape != (count,) or array.dtype != np.bool_:
        raise ValueError(f"{name} must have shape ({count},) and hold bools, got {mask!r}")
    return array
