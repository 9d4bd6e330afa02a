"""Measurements, each as a ratio to the plain way in the same process. docs/benchmarks.md has the numbers."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that some work takes by a clock, such as `time.process_time` on a busy machine."""
    started = clock()
    work()
    return clock() - started


def processor() -> str:
    """The name of the processor and the number of its cores."""
    name = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{name[1] if name else '?'}, {os.cpu_count()} cores"
