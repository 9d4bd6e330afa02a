"""Which questions are set aside for evaluation, so that those with something in common stay together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")
Keys = Sequence[Iterable[Hashable]]


def choose(tiers: Sequence[Keys], count: int, rng: np.random.Generator) -> set[int]:
    """`count` items by number, in whole groups: of the first tier as far as they fit, then of the next.

    Args:
        tiers: the keys of every item; items that share a key are of one group.
        count: items to choose.
        rng: orders the groups.

    Raises:
        ValueError: fewer than `count` items differ from the others.
    """
    chosen: set[int] = set()
    for keys in tiers:
        groups = [group for group in _groups(keys) if chosen.isdisjoint(group)]
        for number in rng.permutation(len(groups)).tolist():
            if len(chosen) + len(groups[number]) <= count:
                chosen.update(groups[number])
    most = len(_groups(tiers[-1])) - 1
    if len(chosen) < count or most < 1 or len(chosen) == len(tiers[-1]):
        raise ValueError(
            f"--holdout {count}: there are {len(tiers[-1]):,} questions, {most + 1:,} of them different; "
            "set fewer aside, or give a larger source"
        )
    return chosen


def _groups(keys: Keys) -> list[list[int]]:
    """Items by number, together where they share a key, directly or through others."""
    parents: list[int] = []
    first: dict[Hashable, int] = {}

    def root(item: int) -> int:
        while parents[item] != item:
            parents[item] = parents[parents[item]]
            item = parents[item]
        return item

    for item, item_keys in enumerate(keys):
        parents.append(item)
        for key in item_keys:
            parents[root(item)] = root(first.setdefault(key, item))
    groups = defaultdict[int, list[int]](list)
    for item in range(len(parents)):
        groups[root(item)].append(item)
    return list(groups.values())


def parted(items: Sequence[T], chosen: set[int]) -> tuple[list[T], list[T]]:
    """The items that were not chosen, and those that were, in their order."""
    return (
        [item for number, item in enumerate(items) if number not in chosen],
        [item for number, item in enumerate(items) if number in chosen],
    )
