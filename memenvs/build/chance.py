"""Seed, split and item number come in; the generator that draws everything of that item goes out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

import numpy as np
from tqdm import tqdm

from memenvs.processes import map_in_processes

T = TypeVar("T")

_STRIDE = 256  # items a worker makes at once


def item_rng(seed: int, split: str, item: int) -> np.random.Generator:
    """The generator of item `item` of split `split`: no two items, splits or seeds share one.

    Its entropy is the SHA-256 of the three together, always eight words: SeedSequence would take numbers of
    several words for several numbers, and a short hash of the split's name would meet another's.
    """
    digest = hashlib.sha256(json.dumps([int(seed), split, int(item)]).encode()).digest()
    return np.random.default_rng(np.random.SeedSequence(np.frombuffer(digest, "<u4").tolist()))


def make_items(make: Callable[[int], T], count: int, *, workers: int = 1, label: str = "tasks") -> list[T]:
    """`[make(0), …, make(count - 1)]`, by `workers` processes; the result does not depend on their number.

    A progress bar appears when the work takes over a second.

    Args:
        make: a picklable callable of the item's number, which draws from `item_rng` alone.
        count: items.
        workers: processes; 1 makes them in this one.
        label: what the progress bar counts.

    Raises:
        ValueError: a process was killed.
    """
    jobs = [range(start, min(start + _STRIDE, count)) for start in range(0, count, _STRIDE)]
    if workers <= 1 or len(jobs) == 1:
        return list(progress(map(make, range(count)), count, label))
    made = map_in_processes(partial(_make_all, make), jobs, min(workers, len(jobs)))
    return [item for part in progress(made, len(jobs), label) for item in part]


def _make_all(make: Callable[[int], T], job: Iterable[int]) -> list[T]:
    return [make(item) for item in job]


def progress(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    """`items`, with a progress bar on standard error once they have taken a second."""
    return iter(tqdm(items, total=total, desc=label, delay=1.0, leave=False, disable=None))
