"""Batches of sequences of like length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIKE = 0.85  # at most 15% of a batch is padding


def micro_batches(
    lengths: Sequence[int], budget: int, alike: float = ALIKE, extra: int = 0
) -> list[list[int]]:
    """Indices of sequences in batches of like length, each of at most `budget` tokens, padding included.

    Longest first, so that a batch that does not fit in memory fails at once. A sequence longer than the
    budget is a batch of its own. Keeping lengths alike adds few batches: 14 where the longest has ten times
    the shortest.

    Args:
        lengths: tokens of each sequence.
        budget: tokens, at least 1.
        alike: least length of a sequence, as a share of the longest one's in its batch; in [0, 1].
        extra: tokens that each sequence needs room for besides, such as a prefix in a cache.
    """
    batches: list[list[int]] = []
    longest = 0
    for i in np.argsort(-np.asarray(lengths), kind="stable").tolist():
        full = not batches or (len(batches[-1]) + 1) * (longest + extra) > budget
        if full or lengths[i] < alike * longest:
            batches.append([])
            longest = lengths[i]
        batches[-1].append(i)
    return batches


def lexicographic_order(sequences: Sequence[NDArray[np.int64]]) -> list[int]:
    """Numbers of sequences (T,) of whole numbers from 0, sorted to bring common prefixes together."""
    # Big-endian bytes of such numbers sort as the numbers do.
    return sorted(range(len(sequences)), key=lambda i: sequences[i].astype(">i8").tobytes())


def padded_tokens(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> int:
    """Positions of batches of sequences of these lengths, padding included."""
    return sum(len(batch) * max(lengths[i] for i in batch) for batch in batches)


def pad_right(sequences: Sequence[Sequence[Any] | NDArray[Any]], dtype: Any = np.int64) -> NDArray[Any]:
    """(B, T) sequences as rows, padded with zeros at the right."""
    rows = np.zeros((len(sequences), max(map(len, sequences), default=0)), dtype=dtype)
    for row, sequence in zip(rows, sequences, strict=True):
        row[: len(sequence)] = sequence
    return rows
