"""Which task is played when, and by what seed: every task once a pass, in another order each time."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MOST_SHUFFLED = 1 << 22  # tasks; an environment that makes its tasks as they are asked for may have 2**31


def draw_tasks(n_tasks: int, seed: Sequence[int], start: int, count: int) -> list[int]:
    """The tasks that are drawn as numbers start, start + 1, …, start + count - 1 of a training.

    N draws are a pass, in which each of N tasks comes once, in an order of its own. A draw depends on its
    number alone: any number of processes, and a resumed run, draw the same.

    Args:
        n_tasks: N.
        seed: equal seeds give equal orders.
        start: draws before.
        count: draws.
    """
    return [_place(n_tasks, (*seed, *divmod(number, n_tasks))) for number in range(start, start + count)]


def group_seeds(seed: int, step: int, part: int, count: int) -> list[int]:
    """Seeds of `count` groups of a step's part."""
    words = np.random.SeedSequence([seed, step, part]).generate_state(count, np.uint64)
    return [int(value >> np.uint64(1)) for value in words]


def _place(size: int, draw: tuple[int, ...]) -> int:
    """The place of a draw in the order of its pass; `draw` ends in the pass and the number in it."""
    *seed, number = draw
    if size <= MOST_SHUFFLED:
        return int(_order(size, tuple(seed))[number])
    rng = np.random.default_rng(seed)
    first, stride = rng.integers(size, size=2).tolist()
    while math.gcd(stride, size) != 1:
        stride += 1
    return int((first + stride * number) % size)


@functools.lru_cache(maxsize=4)
def _order(size: int, seed: tuple[int, ...]) -> NDArray[np.int64]:
    return np.random.default_rng(seed).permutation(size)
