"""Sampling with a KV cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.core.checks import Range, check_numbers, check_whole
from memenvs.core.optional import require
from memenvs.models.chat import BROKEN, Ids, TokenText
from memenvs.models.loading import Halves

torch = require("torch", "train")
transformers = require("transformers", "train")


class Choice(NamedTuple):
    """How the next token is drawn: of what `top_k`, then `top_p`, then `min_p` leave, by its probability.

    Attributes:
        temperature: at least 0; 0 takes the likeliest token.
        top_p: in (0, 1]; only the likeliest tokens that together reach this share are drawn.
        top_k: only so many of the likeliest tokens are drawn; 0: all.
        min_p: in [0, 1]; only tokens at least this share as likely as the likeliest one are drawn.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0

    def check(self) -> Choice:
        """Itself.

        Raises:
            ValueError: a number is out of its range.
        """
        check_numbers(Range(0), temperature=self.temperature)
        check_numbers(Range(above=0, most=1), top_p=self.top_p)
        check_whole(Range(0), top_k=self.top_k)
        check_numbers(Range(0, 1), min_p=self.min_p)
        return self

    @property
    def cuts(self) -> bool:
        """Whether some tokens are never drawn."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0

    def scaled(self, logits: Any) -> Any:
        """Logits (…, V) in float32 at the temperature; at temperature 0 as they are."""
        logits = logits.float()
        return logits if self.temperature in (0, 1) else logits / self.temperature

    def draw(self, logits: Any, uniforms: Any) -> tuple[Any, Any]:
        """Token ids (B,) and their log-probabilities (B,) in nats, by inverting the cumulative distribution.

        A row's token depends on its own logits and number alone. The log-probabilities are those of the whole
        distribution at the temperature, also where it is cut.

        Args:
            logits: (B, V).
            uniforms: (B,) float64 in [0, 1).
        """
        scaled = self.scaled(logits)
        top, likeliest = scaled.max(1, keepdim=True)
        weights = (scaled - top).exp_()  # the one exponential of a step: it dominates with large vocabularies
        sums = weights.cumsum(1, dtype=torch.float64)
        total = sums[:, -1:]
        if self.temperature == 0:
            ids = likeliest
        elif self.cuts:
            ids = _find(self._kept(weights).cumsum(1, dtype=torch.float64), uniforms)
        else:
            ids = _find(sums, uniforms)
        return ids[:, 0], ((scaled.gather(1, ids) - top).double() - total.log())[:, 0]

    def _kept(self, weights: Any) -> Any:
        """Weights (B, V), 0 where a token is not drawn; tokens as likely as the last one kept stay."""
        if 0 < self.top_k < weights.shape[1]:
            least = weights.topk(self.top_k, dim=1).values[:, -1:]
            weights = weights.where(weights >= least, 0)
        if self.top_p < 1:
            falling = weights.sort(dim=1, descending=True).values
            sums = falling.cumsum(1, dtype=torch.float64)
            enough = (sums < self.top_p * sums[:, -1:]).sum(1, keepdim=True)
            weights = weights.where(weights >= falling.gather(1, enough), 0)
        return weights.where(weights >= self.min_p, 0) if self.min_p else weights  # the largest weight is 1


def _find(sums: Any, uniforms: Any) -> Any:
    """The tokens (B, 1) in whose share of the cumulative weights (B, V) the uniform numbers (B,) fall."""
    whole = sums[:, -1:]
    # Below the whole even where the product rounds up, so that no token without weight is found.
    reached = torch.minimum(uniforms[:, None] * whole, torch.nextafter(whole, torch.zeros_like(whole)))
    return torch.searchsorted(sums, reached, right=True).clamp_(max=sums.shape[1] - 1)


class Stops:
    """Knows when a reply is over: by an end token, or by the token that completes a stop string.

    Only rows whose newest token could complete a stop string are decoded, and of those only the last tokens.

    Args:
        text: decodes, and knows the end tokens.
        stop: strings; none is empty.
        vocabulary: number of tokens that can be drawn.

    Raises:
        ValueError: a stop string is empty, or `stop` is one string.
    """

    def __init__(self, text: TokenText, stop: Sequence[str], vocabulary: int):
        self._text, self._stop = text, checked_stops(stop)
        self._ends = np.zeros(vocabulary, dtype=bool)
        self._ends[[end for end in text.ends if 0 <= end < vocabulary]] = True
        # A token has a byte at least, but for a few that show nothing, or only within a word.
        self._look = max((len(one.encode()) for one in stop), default=0) + 8
        self._closing = self._closers(vocabulary)

    def ended(self, ids: Ids, rows: Ids, step: int) -> NDArray[np.bool_]:
        """Which of `rows` (R,) of the replies `ids` (B, T) are over with their token number `step`."""
        newest = ids[rows, step]
        over = self._ends[newest]
        if self._stop:
            for place in np.flatnonzero(self._closing[newest] & ~over):
                seen = self._text.decode(ids[rows[place], max(0, step + 1 - self._look) : step + 1])
                over[place] = any(one in seen for one in self._stop)
        return over

    def _closers(self, vocabulary: int) -> NDArray[np.bool_]:
        """(V,) which tokens could complete a stop string."""
        closing = np.zeros(vocabulary, dtype=bool)
        if self._stop:
            last = {one[-1] for one in self._stop}
            if not all(letter.isascii() for letter in last):
                last.add(BROKEN)  # the last byte of such a letter may be a token of its own
            shown = self._text.backend.decode_batch(
                [[i] for i in range(vocabulary)], skip_special_tokens=False
            )
            closing[:] = [not last.isdisjoint(text) for text in shown]
        return closing


def checked_stops(stop: Sequence[str]) -> tuple[str, ...]:
    """The stop strings.

    Raises:
        ValueError: one is empty, or `stop` is one string.
    """
    if isinstance(stop, str) or not all(isinstance(one, str) and one for one in stop):
        raise ValueError(f"stop must be a list of strings that are not empty, got {stop!r}")
    return tuple(stop)


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
        base: gives hidden states and fills a cache; see `memenvs.models.loading.Halves`.
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


SHRINK = 0.75  # a batch is made smaller when at most this share of its rows still writes


class Drawn(NamedTuple):
    """What was drawn behind a prompt.

    Attributes:
        ids: (T,).
        logprobs: (T,) nats.
        finished: it ended by an end token or a stop string.
    """

    ids: Ids
    logprobs: NDArray[np.float64]
    finished: bool


class Sampler:
    """Draws replies, each by its own uniform numbers, so that none depends on those beside it.

    Sums of floats do depend, in their last bits, on what else is in a batch: where a uniform number falls
    within 1e-6 of the border of two tokens, a reply may turn out differently.

    Args:
        halves: of the model.
        device: where the model takes its ids.
        choice: how a token is drawn.
        stops: what ends a reply.
        window: tokens that the model knows positions for; None: any number.
        max_batch_tokens: tokens of prompts and replies in a batch; bounds the memory of its cache.
    """

    def __init__(
        self,
        halves: Halves,
        device: Any,
        choice: Choice,
        stops: Stops,
        window: int | None,
        max_batch_tokens: int,
    ):
        self._base, self._logits = halves
        self._device, self._choice, self._stops, self._window = device, choice, stops, window
        self._max_batch_tokens = max_batch_tokens
        self._positions = "position_ids" in inspect.signature(self._base.forward).parameters

    def __call__(self, prompts: Sequence[Ids], uniforms: Sequence[NDArray[np.float64]]) -> list[Drawn]:
        """Replies to prompts, each of at most as many tokens as it has numbers.

        Raises:
            FloatingPointError: the model's logits are no numbers.
        """
        drawn: list[Drawn] = [Drawn(np.zeros(0, dtype=np.int64), np.zeros(0), False)] * len(prompts)
        asked = [i for i, numbers in enumerate(uniforms) if len(numbers)]
        for batch in self._batches(prompts, uniforms, asked):
            found = self._draw([prompts[i] for i in batch], [uniforms[i] for i in batch])
            for i, one in zip(batch, found, strict=True):
                drawn[i] = one
        return drawn

    def _batches(
        self, prompts: Sequence[Ids], uniforms: Sequence[NDArray[np.float64]], asked: list[int]
    ) -> Iterator[list[int]]:
        """Rows that are drawn together: of like prompts, within the budget; at least one."""
        asked = sorted(asked, key=lambda i: (len(prompts[i]), prompts[i].tobytes()))
        batch: list[int] = []
        room = 0
        for i in asked:
            room = max(room, len(uniforms[i]))
            if batch and (len(batch) + 1) * (len(prompts[i]) + room) > self._max_batch_tokens:
                yield batch
                batch, room = [], len(uniforms[i])
            batch.append(i)
        if batch:
            yield batch

    def _draw(self, prompts: Sequence[Ids], uniforms: Sequence[NDArray[np.float64]]) -> list[Drawn]:
        limits = np.array([len(numbers) for numbers in uniforms])
        replies = _Replies(len(prompts), int(limits.max()))
        numbers = np.zeros((replies.room, len(prompts)))
        for row, own in enumerate(uniforms):
            numbers[: len(own), row] = own
        lanes = _Lanes(self, prompts, replies.room)
        for step in range(replies.room):
            rows = lanes.rows
            chance = torch.from_numpy(numbers[step, rows]).to(self._device)
            tokens, logprobs = self._choice.draw(self._logits(lanes.hidden), chance)
            replies.write(rows, step, tokens.cpu().numpy(), logprobs.cpu().numpy())
            ended = self._stops.ended(replies.ids, rows, step)
            replies.end(rows, step, ended, limits[rows] == step + 1)
            if not replies.open.any():
                break
            lanes.advance(tokens, replies.open[rows])
        return replies.drawn()

    def forward(self, tokens: Any, cache: Any, mask: Any, positions: Any) -> Any:
        """Hidden states (B, H) of one token (B,) behind what the cache holds."""
        extra = {"position_ids": positions[:, None]} if self._positions else {}
        if self._window is not None and extra:  # rows that have ended go on past the last position there is
            extra["position_ids"] = extra["position_ids"].clamp(max=self._window - 1)
        out = self._base(
            input_ids=tokens[:, None], past_key_values=cache, attention_mask=mask, use_cache=True, **extra
        )
        return out.last_hidden_state[:, -1]

    def read(self, prompts: Sequence[Ids], room: int) -> tuple[Any, Any]:
        """A cache of prompts and their last hidden states (B, H)."""
        return read_prompts(self._base, prompts, room, self._device)


class _Replies:
    """What has been written behind B prompts: `open` (B,) where a row still writes."""

    def __init__(self, rows: int, room: int):
        self.room = room
        self.ids = np.zeros((rows, room), dtype=np.int64)
        self.open = np.ones(rows, dtype=bool)
        self._logprobs = np.zeros((rows, room))
        self._finished = np.zeros(rows, dtype=bool)
        self._lengths = np.zeros(rows, dtype=np.int64)

    def write(self, rows: Ids, step: int, ids: Ids, logprobs: NDArray[np.floating[Any]]) -> None:
        if not np.isfinite(logprobs).all():
            raise FloatingPointError(
                f"the model's logits are not numbers at token {step} of a reply (NaN or infinite): "
                "its weights have diverged, or its dtype is too narrow; load an earlier checkpoint"
            )
        self.ids[rows, step], self._logprobs[rows, step] = ids, logprobs

    def end(self, rows: Ids, step: int, ended: NDArray[np.bool_], cut: NDArray[np.bool_]) -> None:
        over = rows[(ended | cut) & self.open[rows]]
        self._lengths[over] = step + 1
        self._finished[rows] |= ended & self.open[rows]
        self.open[over] = False

    def drawn(self) -> list[Drawn]:
        return [
            Drawn(self.ids[row, :length].copy(), self._logprobs[row, :length].copy(), bool(finished))
            for row, (length, finished) in enumerate(zip(self._lengths, self._finished, strict=True))
        ]


class _Lanes:
    """The rows of a batch that the model still reads, with their cache; ended ones leave now and then."""

    def __init__(self, sampler: Sampler, prompts: Sequence[Ids], room: int):
        self.rows = np.arange(len(prompts))
        self._sampler = sampler
        self._cache, self.hidden = sampler.read(prompts, room)
        lengths = np.array([len(prompt) for prompt in prompts])
        self._padding = lengths.max() - lengths
        self._used = int(lengths.max())
        self._positions = torch.from_numpy(lengths).to(self.hidden.device)
        slots = np.arange(self._used + room)
        self._mask = torch.from_numpy(slots >= self._padding[:, None]).to(self.hidden.device)

    def advance(self, tokens: Any, writing: NDArray[np.bool_]) -> None:
        """Read the tokens (B,) just drawn; `writing` (B,) says which rows go on."""
        if writing.mean() <= SHRINK:
            tokens = self._shrink(tokens, writing)
        self._used += 1
        mask = self._mask[:, : self._used] if self._padding.any() else None
        self.hidden = self._sampler.forward(tokens, self._cache, mask, self._positions)
        self._positions += 1

    def _shrink(self, tokens: Any, writing: NDArray[np.bool_]) -> Any:
        self.rows, self._padding = self.rows[writing], self._padding[writing]
        trim = int(self._padding.min())
        self._padding, self._used = self._padding - trim, self._used - trim
        kept = torch.from_numpy(np.flatnonzero(writing)).to(tokens.device)
        self._positions, self._mask = self._positions[kept], self._mask[kept, trim:]
        for layer in self._cache.layers:
            layer.keep(kept, trim)
        return tokens[kept]
