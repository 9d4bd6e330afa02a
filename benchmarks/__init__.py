"""Measurements, each as a ratio to the plain way in the same process. docs/benchmarks.md has the numbers."""

from __future__ import annotations

import time
from collections.abc import Callable


def timed(work: Callable[[], object]) -> float:
    """Seconds that some work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
