"""Measurements, each as a ratio to the plain way in the same process. docs/benchmarks.md has the numbers."""

from __future__ import annotations

import time
from collections.abc import Callable


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that some work takes by a clock, such as `time.process_time` on a busy machine."""
    started = clock()
    work()
    return clock() - started
