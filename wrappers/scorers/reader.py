"""Passes of a plan come in; hidden states go out, and the keys and values of the kept prefix stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from memenvs.extras import require
from memenvs.wrappers.scorers.plan import Ids, Pass

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
