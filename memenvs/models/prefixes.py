"""Sequences that begin alike: groups whose common prefix a model reads once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from memenvs.models.chat import Ids

PREFIX = 32  # tokens that a shared prefix must save: about what one more row of a pass costs


class PrefixGroup(NamedTuple):
    """Sequences that begin with the same tokens.

    Attributes:
        prefix: number of tokens that all of them begin with; 0 for a sequence that shares nothing.
        rows: their numbers, at least one.
    """

    prefix: int
    rows: list[int]


def group_by_prefix(
    sequences: Sequence[Ids], most: Sequence[int] | None = None, least: int = PREFIX
) -> list[PrefixGroup]:
    """Partition sequences into groups such that reading each group's prefix once saves the most tokens.

    A group of n sequences with a common prefix of p tokens saves p (n - 1), less `least` for its own row. In
    lexicographic order the best groups are runs of neighbours, which dynamic programming finds exactly.

    Both readers of shared prompts use it: a batch of prompts before sampling, and training sequences of an
    update, whose prefix ends before the reply. Prompts that are equal in full share all but their last token
    with `most` one less than their length, so that each row still has a token to read.

    Args:
        sequences: (T,) ids each.
        most: the longest prefix of each sequence that may be shared; None: one token less than its length.
        least: tokens that a group must save.

    Returns:
        Groups in lexicographic order of their sequences; every sequence is in exactly one.
    """
    ends = [max(0, len(ids) - 1) for ids in sequences] if most is None else list(most)
    starts = [np.ascontiguousarray(ids[:end]) for ids, end in zip(sequences, ends, strict=True)]
    # Big-endian bytes of whole numbers from 0 sort as the numbers do.
    order = sorted(range(len(starts)), key=lambda i: starts[i].astype(">i8").tobytes())
    shared = np.array([_common(starts[a], starts[b]) for a, b in itertools.pairwise(order)])
    saved = np.zeros(len(order) + 1)  # by the first j sequences in that order
    cuts: list[tuple[int, int]] = []  # where the last group of the first j begins, and its prefix
    for j in range(1, len(order) + 1):
        common = np.minimum.accumulate(shared[: j - 1][::-1])[::-1]  # of sequences i to j - 1, for i < j - 1
        gains = saved[: j - 1] + common * np.arange(j - 1, 0, -1) - least
        best = int(gains.argmax()) if j > 1 else -1
        if j > 1 and gains[best] > saved[j - 1]:
            saved[j] = gains[best]
            cuts.append((best, int(common[best])))
        else:
            saved[j] = saved[j - 1]
            cuts.append((j - 1, 0))
    groups, j = list[PrefixGroup](), len(order)
    while j:
        start, prefix = cuts[j - 1]
        groups.append(PrefixGroup(prefix, order[start:j]))
        j = start
    return groups[::-1]


def _common(a: Ids, b: Ids) -> int:
    """The number of tokens that both begin with."""
    length = min(len(a), len(b))
    apart = np.flatnonzero(a[:length] != b[:length])
    return int(apart[0]) if len(apart) else length
