"""Say in one line that a trainer is missing, or of a version that its adapter was not run with."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from memenvs.extras import install_line

Release = tuple[int, ...]


def check_version(package: str, low: str, below: str, extra: str) -> None:
    """Refuse a trainer whose version is not in [low, below).

    A pre-release counts as its release: 1.17.0rc1 is 1.17.0.

    Args:
        package: the trainer's name on the package index.
        low: the first version that will do.
        below: the first one above it that will not.
        extra: the extra of memenvs that installs a version that will do.

    Raises:
        ImportError: the trainer is missing, or its version is another; the message names the extra.
    """
    mend = f"install it with `{install_line(extra)}`"
    try:
        found = version(package)
    except PackageNotFoundError:
        raise ImportError(f"{package} is not installed; {mend}") from None
    if not _release(low) <= _release(found) < _release(below):
        raise ImportError(f"{package} {found} is not supported, only {low} up to below {below}; {mend}")


def _release(text: str) -> Release:
    """The numbers of a version, without zeros at its end: (1, 16) of "1.16.0rc1"."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    numbers = [int(part) for part in found.group().split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
