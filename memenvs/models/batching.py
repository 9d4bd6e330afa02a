"""Batches of sequences of like length."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

ALIKE = 0.85  # of the longest in its batch, what a sequence must have: no more than 15% can be padding


def micro_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices in batches of like length whose size, padding included, is at most `budget` tokens.

    Longest first, so that what does not fit the memory fails at once. A sequence longer than the budget is a
    batch of its own. Telling lengths apart adds few batches: 14 where the longest has ten times the shortest.
    """
    if budget < 1:
        raise ValueError(f"a micro-batch must hold at least 1 token, got {budget!r}")
    batches: list[list[int]] = []
    for i in np.argsort(-np.asarray(lengths), kind="stable").tolist():
        longest = lengths[batches[-1][0]] if batches else 0
        if batches and lengths[i] >= ALIKE * longest and (len(batches[-1]) + 1) * longest <= budget:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def padding_share(lengths: Sequence[int], batches: Sequence[Sequence[int]]) -> float:
    """The share of all positions that is padding."""
    padded = sum(len(batch) * lengths[batch[0]] for batch in batches)
    return 1.0 - sum(lengths) / padded if padded else 0.0
