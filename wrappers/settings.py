"""A method's settings are checked where it is made."""

from __future__ import annotations

import math
from collections.abc import Iterable

from memenvs.vector_options import is_whole


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """ValueError unless `value` is one of the choices."""
    names = list(choices)
    if value not in names:
        raise ValueError(f"{name} must be one of {', '.join(names)}, got {value!r}")


def check_numbers(**values: object) -> None:
    """ValueError unless each value is a finite number."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, got {value!r}")


def check_at_least(name: str, value: float, least: float) -> None:
    """ValueError unless `value` is a finite number of at least `least`."""
    check_numbers(**{name: value})
    if value < least:
        raise ValueError(f"{name} must be a number of at least {least}, got {value!r}")


def check_whole(name: str, value: object, least: int) -> None:
    """ValueError unless `value` is a whole number of at least `least`."""
    if not is_whole(value) or value < least:  # type: ignore[operator]
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")


def check_ddof(value: object) -> None:
    """ValueError unless a standard deviation may have it: 0 divides by n, 1 by n - 1."""
    if not is_whole(value) or value not in (0, 1):
        raise ValueError(f"ddof must be 0 or 1, got {value!r}")


def check_flags(**values: object) -> None:
    """ValueError unless each value is True or False."""
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False, got {value!r}")
