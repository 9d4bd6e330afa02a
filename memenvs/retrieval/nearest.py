"""The k nearest rows: candidates of an index, scored exactly, in one order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.retrieval.indexes import Find, Vectors
from memenvs.retrieval.ranking import DECIMALS, ordered

SPARE = 8  # candidates beyond k, so that a tie at k is mostly seen at the first try
Ranked = tuple[NDArray[np.float64], NDArray[np.int64]]


class Nearest(NamedTuple):
    """An index over vectors, with what turns its candidates into an order.

    Attributes:
        find: the candidates of the index.
        vectors: (N, d), float32, unit length.
        rank: (N,) place of each row's id among the sorted ids.
        exact: whether `find` misses nothing: then candidates are fetched until ties at k are settled.
        rescore: least number of candidates to score.
    """

    find: Find
    vectors: Vectors
    rank: NDArray[np.uint32]
    exact: bool
    rescore: int = 0

    def search(self, queries: Vectors, k: int, fetch: int = 0) -> list[Ranked]:
        """Scores and rows, best first, of the k nearest to each of (B, d) queries.

        `fetch` is the number of candidates to start with; by default a few more than k.
        """
        fetch = min(len(self.vectors), fetch or max(k + SPARE, self.rescore))
        rows = self.find(queries, fetch)
        answers, unsettled = [], []
        for place, (query, found) in enumerate(zip(queries, rows, strict=True)):
            found = found[found >= 0]
            scores = inner(self.vectors, found, query)
            answers.append(ordered(scores, found, self.rank, k))
            if (
                self.exact
                and fetch < len(self.vectors)
                and scores.min() + 10.0**-DECIMALS >= answers[-1][0][-1]
            ):
                unsettled.append(place)
        if unsettled:
            for place, answer in zip(unsettled, self.search(queries[unsettled], k, 4 * fetch), strict=True):
                answers[place] = answer
        return answers


def inner(vectors: Vectors, rows: NDArray[np.int64], query: Vectors) -> NDArray[np.float64]:
    """Inner products (C,) of the vectors (N, d) at rows (C,) with a query (d,), in float64.

    FAISS sums in another order for one query than for a batch of them, and at the end of a block than in
    its middle: equal passages could score unequally.
    """
    products: NDArray[np.float64] = (vectors[rows].astype(np.float64) * query).sum(axis=1)
    return products


def recall(approximate: Nearest, exact: Nearest, queries: Vectors, k: int) -> float:
    """Mean share, over (B, d) queries, of the k exact answers that score no better than what was found.

    Counting scores, not rows: a passage as near as the k-th is as good an answer.
    """
    shares = []
    for (found, _), (best, _) in zip(approximate.search(queries, k), exact.search(queries, k), strict=True):
        shares.append(float(np.mean(found[: len(best)] >= best[-1])) * len(found) / len(best))
    return float(np.mean(shares))
