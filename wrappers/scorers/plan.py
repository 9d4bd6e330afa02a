"""Token sequences come in; the passes of a model over them go out, each prefix that many share read once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.integer]


class Pass(NamedTuple):
    """One call of the model: positions start to stop of some sequences, on a kept prefix.

    Attributes:
        start: tokens of the prefix that this pass stands on, which passes before have kept.
        stop: where its longest lane ends.
        lanes: of each row of the batch, the sequences it stands for: their ids are equal from 0 to the row's
            end. A lane of a pass that is not kept holds one sequence.
        keep: whether passes to come stand on this one; it then has one lane.
    """

    start: int
    stop: int
    lanes: list[list[int]]
    keep: bool


def plan(sequences: Sequence[Ids], budget: int, overhead: int, reuse: bool = True) -> Iterator[Pass]:
    """Passes that read every sequence to its end, in an order that one growing and shrinking cache serves.

    The sequences, sorted, are the leaves of a trie that is walked depth first. A prefix of a subtree is kept
    where that saves more than `overhead` tokens; what hangs on it is read in batches of like length.

    Args:
        sequences: distinct and not empty.
        budget: tokens in a pass, the padding and each lane's prefix included; one lane may exceed it, and is
            then read in several passes if `reuse`.
        overhead: tokens whose reading takes as long as what every pass costs by itself.
        reuse: whether the model's cache can be cut back to a prefix; if not, nothing is kept.
    """
    order = sorted(range(len(sequences)), key=lambda i: _sortable(sequences[i]))
    shared = [_common(sequences[a], sequences[b]) for a, b in itertools.pairwise(order)]
    common = np.array(shared if reuse else [0] * len(shared), dtype=np.int64)
    stack = [(0, len(order), 0, 0)] if order else []
    while stack:
        low, high, start, stop = stack.pop()
        if stop > start:
            yield from _chunks(start, stop, order[low:high], budget, keep=True)
        leaves, groups = _split(common, low, high, stop, overhead)
        left = [order[i] for i in leaves if len(sequences[order[i]]) > stop]
        yield from _batches(sequences, left, stop, budget, overhead, reuse)
        stack.extend(
            (group_low, group_high, stop, group_stop) for group_low, group_high, group_stop in groups
        )


def _split(
    common: NDArray[np.int64], low: int, high: int, start: int, overhead: int
) -> tuple[list[int], list[tuple[int, int, int]]]:
    """The leaves on the prefix `start` itself, and (low, high, stop) of the longer prefixes on it."""
    leaves, groups, ranges = [], [], [(low, high)]
    while ranges:
        low, high = ranges.pop()
        if high - low == 1:
            leaves.append(low)
            continue
        between = common[low : high - 1]
        stop = int(between.min())
        if (stop - start) * (high - low - 1) > overhead:
            groups.append((low, high, stop))
            continue
        (cuts,) = np.nonzero(between == stop)
        edges = [low, *(low + cuts + 1).tolist(), high]
        ranges.extend(itertools.pairwise(edges))
    return leaves, groups


def _batches(
    sequences: Sequence[Ids], rows: list[int], start: int, budget: int, overhead: int, reuse: bool
) -> Iterator[Pass]:
    """Passes over the rest of `rows`, longest first; no batch has more than `overhead` tokens of padding."""
    rows = sorted(rows, key=lambda row: (-len(sequences[row]), row))
    while rows:
        longest, padding, size = len(sequences[rows[0]]), 0, 1
        for row in rows[1 : max(1, budget // longest)]:
            padding += longest - len(sequences[row])
            if padding > overhead:
                break
            size += 1
        if size == 1 and reuse:
            yield from _chunks(start, longest, rows[:1], budget, keep=False)
        else:
            yield Pass(start, longest, [[row] for row in rows[:size]], keep=False)
        rows = rows[size:]


def _chunks(start: int, stop: int, lane: list[int], budget: int, keep: bool) -> Iterator[Pass]:
    """One lane, `budget` tokens at a time."""
    while stop - start > budget:
        yield Pass(start, start + budget, [lane], keep=True)
        start += budget
    yield Pass(start, stop, [lane], keep)


def _sortable(ids: Ids) -> bytes:
    return np.asarray(ids, dtype=">u4").tobytes()


def _common(a: Ids, b: Ids) -> int:
    """Length of the longest common prefix."""
    size = min(len(a), len(b))
    (differ,) = np.nonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size
