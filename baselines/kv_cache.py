"""Prompts come in and are read, equal ones once; a left-padded cache of all of them goes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from memenvs.baselines.token_text import Ids
from memenvs.extras import require

torch = require("torch", "train")
transformers = require("transformers", "train")

PADDING = 0.1  # share of a pass over prompts that may be padding
PASS = 16_384  # tokens in a pass over prompts, padding included; a longer prompt is read alone


DynamicLayer: Any = transformers.cache_utils.DynamicLayer


class RoomyLayer(DynamicLayer):
    """Keys and values with room for the tokens to come, so that a step writes one token and copies none.

    Args:
        keys: (B, H, room, D), as are values.
        used: tokens that are in it.
    """

    def __init__(self, keys: Any, values: Any, used: int):
        super().__init__()
        self.keys, self.values, self.used = keys, values, used
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def update(self, key_states: Any, value_states: Any, *_args: Any, **_kwargs: Any) -> tuple[Any, Any]:
        """Write what is new behind what is there; keys and values (B, H, used, D) of both."""
        end = self.used + key_states.shape[-2]
        self.keys[:, :, self.used : end] = key_states
        self.values[:, :, self.used : end] = value_states
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        """Tokens that are in it."""
        return self.used

    def keep(self, rows: Any, trim: int) -> None:
        """Only these rows, without their first `trim` tokens."""
        self.keys, self.values = self.keys[rows, :, trim:], self.values[rows, :, trim:]
        self.used -= trim


def read_prompts(base: Any, prompts: Sequence[Ids], room: int, device: Any) -> tuple[Any, Any]:
    """A cache of all prompts, padded at the left to the longest, and the last hidden state (B, H) of each.

    Prompts are read padded at the right, where a causal model does not look, so that no pass needs a mask.

    Args:
        base: gives hidden states and fills a cache; see `memenvs.wrappers.scorers.head.Halves`.
        prompts: of B rows; equal ones are read once.
        room: tokens to come behind the prompts.
        device: where the base takes its ids.
    """
    numbers: dict[bytes, int] = {}
    which = [numbers.setdefault(prompt.tobytes(), len(numbers)) for prompt in prompts]
    distinct = [prompts[which.index(number)] for number in range(len(numbers))]
    lengths = [len(prompt) for prompt in distinct]
    layers: list[RoomyLayer] = []
    last: Any = None
    for chosen in _passes(lengths):
        read = transformers.DynamicCache()  # made without a config, it keeps all of a sliding window's prefix
        hidden = _read(base, [distinct[i] for i in chosen], read, device)
        if last is None:
            last = hidden.new_empty(len(prompts), hidden.shape[-1])
            layers = [_empty(layer, len(prompts), max(lengths), room) for layer in read.layers]
        for length, places, rows in _copies(chosen, lengths, which):
            source, target = (torch.tensor(found, device=device) for found in (places, rows))
            last[target] = hidden[source, length - 1]
            for layer, found in zip(layers, read.layers, strict=True):
                there = slice(layer.used - length, layer.used)
                layer.keys[target, :, there] = found.keys[source, :, :length]
                layer.values[target, :, there] = found.values[source, :, :length]
    cache = transformers.DynamicCache()
    cache.layers = layers
    return cache, last


def _copies(
    chosen: Sequence[int], lengths: Sequence[int], which: Sequence[int]
) -> Iterator[tuple[int, list[int], list[int]]]:
    """For each length in a pass: places in the pass, and the rows that take their prompt from there."""
    place_of = {number: place for place, number in enumerate(chosen)}
    pairs: dict[int, list[tuple[int, int]]] = {}
    for row, number in enumerate(which):
        if number in place_of:
            pairs.setdefault(lengths[number], []).append((place_of[number], row))
    for length, found in pairs.items():
        yield length, [place for place, _ in found], [row for _, row in found]


def _passes(lengths: Sequence[int]) -> list[list[int]]:
    """Numbers of the prompts that are read together: of like length, longest first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    passes: list[list[int]] = []
    for i in order:
        if passes:
            longest, tokens = lengths[passes[-1][0]], sum(lengths[j] for j in passes[-1]) + lengths[i]
            size = longest * (len(passes[-1]) + 1)
            if size <= PASS and size - tokens <= PADDING * size:
                passes[-1].append(i)
                continue
        passes.append([i])
    return passes


def _read(base: Any, prompts: Sequence[Ids], cache: Any, device: Any) -> Any:
    """Hidden states (U, T, H) of prompts, the longest of which comes first."""
    ids = np.zeros((len(prompts), len(prompts[0])), dtype=np.int64)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = prompt
    inputs = torch.from_numpy(ids).to(device)
    return base(input_ids=inputs, past_key_values=cache, use_cache=True).last_hidden_state


def _empty(layer: Any, rows: int, width: int, room: int) -> RoomyLayer:
    """A layer like one that was filled; zeros, because what lies under a mask must be finite."""
    keys, values = (
        states.new_zeros(rows, states.shape[1], width + room, states.shape[3])
        for states in (layer.keys, layer.values)
    )
    return RoomyLayer(keys, values, width)
