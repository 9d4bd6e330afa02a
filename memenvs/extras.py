"""Import a library that only some users need, or say which extra brings it."""

from __future__ import annotations

import importlib
from typing import Any


class Lazy:
    """A library that is imported, by `require`, when something of it is first used.

    Args:
        module: its name.
        extra: what brings it.
    """

    def __init__(self, module: str, extra: str) -> None:
        self._module, self._extra = module, extra

    def __getattr__(self, name: str) -> Any:
        return getattr(require(self._module, self._extra), name)


def require(module: str, extra: str) -> Any:
    """Import a module where it is used.

    Going through `importlib` also keeps heavy libraries out of the static import graph.

    Raises:
        ImportError: it is not installed; the message names the extra to install.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ImportError(f'{error}; install it with `pip install "memenvs[{extra}]"`') from error
