"""From (seed, split, item, stage) to a stream of small choices; nothing here knows what is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

SPLITS = ("train", "validation", "test")
LAYOUT, ENTITY, LINKS, PROSE, HOPS, QUESTION, REST = range(7)  # stages: no two share a stream

T = TypeVar("T")


class Dice:
    """Choices from a Generator, read in blocks of uniform floats (ten times faster than scalar calls)."""

    BLOCK = 64

    def __init__(self, rng: np.random.Generator):
        self._rng = rng
        self._floats: list[float] = []

    def unit(self) -> float:
        """A float in [0, 1)."""
        if not self._floats:
            self._floats = self._rng.random(self.BLOCK).tolist()
        return self._floats.pop()

    def below(self, n: int) -> int:
        """A whole number in [0, n), n >= 1."""
        return int(self.unit() * n)

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high], both ends included."""
        return low + self.below(high - low + 1)

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return self.unit() < p

    def pick(self, options: Sequence[T]) -> T:
        """One of a non-empty sequence, each equally likely."""
        return options[self.below(len(options))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in a random order (Fisher-Yates)."""
        out = list(items)
        for i in range(len(out) - 1, 0, -1):
            j = self.below(i + 1)
            out[i], out[j] = out[j], out[i]
        return out


def dice(seed: int, split: str, item: int, stage: int) -> Dice:
    """The stream of one item of a split at one stage; stages are spawn keys, so they never overlap."""
    entropy = [seed, SPLITS.index(split), item]
    return Dice(np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(stage,))))
