"""Seed, split and item number come in; the generator that draws everything of that item goes out."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

T = TypeVar("T")

_STRIDE = 256  # items a worker makes at once


def item_rng(seed: int, split: str, item: int) -> np.random.Generator:
    """The generator of item `item` of split `split`: no two items, splits or seeds share one."""
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(split.encode()), item]))


def make_items(make: Callable[[int], T], count: int, *, workers: int = 1, label: str = "tasks") -> list[T]:
    """`[make(0), …, make(count - 1)]`, by `workers` processes; the result does not depend on their number.

    A progress bar appears when the work takes over a second.

    Args:
        make: a picklable callable of the item's number, which draws from `item_rng` alone.
        count: items.
        workers: processes; 1 makes them in this one.
        label: what the progress bar counts.
    """
    jobs = [range(start, min(start + _STRIDE, count)) for start in range(0, count, _STRIDE)]
    if workers <= 1 or len(jobs) == 1:
        made = map(make, range(count))
        return list(progress(made, count, label))
    with ProcessPoolExecutor(
        min(workers, len(jobs)), get_context("spawn"), initializer=_set_maker, initargs=(make,)
    ) as pool:
        return list(chain.from_iterable(progress(pool.map(_make_range, jobs), len(jobs), label)))


_maker: list[Callable[[int], Any]] = []  # of this worker process: sent once, not with every job


def _set_maker(make: Callable[[int], Any]) -> None:
    _maker[:] = [make]


def _make_range(items: range) -> list[Any]:
    return [_maker[0](item) for item in items]


def progress(items: Iterable[T], total: int, label: str) -> Iterator[T]:
    """`items`, with a progress bar on standard error once they have taken a second."""
    return iter(tqdm(items, total=total, desc=label, delay=1.0, leave=False, disable=None))
