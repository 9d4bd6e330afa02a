"""Many sequences read with each shared prefix once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.core.optional import require

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


CROPPABLE = {"full_attention", "sliding_attention"}  # layers whose cache can be cut back to a prefix


class Reader:
    """Reads the passes of one plan, in its order, with one cache.

    Lanes of a batch stand on a prefix of one length and are padded at the right, where a causal model does
    not look: no lane needs a mask, and its positions are those it would have alone.

    Args:
        base: gives hidden states; see `Halves`.
        sequences: of the plan.
        device: where the base takes its ids.
    """

    def __init__(self, base: Any, sequences: Sequence[Ids], device: Any):
        self._base, self._sequences, self._device = base, sequences, device
        self._torch = require("torch", "train")
        self._cache: Any = None

    def read(self, step: Pass) -> Any:
        """Hidden states (B, stop - start, H) of a pass."""
        ids = np.zeros((len(step.lanes), step.stop - step.start), dtype=np.int64)
        for row, lane in zip(ids, step.lanes, strict=True):
            fresh = self._sequences[lane[0]][step.start : step.stop]
            row[: len(fresh)] = fresh
        inputs = self._torch.from_numpy(ids).to(self._device)
        if step.start == 0 and not step.keep:
            return self._base(input_ids=inputs, use_cache=False).last_hidden_state
        cache = self._crop(step.start) if len(step.lanes) == 1 else self._branch(step.start, len(step.lanes))
        return self._base(input_ids=inputs, past_key_values=cache, use_cache=True).last_hidden_state

    def _crop(self, length: int) -> Any:
        """The cache, cut back to a prefix; what is read next is added to it.

        Made without a config, every layer of it holds the whole prefix, also those of a sliding window, which
        could not be cut back otherwise; the model's mask still hides what is outside the window.
        """
        if length == 0 or self._cache is None:
            self._cache = require("transformers", "train").DynamicCache()
        for layer in self._cache.layers:
            layer.keys, layer.values = layer.keys[:, :, :length], layer.values[:, :, :length]
        return self._cache

    def _branch(self, length: int, lanes: int) -> Any:
        """A copy of the cache's prefix for several lanes, which is thrown away after them."""
        cache = require("transformers", "train").DynamicCache()
        for number, layer in enumerate(self._cache.layers):
            kept = (states[:, :, :length].expand(lanes, -1, -1, -1) for states in (layer.keys, layer.values))
            cache.update(*kept, number)
        return cache


def can_reuse(base: Any, config: Any, device: Any) -> bool:
    """Whether a model's cache can be cut back to a prefix.

    Its layers must hold nothing but keys and values of their own, and eight tokens read in two passes must
    give what one pass gives (a model may know its own kind of state alone, and ignore ours).
    """
    kinds = set(getattr(config, "layer_types", None) or ())
    if not kinds <= CROPPABLE or getattr(config, "num_kv_shared_layers", None) or reads_by_length(config):
        return False
    torch = require("torch", "train")
    reader = Reader(base, [np.arange(8) * 7 % config.vocab_size], device)
    with torch.no_grad():
        whole = reader.read(Pass(0, 8, [[0]], keep=False))[:, 4:].float()
        try:
            reader.read(Pass(0, 6, [[0]], keep=True))
            parts = reader.read(Pass(4, 8, [[0]], keep=False)).float()
        except (AttributeError, IndexError, TypeError, ValueError):
            return False
        # One that ignores the cache is off by the size of the states themselves, in any precision.
        return bool((parts - whole).norm() <= 0.05 * whole.norm())


def reads_by_length(config: Any) -> bool:
    """Whether a token's keys depend on how long the whole text is (LongRoPE), also on padding beside it."""
    return "longrope" in str([getattr(config, name, None) for name in ("rope_parameters", "rope_scaling")])
