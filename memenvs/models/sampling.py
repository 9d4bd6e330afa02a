"""Sampling from a causal model with a KV cache."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.core.batching import micro_batches, pad_right
from memenvs.core.optional import require
from memenvs.models.chat import BROKEN, Ids, TokenText
from memenvs.models.loading import CausalLM, PackedLinears, cache_inputs, empty_cache
from memenvs.models.policy import Reply, SamplingParams
from memenvs.models.prefixes import PrefixGroup, group_by_prefix

torch = require("torch", "train")
DynamicLayer: Any = require("transformers", "train").cache_utils.DynamicLayer

SHRINK = 0.75  # rows that have ended are removed once at most this share of a batch goes on
PREFILL = 16_384  # tokens of prompts in a forward pass, padding included; a longer prompt is read alone
SLOTS = 32  # by which a cache grows; oneDNN compiles a product for each length that it meets
PREFILL_ALIKE = 0.9  # at most a tenth of such a pass is padding


class TokenSampler:
    """Samples replies, each from its own uniform numbers, so that none depends on the others in its batch.

    The last bits of float sums do depend on the batch: where a uniform number falls within 1e-6 of the border
    between two tokens, a reply may differ.

    Args:
        model: split into backbone and lm_head.
        device: where the model takes its ids.
        params: how a token is sampled.
        stopping: what ends a reply.
        window: number of positions that the model has; None: any number.
        max_batch_tokens: tokens of prompts and replies in a batch; bounds the memory of its cache.
    """

    def __init__(
        self,
        model: CausalLM,
        device: Any,
        params: SamplingParams,
        stopping: StoppingCriteria,
        window: int | None,
        max_batch_tokens: int,
    ):
        self.model, self.device, self.window = model, device, window
        self._params, self._stopping, self._max_batch_tokens = params, stopping, max_batch_tokens
        self._decoder = _Decoder(model.backbone) if _Decoder.serves(model.backbone) else None
        self._packed = PackedLinears([model.backbone, model.lm_head.embeddings])

    def __call__(self, prompts: Sequence[Ids], uniforms: Sequence[NDArray[np.float64]]) -> list[Reply]:
        """Replies to prompts, each of at most as many tokens as it has uniform numbers.

        Raises:
            FloatingPointError: the model's logits are NaN or infinite.
        """
        replies = [Reply("", np.zeros(0, dtype=np.int64), np.zeros(0), False)] * len(prompts)
        rows = [i for i, numbers in enumerate(uniforms) if len(numbers)]
        rows.sort(key=lambda i: prompts[i].tobytes())  # equal prompts come into one batch, and are read once
        lengths, room = [len(prompts[i]) for i in rows], max(map(len, uniforms), default=0)
        with self._packed():
            for batch in micro_batches(lengths, self._max_batch_tokens, alike=0, extra=room):
                chosen = [rows[i] for i in batch]
                sampled = self._sample([prompts[i] for i in chosen], [uniforms[i] for i in chosen])
                for i, reply in zip(chosen, sampled, strict=True):
                    replies[i] = reply
        return replies

    def _sample(self, prompts: Sequence[Ids], uniforms: Sequence[NDArray[np.float64]]) -> list[Reply]:
        limits, numbers = np.array([len(own) for own in uniforms]), pad_right(uniforms, np.float64)
        replies = _Replies(*numbers.shape)
        active: _ActiveRows | _GroupedRows
        if self._decoder is None:
            active = _ActiveRows(self, prompts, numbers.shape[1])
        else:
            active = _GroupedRows(self, self._decoder, prompts)
        for step in range(numbers.shape[1]):
            rows = active.rows
            chance = torch.from_numpy(numbers[rows, step]).to(self.device)
            tokens, logprobs = sample_tokens(self.model.lm_head(active.hidden), chance, self._params)
            replies.write(rows, step, tokens.cpu().numpy(), logprobs.cpu().numpy())
            ended = self._stopping.ended(replies.ids, rows, step)
            replies.end(rows, step, ended, limits[rows] == step + 1)
            if not replies.open.any():
                break
            active.read(tokens, replies.open[rows])
        return replies.finish(self._stopping.text)


class StoppingCriteria:
    """Tells which replies are over: by an end token, or by the token that completes a stop string.

    Only rows whose newest token could complete a stop string are decoded, and of those only the last tokens.

    Args:
        text: decodes, and knows the end tokens.
        stop: strings, none empty.
        vocabulary: number of tokens that can be sampled.
    """

    def __init__(self, text: TokenText, stop: Sequence[str], vocabulary: int):
        self.text, self._stop = text, stop
        self._ends = np.zeros(vocabulary, dtype=bool)
        self._ends[[end for end in text.ends if 0 <= end < vocabulary]] = True
        # A token has at least one byte, but for a few that decode to nothing, or only within a word.
        self._tail = max((len(one.encode()) for one in stop), default=0) + 8
        self._completing = self._completing_tokens(vocabulary)

    def ended(self, ids: Ids, rows: Ids, step: int) -> NDArray[np.bool_]:
        """Which of `rows` (R,) of the replies `ids` (B, T) are over with their token number `step`."""
        newest = ids[rows, step]
        over = self._ends[newest]
        if self._stop:
            for place in np.flatnonzero(self._completing[newest] & ~over):
                tail = self.text.decode(ids[rows[place], max(0, step + 1 - self._tail) : step + 1])
                over[place] = any(one in tail for one in self._stop)
        return over

    def _completing_tokens(self, vocabulary: int) -> NDArray[np.bool_]:
        """(V,) which tokens could complete a stop string."""
        if not self._stop:
            return np.zeros(vocabulary, dtype=bool)
        last = {one[-1] for one in self._stop}
        if not all(letter.isascii() for letter in last):
            last.add(BROKEN)  # the last byte of such a letter may be a token of its own
        texts = self.text.backend.decode_batch([[i] for i in range(vocabulary)], skip_special_tokens=False)
        return np.array([not last.isdisjoint(text) for text in texts])


def sample_tokens(logits: Any, uniforms: Any, params: SamplingParams) -> tuple[Any, Any]:
    """Token ids (B,) and their log-probabilities (B,) in nats, by inverting the cumulative distribution.

    A row's token depends on its own logits and number alone. The log-probabilities are those of the whole
    distribution at the temperature, also where `params` truncate it.

    Args:
        logits: (B, V).
        uniforms: (B,) float64 in [0, 1).
        params: how tokens are sampled.
    """
    scaled = scale_logits(logits, params.temperature)
    top, likeliest = scaled.max(1, keepdim=True)
    weights = (scaled - top).exp_()  # the one exponential of a step: it dominates with large vocabularies
    sums = weights.cumsum(1, dtype=torch.float64)
    total = sums[:, -1:]
    if params.temperature == 0:
        ids = likeliest
    elif params.truncates:
        ids = _invert(_truncate(weights, params).cumsum(1, dtype=torch.float64), uniforms)
    else:
        ids = _invert(sums, uniforms)
    return ids[:, 0], ((scaled.gather(1, ids) - top).double() - total.log())[:, 0]


def scale_logits(logits: Any, temperature: float) -> Any:
    """Logits (..., V) in float32 divided by the temperature; at temperature 0 as they are."""
    logits = logits.float()
    return logits if temperature in (0, 1) else logits / temperature


def _truncate(weights: Any, params: SamplingParams) -> Any:
    """Weights (B, V), 0 where a token is not sampled; tokens as likely as the last one kept stay."""
    if 0 < params.top_k < weights.shape[1]:
        least = weights.topk(params.top_k, dim=1).values[:, -1:]
        weights = weights.where(weights >= least, 0)
    if params.top_p < 1:
        falling = weights.sort(dim=1, descending=True).values
        sums = falling.cumsum(1, dtype=torch.float64)
        enough = (sums < params.top_p * sums[:, -1:]).sum(1, keepdim=True)
        weights = weights.where(weights >= falling.gather(1, enough), 0)
    return weights.where(weights >= params.min_p, 0) if params.min_p else weights  # the largest weight is 1


def _invert(sums: Any, uniforms: Any) -> Any:
    """The tokens (B, 1) in whose share of the cumulative weights (B, V) the uniform numbers (B,) fall."""
    whole = sums[:, -1:]
    # Below the whole even where the product rounds up, so that no token without weight is found.
    reached = torch.minimum(uniforms[:, None] * whole, torch.nextafter(whole, torch.zeros_like(whole)))
    return torch.searchsorted(sums, reached, right=True).clamp_(max=sums.shape[1] - 1)


class PreallocatedLayer(DynamicLayer):
    """A cache layer with room for the tokens to come, so that a step writes one token and copies none.

    Args:
        keys: (B, heads, room, D), as are values.
        used: tokens that are in it.
    """

    def __init__(self, keys: Any, values: Any, used: int):
        super().__init__()
        self.keys, self.values, self.used = keys, values, used
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def update(self, key_states: Any, value_states: Any, *_args: Any, **_kwargs: Any) -> tuple[Any, Any]:
        """Write new states behind those that are there; keys and values (B, heads, used, D) of both."""
        end = self.used + key_states.shape[-2]
        self.keys[:, :, self.used : end] = key_states
        self.values[:, :, self.used : end] = value_states
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        """Tokens that are in it."""
        return self.used

    def keep(self, rows: Any, trim: int) -> None:
        """Keep only these rows, without their first `trim` tokens."""
        self.keys, self.values = self.keys[rows, :, trim:], self.values[rows, :, trim:]
        self.used -= trim


class _Pass(NamedTuple):
    """Prompts that were read together, without the padding behind them.

    Attributes:
        rows: of each prompt, the rows that have it.
        lengths: of each prompt, tokens.
        layers: keys and values (B, heads, T, D) of each layer.
        last: hidden states (B, H) of the prompts' last tokens.
    """

    rows: list[list[int]]
    lengths: list[int]
    layers: list[tuple[Any, Any]]
    last: Any


class _Prompts:
    """Prompts of a batch, in groups that share a prefix.

    Args:
        prompts: ids (T,) of B rows, none empty.

    Attributes:
        groups: the rows of each group, and the length of the prefix that they share; 0 where it is not worth
            a pass of its own. Rows of equal prompts are always in one group.
    """

    def __init__(self, prompts: Sequence[Ids]):
        copies: dict[bytes, list[int]] = {}
        for row, prompt in enumerate(prompts):
            copies.setdefault(prompt.tobytes(), []).append(row)
        self._copies = list(copies.values())
        self._distinct = [prompts[rows[0]] for rows in self._copies]
        self._groups = group_by_prefix(self._distinct)
        self.groups = [
            (group.prefix, [row for i in group.rows for row in self._copies[i]]) for group in self._groups
        ]

    def read(self, backbone: Any, device: Any) -> Iterator[_Pass]:
        """Read every prompt once, and the prefix of a group once for all; no pass needs a mask.

        Prompts are padded at the right, where a causal model does not look.
        """
        firsts = [self._distinct[group.rows[0]][: group.prefix or None] for group in self._groups]
        for batch in micro_batches(list(map(len, firsts)), PREFILL, PREFILL_ALIKE):
            read = _read([firsts[i] for i in batch], empty_cache(), backbone, device)
            alone = [place for place, i in enumerate(batch) if not self._groups[i].prefix]
            if alone:
                yield self._pass([self._groups[batch[place]].rows[0] for place in alone], 0, read, alone)
            for place, i in enumerate(batch):
                yield from self._read_group(self._groups[i], read[0], place, backbone, device)

    def _read_group(
        self, group: PrefixGroup, read: Any, place: int, backbone: Any, device: Any
    ) -> Iterator[_Pass]:
        """Read what follows the prefix, which is in row `place` of a cache."""
        if not group.prefix:
            return
        rests = [self._distinct[i][group.prefix :] for i in group.rows]
        room = max(max(map(len, rests)), PREFILL - group.prefix)
        for batch in micro_batches(list(map(len, rests)), room, PREFILL_ALIKE):
            cache = empty_cache()
            for number, layer in enumerate(read.layers):
                states = (one[place, None, :, : group.prefix] for one in (layer.keys, layer.values))
                cache.update(*(one.expand(len(batch), -1, -1, -1) for one in states), number)
            behind = _read([rests[i] for i in batch], cache, backbone, device)
            yield self._pass([group.rows[i] for i in batch], group.prefix, behind, range(len(batch)))

    def _pass(self, distinct: list[int], prefix: int, read: Any, places: Sequence[int]) -> _Pass:
        cache, hidden = read
        lengths = [len(self._distinct[i]) for i in distinct]
        chosen = torch.tensor(places, device=hidden.device)
        ends = torch.tensor(lengths, device=hidden.device) - prefix - 1
        layers = [(layer.keys, layer.values) for layer in cache.layers]
        if len(places) < len(hidden):
            layers = [(keys[chosen], values[chosen]) for keys, values in layers]
        return _Pass([self._copies[i] for i in distinct], lengths, layers, hidden[chosen, ends])


def _read(prompts: Sequence[Ids], cache: Any, backbone: Any, device: Any) -> tuple[Any, Any]:
    """The cache with the prompts behind what is in it, and their hidden states (B, T, H)."""
    ids = torch.from_numpy(pad_right(prompts)).to(device)
    return cache, backbone(input_ids=ids, **cache_inputs(backbone, cache)).last_hidden_state


def prefill(backbone: Any, prompts: Sequence[Ids], room: int, device: Any) -> tuple[Any, Any]:
    """A cache of all prompts, padded at the left to the longest, and the last hidden state (B, H) of each.

    Args:
        backbone: gives hidden states and fills a cache; see `memenvs.models.loading.CausalLM`.
        prompts: of B rows; equal ones are read once, and so are prefixes that many share.
        room: tokens to come behind the prompts.
        device: where the backbone takes its ids.
    """
    width = max(map(len, prompts))
    layers: list[PreallocatedLayer] = []
    last: Any = None
    for read in _Prompts(prompts).read(backbone, device):
        if last is None:
            last = read.last.new_empty(len(prompts), read.last.shape[-1])
            layers = [_empty(keys, values, len(prompts), width, room) for keys, values in read.layers]
        for place, (rows, length) in enumerate(zip(read.rows, read.lengths, strict=True)):
            target, there = torch.tensor(rows, device=device), slice(width - length, width)
            last[target] = read.last[place]
            for layer, (keys, values) in zip(layers, read.layers, strict=True):
                layer.keys[target, :, there] = keys[place, :, :length]
                layer.values[target, :, there] = values[place, :, :length]
    cache = empty_cache()
    cache.layers = layers
    return cache, last


def _empty(keys: Any, values: Any, rows: int, width: int, room: int) -> PreallocatedLayer:
    """A layer for keys and values of this shape; zeros, because masked values must be finite."""
    room_for = (rows, keys.shape[1], width + room)
    return PreallocatedLayer(
        keys.new_zeros(*room_for, keys.shape[3]), values.new_zeros(*room_for, values.shape[3]), width
    )


class _Replies:
    """Replies to B prompts while they are sampled; `open` (B,) is True where one is not over."""

    def __init__(self, rows: int, room: int):
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

    def finish(self, text: TokenText) -> list[Reply]:
        replies = []
        for row, (length, finished) in enumerate(zip(self._lengths, self._finished, strict=True)):
            ids, logprobs = self.ids[row, :length].copy(), self._logprobs[row, :length].copy()
            replies.append(Reply(text.reply_text(ids), ids, logprobs, bool(finished)))
        return replies


class _ActiveRows:
    """The rows of a batch that the model still reads, with their cache; those that ended are removed."""

    def __init__(self, sampler: TokenSampler, prompts: Sequence[Ids], room: int):
        self.rows = np.arange(len(prompts))
        self._backbone, self._window = sampler.model.backbone, sampler.window
        self._takes_positions = "position_ids" in inspect.signature(self._backbone.forward).parameters
        self._cache, self.hidden = prefill(self._backbone, prompts, room, sampler.device)
        self._behind = cache_inputs(self._backbone, self._cache)
        lengths = np.array([len(prompt) for prompt in prompts])
        self._padding = lengths.max() - lengths
        self._used = int(lengths.max())
        self._positions = torch.from_numpy(lengths).to(self.hidden.device)
        slots = np.arange(self._used + room)
        self._mask = torch.from_numpy(slots >= self._padding[:, None]).to(self.hidden.device)

    def read(self, tokens: Any, active: NDArray[np.bool_]) -> None:
        """Read the tokens (B,) just sampled; `active` (B,) says which rows go on."""
        if active.mean() <= SHRINK:
            tokens = self._shrink(tokens, active)
        self._used += 1
        positions = self._positions[:, None]
        if self._window is not None:  # rows that have ended go on past the last position
            positions = positions.clamp(max=self._window - 1)
        self.hidden = self._backbone(
            input_ids=tokens[:, None],
            attention_mask=self._mask[:, : self._used] if self._padding.any() else None,
            **self._behind,
            **({"position_ids": positions} if self._takes_positions else {}),
        ).last_hidden_state[:, -1]
        self._positions += 1

    def _shrink(self, tokens: Any, active: NDArray[np.bool_]) -> Any:
        self.rows, self._padding = self.rows[active], self._padding[active]
        trim = int(self._padding.min())
        self._padding, self._used = self._padding - trim, self._used - trim
        kept = torch.from_numpy(np.flatnonzero(active)).to(tokens.device)
        self._positions, self._mask = self._positions[kept], self._mask[kept, trim:]
        for layer in self._cache.layers:
            layer.keep(kept, trim)
        return tokens[kept]


class _GroupedRows:
    """As `_ActiveRows`, for models that `_Decoder` reads: a prefix is kept once for the rows that share it.

    A row's tokens behind its group's prefix are its own; these are padded at the left to the longest.
    """

    def __init__(self, sampler: TokenSampler, decoder: _Decoder, prompts: Sequence[Ids]):
        self._decoder, self._window = decoder, sampler.window
        plan = _Prompts(prompts)
        lengths = np.array([len(prompt) for prompt in prompts])
        groups = plan.groups
        if any(len(rows) > 1 for _, rows in groups):  # rows of one prompt, or without another, share it whole
            groups = [(prefix or int(lengths[rows[0]]), rows) for prefix, rows in groups]
        else:
            groups = [(0, list(range(len(prompts))))]
        self.rows = np.array([row for _, rows in groups for row in rows])
        self._shared = np.repeat([prefix for prefix, _ in groups], [len(rows) for _, rows in groups])
        self._group = np.repeat(np.arange(len(groups)), [len(rows) for _, rows in groups])
        lengths = lengths[self.rows]
        width = int((lengths - self._shared).max())
        self._padding, self._used = width - (lengths - self._shared), width
        self._slots = (width // SLOTS + 1) * SLOTS
        self._positions = torch.from_numpy(lengths)
        self._layers: list[_GroupedLayer] = []
        self._fill(plan.read(sampler.model.backbone, sampler.device))
        self._regroup()

    def _fill(self, passes: Iterator[_Pass]) -> None:
        place_of = np.argsort(self.rows)
        for read in passes:
            if not self._layers:
                self.hidden = read.last.new_empty(len(self.rows), read.last.shape[-1])
                self._layers = [
                    _GroupedLayer(keys, values, len(self.rows), self._slots) for keys, values in read.layers
                ]
            for place, (rows, length) in enumerate(zip(read.rows, read.lengths, strict=True)):
                targets = place_of[rows]
                shared, group = int(self._shared[targets[0]]), int(self._group[targets[0]])
                self.hidden[torch.from_numpy(targets)] = read.last[place]
                for layer, (keys, values) in zip(self._layers, read.layers, strict=True):
                    states = keys[place, :, :length], values[place, :, :length]
                    layer.fill(targets, group, shared, *states, self._used)

    def _regroup(self) -> None:
        """Find the groups' rows, and what of their own part is padding, anew."""
        present, counts = np.unique(self._group, return_counts=True)
        ends = counts.cumsum().tolist()
        first = dict(zip(self._group.tolist(), self._shared.tolist(), strict=True))
        self._groups = [
            _SharedRows(int(group), slice(end - int(count), end), first[int(group)])
            for group, count, end in zip(present, counts, ends, strict=True)
            if first[int(group)]
        ]
        self._prefix = max((one.length for one in self._groups), default=0)
        bias = np.full((len(self.rows), self._prefix + self._slots), -np.inf, dtype=np.float32)
        slots = np.arange(bias.shape[1])
        bias[(slots >= self._prefix - self._shared[:, None]) & (slots < self._prefix)] = 0
        own = self._prefix + self._padding[:, None]
        bias[(slots >= own) & (slots < self._prefix + self._used)] = 0
        self._bias = torch.from_numpy(bias)[:, None, None]

    def read(self, tokens: Any, active: NDArray[np.bool_]) -> None:
        """Read the tokens (B,) just sampled; `active` (B,) says which rows go on."""
        if active.mean() <= SHRINK:
            tokens = self._shrink(tokens, active)
        if self._used == self._slots:
            self._slots += SLOTS
            self._bias = torch.nn.functional.pad(self._bias, (0, SLOTS), value=-np.inf)
            for layer in self._layers:
                layer.grow()
        positions = self._positions
        if self._window is not None:  # rows that have ended go on past the last position
            positions = positions.clamp(max=self._window - 1)
        self._bias[..., self._prefix + self._used] = 0
        attend = _Attention(self._groups, self._prefix, self._used, self._bias)
        self.hidden = self._decoder(tokens, positions, self._layers, attend)
        self._positions += 1
        self._used += 1

    def _shrink(self, tokens: Any, active: NDArray[np.bool_]) -> Any:
        self.rows, self._padding = self.rows[active], self._padding[active]
        self._shared, self._group = self._shared[active], self._group[active]
        trim = int(self._padding.min()) // SLOTS * SLOTS
        self._padding, self._used, self._slots = self._padding - trim, self._used - trim, self._slots - trim
        kept = torch.from_numpy(np.flatnonzero(active))
        self._positions = self._positions[kept]
        for layer in self._layers:
            layer.keep(kept, trim)
        self._regroup()
        return tokens[kept]


class _SharedRows(NamedTuple):
    """Neighbouring rows that share a prefix of `length` tokens, kept under the number of their group."""

    group: int
    rows: slice
    length: int


class _GroupedLayer:
    """Keys and values of one layer: each row's own, and those of prefixes that many rows share.

    Keys are (B, heads, D, slots), values (B, heads, slots, D). Of keys a product reads in order the slots in
    bfloat16, and D in float32: that is how oneDNN and MKL multiply fast. Slots without a token are zeros,
    because masked values must be finite.
    """

    def __init__(self, keys: Any, values: Any, rows: int, slots: int):
        heads, width = keys.shape[1], keys.shape[3]
        self._by_slot = keys.dtype == torch.bfloat16
        if self._by_slot:
            self.keys = keys.new_zeros(rows, heads, width, slots)
        else:
            self.keys = keys.new_zeros(rows, heads, slots, width).mT
        self.values = values.new_zeros(rows, heads, slots, values.shape[3])
        self.shared: dict[int, tuple[Any, Any]] = {}

    def fill(self, rows: Ids, group: int, shared: int, keys: Any, values: Any, width: int) -> None:
        """Write a prompt's keys and values (heads, T, D): the first `shared` to its group."""
        if shared and group not in self.shared:
            self.shared[group] = (keys[:, :shared].mT.contiguous(), values[:, :shared].contiguous())
        there = slice(width - (keys.shape[1] - shared), width)
        if there.start < there.stop:
            self.keys[rows, :, :, there] = keys[:, shared:].mT
            self.values[rows, :, there] = values[:, shared:]

    def grow(self) -> None:
        """Add slots."""
        pad = torch.nn.functional.pad
        self.keys = pad(self.keys, (0, SLOTS)) if self._by_slot else pad(self.keys.mT, (0, 0, 0, SLOTS)).mT
        self.values = pad(self.values, (0, 0, 0, SLOTS))

    def keep(self, rows: Any, trim: int) -> None:
        """Keep only these rows, without their first `trim` slots."""
        if self._by_slot:
            self.keys = self.keys[rows, :, :, trim:]
        else:
            self.keys = self.keys.mT[rows, :, trim:].mT
        self.values = self.values[rows, :, trim:]


class _Attention(NamedTuple):
    """Attention of one token of each row, with as many products as prefixes are shared.

    Attributes:
        groups: rows that share a prefix.
        prefix: the longest prefix.
        slot: of the tokens, among the rows' own.
        bias: (B, 1, 1, prefix + slots) float32, -inf where there is no token.
    """

    groups: list[_SharedRows]
    prefix: int
    slot: int
    bias: Any

    def __call__(self, query: Any, key: Any, value: Any, layer: _GroupedLayer, scaling: float) -> Any:
        """Queries (B, H, D), keys and values (B, heads, D) of new tokens; gives (B, H * D)."""
        rows, heads, width = key.shape
        layer.keys[..., self.slot], layer.values[:, :, self.slot] = key, value
        query = query.reshape(rows, heads, -1, width)
        own = torch.matmul(query, layer.keys)
        if self.groups:
            scores = own.new_zeros(*own.shape[:3], self.bias.shape[-1], dtype=torch.float32)
            scores[..., self.prefix :] = own
            for group, some, length in self.groups:
                asked = query[some].transpose(0, 1).reshape(heads, -1, width)
                found = torch.matmul(asked, layer.shared[group][0])
                scores[some, ..., self.prefix - length : self.prefix] = _by_row(found, heads, query[some])
        else:
            scores = own.float()
        scores = torch.add(self.bias, scores, alpha=scaling)
        weights = scores.softmax(-1).to(query.dtype)
        mixed = torch.matmul(weights[..., self.prefix :], layer.values)
        for group, some, length in self.groups:
            asked = weights[some, ..., self.prefix - length : self.prefix]
            found = torch.matmul(asked.transpose(0, 1).reshape(heads, -1, length), layer.shared[group][1])
            mixed[some] += _by_row(found, heads, asked)
        return mixed.reshape(rows, -1)


def _by_row(found: Any, heads: int, like: Any) -> Any:
    """Results (heads, B * g, N) of rows that were asked together, as (B, heads, g, N)."""
    return found.view(heads, like.shape[0], like.shape[2], -1).transpose(0, 1)


class _Decoder:
    """Reads one token of each row by a model's own layers, without the parts that serve longer inputs.

    Args:
        backbone: a model for which `serves` is true.
    """

    BACKBONES = ("LlamaModel", "MistralModel", "Qwen2Model", "Qwen3Model")

    def __init__(self, backbone: Any):
        self._backbone = backbone

    @classmethod
    def serves(cls, backbone: Any) -> bool:
        """Whether the layers are of a known form, all on a CPU, and look at all tokens before."""
        config, kind = backbone.config, type(backbone)
        kinds = set(getattr(config, "layer_types", None) or ())
        sliding = kinds - {"full_attention"} if kinds else getattr(config, "sliding_window", None)
        return bool(
            kind.__name__ in cls.BACKBONES
            and kind.__module__.startswith("transformers.models.")
            and not sliding
            and config._attn_implementation in ("sdpa", "eager")
            and all(weight.device.type == "cpu" for weight in backbone.parameters())
        )

    def __call__(
        self, tokens: Any, positions: Any, layers: Sequence[_GroupedLayer], attend: _Attention
    ) -> Any:
        """Hidden states (B, H) of tokens (B,) at their positions (B,); the layers' caches grow by them."""
        states = self._backbone.embed_tokens(tokens)
        cos, sin = self._backbone.rotary_emb(states[:, None], position_ids=positions[:, None])
        half = sin.shape[-1] // 2
        sin = torch.cat((-sin[..., :half], sin[..., half:]), dim=-1)
        for block, cached in zip(self._backbone.layers, layers, strict=True):
            attention, normed = block.self_attn, block.input_layernorm(states)
            query = attention.q_proj(normed).view(len(tokens), -1, attention.head_dim)
            key = attention.k_proj(normed).view(len(tokens), -1, attention.head_dim)
            value = attention.v_proj(normed).view(key.shape)
            if hasattr(attention, "q_norm"):
                query, key = attention.q_norm(query), attention.k_norm(key)
            both = torch.cat((query, key), dim=1)
            both = both * cos + both.roll(half, -1) * sin
            query, key = both.split((query.shape[1], key.shape[1]), dim=1)
            mixed = attend(query, key, value, cached, attention.scaling)
            states = states + attention.o_proj(mixed)
            states = states + block.mlp(block.post_attention_layernorm(states))
        return self._backbone.norm(states)
