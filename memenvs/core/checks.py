"""Checks of arguments and arrays; each raises a one-line ValueError."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def one_row(name: str, values: ArrayLike) -> Array:
    """Values (n,) in float64; NaN may stand for what could not be measured.

    Raises:
        ValueError: they have another shape, or one is infinite.
    """
    array = np.asarray(values, np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one row of numbers, got shape {array.shape}")
    if np.isinf(array).any():
        raise ValueError(f"{name} holds an infinite value; give NaN for what could not be measured")
    return array


def check_lengths(**parts: Sequence[object] | NDArray[np.generic]) -> None:
    """Raise a ValueError unless all parts have one entry for each rollout."""
    lengths = {name: len(part) for name, part in parts.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"one entry for each rollout is wanted of all, got {found}")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise a ValueError unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_shapes(**parts: NDArray[np.generic]) -> None:
    """Raise a ValueError unless all parts have one shape."""
    if len({part.shape for part in parts.values()}) > 1:
        found = ", ".join(f"{name} {part.shape}" for name, part in parts.items())
        raise ValueError(f"one shape is wanted of all, got {found}")
