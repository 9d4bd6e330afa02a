"""Numbers of one episode after another come in; the mean, the spread and the extremes so far go out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from memenvs.state import from_plain


@dataclass
class Running:
    """Statistics of all numbers added so far; stands in for a group where there is none.

    Attributes:
        count: numbers.
        mean: of them.
        squares: sum of squared deviations from the mean.
        low: the smallest.
        high: the largest.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = math.inf
    high: float = -math.inf

    def add(self, values: Iterable[float]) -> None:
        """Take more numbers (Welford's update); NaN is left out."""
        for value in values:
            if math.isnan(value):
                continue
            self.count += 1
            step = value - self.mean
            self.mean += step / self.count
            self.squares += step * (value - self.mean)
            self.low, self.high = min(self.low, value), max(self.high, value)

    def normal(self, value: float, *, eps: float, ddof: int) -> float:
        """(value - mean) / (std + eps); 0.0 where nothing differs yet."""
        if math.isnan(value) or self.count <= ddof or self.low >= self.high:
            return 0.0
        return (value - self.mean) / (math.sqrt(self.squares / (self.count - ddof)) + eps)

    @classmethod
    def from_state(cls, state: Any, where: str) -> Running:
        """The statistics that `memenvs.state.to_plain` made `state` of; `where` is what errors call it.

        Raises:
            ValueError: no numbers can have them.
        """
        made = from_plain(state, cls, where)
        if made.count < 0 or not made.squares >= 0 or (made.count and not made.low <= made.high):
            raise ValueError(f"the state's {where} cannot be: {state!r:.200}")
        return made
