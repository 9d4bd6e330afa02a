"""Sequences with a common prefix, which is read once, in one pass without padding, with gradients.

A pass reads the tokens of many sequences as one row, each shared prefix once and nothing padded, so that the
linear layers compute every token once. Attention alone knows which token is whose: `attend` shows a segment
the keys and values of those before it and its own. Gradients are those of reading each sequence by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface, DynamicCache, PreTrainedModel

from memenvs.core.batching import lexicographic_order, micro_batches
from memenvs.core.episode import Ids
from memenvs.models.loading import cache_inputs, can_reuse_cache

ATTENTION = "memenvs_packed"  # name of `attend` among the attention implementations of transformers
PREFIX = 32  # tokens that a shared prefix must save: about what one more row of a pass costs
ALIKE = 0.75  # shortest to longest segment of one attention call; nothing else is padded
CALL = 16_384  # tokens of one attention call, padding and each row's prefix included; bounds its memory
BLOCK = 128  # queries whose scores are computed at once, against no later key
UNKNOWN = ("s_aux", "position_bias", "cache")  # parts of attention that only other implementations have
LONG = 2_048  # tokens from which on scores kept for a gradient would take most of the memory


_packed_batch: ContextVar[PackedBatch] = ContextVar("packed_batch")  # what `read_packed` reads


class Segment(NamedTuple):
    """Tokens `start` to `end` of sequence `row`, which follow those of segment number `before`, if any."""

    row: int
    start: int
    end: int
    before: int | None


def prefix_tree(sequences: Sequence[Ids]) -> list[Segment]:
    """Split sequences into segments, so that a prefix that several of them share is read once.

    A prefix that n sequences share for p more tokens than the segment before it saves p (n - 1), and is a
    segment if that exceeds `PREFIX`. Used for prompts before sampling, the sequences of an update and a
    scorer's requests; each turn of a growing context continues the one before. Segments come in lexicographic
    order, each after the one that it continues. A sequence ends in a segment of its own, which no other
    continues; one without tokens has none.
    """
    starts = [np.ascontiguousarray(ids[:-1]) for ids in sequences]
    order = [row for row in lexicographic_order(starts) if len(sequences[row])]
    shared = np.array([_common(starts[a], starts[b]) for a, b in itertools.pairwise(order)])
    segments = list[Segment]()
    runs = list[tuple[int, int, int, int | None]]()
    if order:
        runs.append((0, len(order), 0, None))  # from, to, tokens before, and the segment that holds them
    while runs:
        first, last, start, before = runs.pop()
        row = order[first]
        if last - first == 1:
            segments.append(Segment(row, start, len(sequences[row]), before))
            continue
        between = shared[first : last - 1]
        common = int(between.min())
        if (common - start) * (last - first - 1) > PREFIX:
            segments.append(Segment(row, start, common, before))
            start, before = common, len(segments) - 1
        ends = [first, *(first + 1 + np.flatnonzero(between == common)).tolist(), last]
        runs += [(a, b, start, before) for a, b in itertools.pairwise(ends)][::-1]
    return segments


def _common(a: Ids, b: Ids) -> int:
    """The number of tokens that both begin with."""
    length = min(len(a), len(b))
    apart = np.flatnonzero(a[:length] != b[:length])
    return int(apart[0]) if len(apart) else length


def pack_batches(sequences: Sequence[Ids], budget: int) -> list[list[int]]:
    """Numbers of sequences in batches for `PackedBatch`, each of about `budget` tokens to compute, or fewer.

    Sequences with a common prefix stay together where they fit; otherwise each batch reads the prefix again.
    A batch exceeds the budget where a short prefix is worth a segment among all sequences and not among its
    own. A sequence longer than the budget is a batch of its own; one without tokens is in none. The largest
    batches come first, so that what does not fit the memory fails at once.
    """
    tree = prefix_tree(sequences)
    below = [segment.end - segment.start for segment in tree]  # tokens of a segment and all that continue it
    for number, segment in reversed([*enumerate(tree)]):
        if segment.before is not None:
            below[segment.before] += below[number]
    continued = {segment.before for segment in tree}
    batches, tokens, rows = list[list[int]](), 0, list[int]()
    for number, (row, start, end, _) in enumerate(tree):
        is_last = number not in continued
        fits = start + below[number] <= budget
        if rows and tokens + below[number] > budget and (is_last or fits):
            batches.append(rows)
            tokens, rows = start, []
        tokens += end - start
        if is_last:
            rows.append(row)
    batches += [rows] if rows else []
    return sorted(batches, key=lambda rows: -packed_tokens([sequences[row] for row in rows]))


def packed_tokens(sequences: Sequence[Ids]) -> int:
    """Tokens of a `PackedBatch`: each shared prefix counts once."""
    return sum(segment.end - segment.start for segment in prefix_tree(sequences))


class AttentionCall(NamedTuple):
    """Segments whose attention is computed together, padded to the longest."""

    rows: int  # number of segments, at least one
    width: int  # tokens of the longest
    before: list[int]  # numbers of the segments that precede each of them, in order


class PackedBatch:
    """Sequences as one row of N tokens: the segments of each attention call, one after the other.

    Attributes:
        calls: of attention.
        lengths: tokens of each segment.
        ids: (N,) tokens.
        positions: (N,) position of each token in its sequence.
        index: (M,) which of the N tokens is at each place of the padded calls; padding repeats one.
        inverse: (N,) of each token, its place in the padded calls.
        places: of each sequence, where its tokens (T,) are among the N.

    Args:
        sequences: (T,) ids each, not all empty.
        device: the torch device of its tensors.
    """

    def __init__(self, sequences: Sequence[Ids], device: torch.device | str):
        tree = prefix_tree(sequences)
        siblings = dict[int | None, list[int]]()  # the segments that follow each
        for number, segment in enumerate(tree):
            siblings.setdefault(segment.before, []).append(number)
        self.calls = list[AttentionCall]()
        order = list[Segment]()
        widths = list[int]()  # of each segment's call
        paths = dict[int | None, list[int]]({None: []})  # places in `order` of a segment and those before it
        # A segment comes after the one that it follows, whose path is known then.
        for before, numbers in siblings.items():
            segments = [tree[number] for number in numbers]
            # Those of like length together; attention copies what they follow for each.
            lengths = [segment.end - segment.start for segment in segments]
            for call in micro_batches(lengths, CALL, ALIKE, segments[0].start):
                width = max(lengths[i] for i in call)
                self.calls.append(AttentionCall(len(call), width, paths[before]))
                for i in call:
                    paths[numbers[i]] = [*paths[before], len(order)]
                    order.append(segments[i])
                    widths.append(width)
        self.lengths = [segment.end - segment.start for segment in order]
        tokens = np.split(np.arange(sum(self.lengths)), np.cumsum(self.lengths)[:-1])
        self.places = [np.zeros(0, np.int64)] * len(sequences)
        for number, segment in enumerate(tree):
            if number not in siblings:
                self.places[segment.row] = np.concatenate([tokens[place] for place in paths[number]])
        starts = np.cumsum([0, *widths[:-1]])

        def joined(parts: Iterable[NDArray[np.int64]]) -> Tensor:
            return torch.from_numpy(np.concatenate(list(parts)).astype(np.int64)).to(device)

        self.ids = joined(sequences[row][start:end] for row, start, end, _ in order)
        self.positions = joined(np.arange(start, end) for _, start, end, _ in order)
        self.index = joined(
            numbers[np.minimum(np.arange(width), len(numbers) - 1)]
            for numbers, width in zip(tokens, widths, strict=True)
        )
        self.inverse = joined(
            start + np.arange(length) for start, length in zip(starts, self.lengths, strict=True)
        )
        self._masks = dict[tuple[int, int, int | None, torch.dtype, torch.device], Tensor]()

    def mask(self, first: int, last: int, window: int | None, like: Tensor) -> Tensor:
        """(last - first, last) what is added to the scores of queries from place `first` to `last`."""
        key = (first, last, window, like.dtype, like.device)
        if key not in self._masks:
            places = torch.arange(last, device=like.device)
            apart = places[first:, None] - places
            hidden = apart < 0 if window is None else (apart < 0) | (apart >= window)
            self._masks[key] = like.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)
        return self._masks[key]


def read_packed(backbone: PreTrainedModel, batch: PackedBatch, cache: DynamicCache | None = None) -> Tensor:
    """Hidden states (N, H) of a batch's tokens, with gradients where torch keeps them.

    `can_read_packed` is true of the model. An empty `cache` gets the keys and values (1, heads, N, D).
    """
    kept = {"use_cache": False} if cache is None else cache_inputs(backbone, cache)
    # Not as an argument of the call: some models (Nemotron) hand none on to their layers.
    token = _packed_batch.set(batch)
    try:
        with attention(backbone, ATTENTION):
            output = backbone(input_ids=batch.ids[None], position_ids=batch.positions[None], **kept)
    finally:
        _packed_batch.reset(token)
    states: Tensor = output.last_hidden_state[0]
    return states


@contextmanager
def attention(backbone: PreTrainedModel, name: str) -> Iterator[None]:
    """Let a model's layers use an attention implementation that transformers knows by name."""
    before = backbone.config._attn_implementation
    backbone.set_attn_implementation(name)
    try:
        yield
    finally:
        backbone.set_attn_implementation(before)


def can_read_packed(backbone: PreTrainedModel) -> bool:
    """Whether a model can read packed sequences: all its layers leave attention, whole, to `attend`."""
    # Where attention has parts that `attend` lacks (sinks), transformers says that it has no SDPA; but it
    # says so of a cap on scores too, which `attend` knows.
    capped = getattr(backbone.config.get_text_config(), "attn_logit_softcapping", None)
    known = backbone._supports_attention_backend and (backbone._supports_sdpa or capped)
    # Asked to change the attention of a class that a notebook defines, transformers only warns.
    return bool(known) and backbone._can_set_attn_implementation() and can_reuse_cache(backbone)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention (1, N, heads, D) of a packed batch, in the form that transformers calls; no weights.

    `query` is (1, heads, N, D), `key` and `value` (1, key heads, N, D). Scores are scaled by `scaling` (None:
    1 / sqrt(D)) and capped as c tanh(scores / c) with c = `softcap`. A token sees `sliding_window` tokens,
    itself included (None: all before it).

    Raises:
        NotImplementedError: the layer's attention has parts that are not here.
    """
    packed = _packed_batch.get()
    if attention_mask is not None or any(others.get(name) is not None for name in UNKNOWN):
        raise NotImplementedError(f"{type(module).__name__} cannot read packed sequences")
    heads, key_heads = query.shape[1], key.shape[1]
    query = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if query.dtype != value.dtype:  # autocast leaves the rotated ones in float32
        query, key = query.to(value.dtype), key.to(value.dtype)
    rows = [states[0].transpose(0, 1).reshape(states.shape[2], -1) for states in (query, key, value)]
    index, inverse = packed.index.to(query.device), packed.inverse.to(query.device)
    sizes = [call.rows * call.width for call in packed.calls]
    padded = [states.index_select(0, index).split(sizes) for states in rows]
    keys, values = (states.split(packed.lengths) for states in rows[1:])
    outputs = []
    for number, (count, _, before) in enumerate(packed.calls):
        q, k, v = (
            _by_head(states[number], count, of)
            for states, of in zip(padded, (heads, key_heads, key_heads), strict=True)
        )
        if before:
            k, v = (
                torch.cat(
                    [*(_by_head(read[i], 1, key_heads).expand(count, -1, -1, -1) for i in before), new], 2
                )
                for read, new in ((keys, k), (values, v))
            )
        output = _attention(packed, q, k, v, dropout, sliding_window, softcap)
        outputs.append(output.transpose(1, 2).reshape(sizes[number], -1))
    whole = torch.cat(outputs).index_select(0, inverse)
    return whole.view(1, len(whole), heads, -1), None


def _by_head(states: Tensor, rows: int, heads: int) -> Tensor:
    """(rows, heads, T, D) of (rows * T, heads * D)."""
    return states.view(rows, len(states) // rows, heads, -1).transpose(1, 2)


def _attention(
    packed: PackedBatch,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: float,
    window: int | None,
    cap: float | None,
) -> Tensor:
    """Attention (B, heads, S, D) of scaled queries, the last S of T tokens; keys and values are (B, K, T, D).

    On a CPU two matrix products and a softmax for blocks of queries are three times as fast, forward and
    backward, as `scaled_dot_product_attention`, which computes scores again in the backward pass; but where
    sequences are long these scores would fill the memory.
    """
    (count, heads, queries, _), (_, key_heads, total, _) = q.shape, k.shape
    shared = heads // key_heads
    long = total > LONG and torch.is_grad_enabled()
    if cap is None and (long or q.device.type != "cpu"):
        whole = window is None and queries == total
        return torch.nn.functional.scaled_dot_product_attention(
            q,
            k.repeat_interleave(shared, 1),
            v.repeat_interleave(shared, 1),
            attn_mask=None if whole else packed.mask(total - queries, total, window, q),
            dropout_p=dropout,
            is_causal=whole,
            scale=1.0,
        )
    k, v = k.flatten(0, 1), v.flatten(0, 1)
    blocks = []
    for start in range(0, queries, BLOCK):
        first, last = total - queries + start, total - queries + min(start + BLOCK, queries)
        # The heads that share keys follow each other, so that keys are not repeated.
        block = q[:, :, start : start + BLOCK].reshape(count * key_heads, -1, q.shape[-1])
        mask = packed.mask(first, last, window, q).repeat(shared, 1)
        seen = k[:, :last].transpose(1, 2)
        if cap is None:
            scores = torch.baddbmm(mask, block, seen)
        else:
            scores = torch.bmm(block, seen).div(cap).tanh().mul(cap) + mask
        weights = scores.softmax(-1)
        if dropout:
            weights = torch.nn.functional.dropout(weights, dropout)
        blocks.append(torch.bmm(weights, v[:, :last]).view(count, heads, last - first, -1))
    return torch.cat(blocks, 2)


AttentionInterface.register(ATTENTION, attend)
