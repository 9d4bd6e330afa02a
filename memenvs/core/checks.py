"""Checks of arguments and arrays, each with a ValueError of one line, and one-line forms of errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

MAX_ERROR_CHARS = 500


class Range(NamedTuple):
    """Bounds of a finite number.

    Attributes:
        least: the smallest number inside.
        most: the largest number inside.
        above: every number inside is larger.
        below: every number inside is smaller.

    >>> str(Range(above=0, most=1))
    'above 0 and at most 1'
    """

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def holds(self, value: Any) -> bool:
        """Whether `value` is a finite number inside; a bool is no number."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        if isinstance(value, float) and not math.isfinite(value):
            return False
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        words = ("at least", self.least), ("above", self.above), ("at most", self.most), ("below", self.below)
        return " and ".join(f"{word} {bound}" for word, bound in words if math.isfinite(bound)) or "finite"


FINITE, COUNT = Range(), Range(1)


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """Raise a ValueError unless `value` is one of the choices."""
    if value not in (names := list(choices)):
        raise ValueError(f"{name} must be one of {', '.join(names)}, got {value!r}")


def check_numbers(bounds: Range = FINITE, /, **values: object) -> None:
    """Raise a ValueError unless every value is a finite number within the bounds."""
    for name, value in values.items():
        if not bounds.holds(value):
            wanted = "a finite number" if bounds == FINITE else bounds
            raise ValueError(f"{name} must be {wanted}, got {value!r}")


def check_whole(bounds: Range = COUNT, /, **values: object) -> None:
    """Raise a ValueError unless every value is an `int`, as JSON can hold it, within the bounds."""
    for name, value in values.items():
        if not isinstance(value, int) or not bounds.holds(value):
            mend = f"; pass int({name})" if isinstance(value, np.integer) else ""
            raise ValueError(f"{name} must be a whole number, {bounds}, got {value!r}{mend}")


def check_flags(**values: object) -> None:
    """Raise a ValueError unless every value is True or False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, got {value!r}")


def is_whole(value: object) -> bool:
    """Whether a value is an integer of Python or NumPy; a bool is none."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_task(options: Mapping[str, Any], n_tasks: int) -> None:
    """Raise a ValueError unless the options of a reset are none, or `task` with the number of a task."""
    if unknown := sorted(set(options) - {"task"}):
        raise ValueError(f"unknown reset option {unknown[0]!r}; the one option is 'task', a number")
    task = options.get("task", 0)
    if not is_whole(task) or not 0 <= task < n_tasks:
        raise ValueError(f"options['task'] must be a number from 0 to {n_tasks - 1}, got {task!r}")


def check_shapes(**parts: Any) -> None:
    """Raise a ValueError unless all parts, arrays or tensors, have one shape."""
    if len({tuple(part.shape) for part in parts.values()}) > 1:
        found = ", ".join(f"{name} {tuple(part.shape)}" for name, part in parts.items())
        raise ValueError(f"one shape is wanted of all, got {found}")


def one_line(error: object) -> str:
    """What an error says, in one line: those of other libraries may have many."""
    return " ".join(str(error).split())


def error_line(error: BaseException, max_chars: int = MAX_ERROR_CHARS) -> str:
    r"""Kind and message of an error in one line of at most `max_chars` characters, never empty.

    >>> error_line(ConnectionError("no server\nat http://node:8000"))
    'ConnectionError: no server at http://node:8000'
    """
    message = one_line(error)
    line = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return line[:max_chars]
