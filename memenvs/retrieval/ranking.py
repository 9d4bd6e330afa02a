"""The k best of scored rows, equal scores by id: one order, whatever found the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memenvs.retrieval.protocol import Hits, check_search

DECIMALS = 6  # float32 noise of batch shapes is about 1e-7: it must not decide an order
LANES = 64


def ordered(
    scores: NDArray[np.floating[Any]], rows: NDArray[np.int64], rank: NDArray[np.uint32], k: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The k best of C scored rows, equal scores (to DECIMALS) by the rank of their ids.

    `scores` and `rows` are (C,); what comes back is (min(k, C),) each.
    """
    rounded = np.asarray(scores, dtype=np.float64).round(DECIMALS)
    best = np.lexsort((rank[rows], -rounded))[:k]
    return rounded[best], rows[best]


def contenders(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Rows of `scores` (N,) that can be among the k best with a positive score: all, ties too, and few more.

    The k-th largest maximum of N / LANES disjoint sets of rows is never above the k-th largest score, and
    costs three streaming passes where a partition of all scores costs ten times as much.
    """
    sets = len(scores) // LANES
    if k >= sets:
        return np.flatnonzero(scores > 0)
    maxima = scores[: sets * LANES].reshape(LANES, sets).max(axis=0)
    bound = np.partition(maxima, sets - k)[sets - k] - 10.0**-DECIMALS
    return np.flatnonzero(scores >= bound) if bound > 0 else np.flatnonzero(scores > 0)


def search_distinct(queries: Sequence[str], k: int, search: Callable[[list[str], int], Hits]) -> Hits:
    """Check and clean the queries, search each distinct one once, and give every query its own lists."""
    cleaned = check_search(queries, k)
    distinct = {query: place for place, query in enumerate(dict.fromkeys(cleaned))}
    found = search(list(distinct), k) if distinct else Hits([], [])
    places = [distinct[query] for query in cleaned]
    return Hits([list(found.ids[i]) for i in places], [list(found.scores[i]) for i in places])
