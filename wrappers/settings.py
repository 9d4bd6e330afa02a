"""A method's settings are checked where it is made."""

from __future__ import annotations

from collections.abc import Iterable


def check_choice(name: str, value: object, choices: Iterable[str]) -> None:
    """ValueError unless `value` is one of the choices."""
    names = list(choices)
    if value not in names:
        raise ValueError(f"{name} must be one of {', '.join(names)}, got {value!r}")


def check_at_least(name: str, value: float, least: float) -> None:
    """ValueError unless `value` is a number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
        raise ValueError(f"{name} must be a number of at least {least}, got {value!r}")
