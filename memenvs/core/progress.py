"""Progress of long work on standard error: a bar on a terminal, elsewhere a line every 30 seconds."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

QUIET = "MEMENVS_QUIET"
"""The variable that hides progress, which `--quiet` sets."""
DELAY = 1.0
"""Seconds until a bar appears."""
SAY_EVERY = 30.0
"""Seconds between two lines where standard error is not a terminal."""


class Progress:
    """Counts what is done; a context manager. It shows nothing in the first second.

    Of several processes that `torchrun` started only the first shows it.

        with Progress(len(tasks), "tasks") as progress:
            for task in tasks:
                …
                progress.add(failed=failures)

    Args:
        total: items.
        label: what is counted, in the plural.
        done: items that are done already.
        leave: leave the bar on the screen at the end.
    """

    def __init__(self, total: int, label: str, *, done: int = 0, leave: bool = False) -> None:
        from tqdm import tqdm  # slow: it loads importlib.metadata, and a list of names shows no bar

        self._is_shown = os.environ.get("RANK", "0") == "0" and not os.environ.get(QUIET)
        disable = None if self._is_shown else True  # None: off where there is no terminal
        self._bar = tqdm(total=total, initial=done, desc=label, delay=DELAY, leave=leave, disable=disable)
        self._total, self._label, self._done = total, label, done
        self._counts: dict[str, int] = {}
        self._over = threading.Event()

    def add(self, items: int = 1, **counts: int) -> None:
        """Count items as done, and show other counts beside them."""
        self._done += items
        self._counts |= counts
        self._bar.set_postfix(self._counts, refresh=not items and self._bar.format_dict["elapsed"] > DELAY)
        self._bar.update(items)

    def __enter__(self) -> Progress:
        if self._bar.disable and self._is_shown:
            threading.Thread(target=self._say_lines, daemon=True).start()
        return self

    def _say_lines(self) -> None:
        while not self._over.wait(SAY_EVERY):
            more = "".join(f", {count:,} {name}" for name, count in self._counts.items())
            sys.stderr.write(f"{self._done:,} of {self._total:,} {self._label} done{more}\n")

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._bar.close()


def progress(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    """`items`, with their progress."""
    with Progress(total, label) as bar:
        for item in items:
            yield item
            bar.add()
