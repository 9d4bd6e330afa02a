"""How much a search may do: a limit in nodes or seconds in, an exception when it is spent out."""

import time


class BudgetSpent(Exception):
    """A search was cut before it came to an end."""


class Budget:
    """Count the nodes of a search, and cut it at a limit; None is no limit.

    Attributes:
        expanded: nodes expanded so far.
    """

    def __init__(self, nodes: int | None = None, seconds: float | None = None) -> None:
        self.expanded = 0
        self._nodes = nodes if nodes is not None else float("inf")
        self._end = time.monotonic() + seconds if seconds is not None else None

    def spend(self) -> None:
        """Count one node; raises BudgetSpent when there is none left to expand."""
        if self.expanded >= self._nodes:
            raise BudgetSpent
        self.expanded += 1
        if self._end is not None and self.expanded % 64 == 0 and time.monotonic() > self._end:
            raise BudgetSpent
