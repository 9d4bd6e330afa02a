"""Sampling from a causal model with a KV cache."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import sdpa_mask

from memenvs.core.batching import micro_batches, pad_right
from memenvs.core.episode import Ids, Reply
from memenvs.models.chat import BROKEN, TokenText
from memenvs.models.loading import CausalLM, cache_inputs
from memenvs.models.prefixes import PackedBatch, attention, can_read_packed, pack_batches, read_packed
from memenvs.models.settings import SamplingParams

SHRINK = 0.75  # branches that have ended are removed once at most this share of a batch continues
PREFILL = 16_384  # tokens of prompts in a forward pass; a longer prompt is read alone
BLOCK = 256  # tokens whose weights are summed before one block of them is searched
ATTENTION = "memenvs_decode"  # name of `attend_once` among the attention implementations of transformers


class TokenSampler:
    """Samples replies, each from its own uniform numbers, so that none depends on the others in its batch.

    Only the last bits of float sums depend on the batch: where a uniform number is within 1e-6 of the border
    between two tokens, a reply may differ. The model has `window` positions (None: any number), a batch
    `max_batch_tokens` tokens of prompts and replies, which bounds the memory of its cache, and the ids of
    `absent` (V,) are never sampled, since no token has them.
    """

    def __init__(
        self,
        model: CausalLM,
        device: torch.device,
        params: SamplingParams,
        stopping: StoppingCriteria,
        window: int | None,
        max_batch_tokens: int,
        absent: Tensor,
    ):
        self.model, self.device, self.window = model, device, window
        self.attends_once = device.type == "cpu" and can_read_packed(model.backbone)
        self.params, self.absent = params, absent
        self._stopping, self._max_batch_tokens = stopping, max_batch_tokens

    def __call__(self, prompts: Sequence[Ids], uniforms: Sequence[NDArray[np.float64]]) -> list[Reply]:
        """Replies to prompts, each of at most as many tokens as it has uniform numbers.

        Raises:
            FloatingPointError: the model's logits are NaN or infinite.
        """
        replies = [Reply("", np.zeros(0, dtype=np.int64), np.zeros(0), False)] * len(prompts)
        rows = [i for i, numbers in enumerate(uniforms) if len(numbers)]
        rows.sort(key=lambda i: prompts[i].tobytes())  # equal prompts come into one batch, and are read once
        lengths, room = [len(prompts[i]) for i in rows], max(map(len, uniforms), default=0)
        with attention(self.model.backbone, ATTENTION) if self.attends_once else nullcontext():
            for batch in micro_batches(lengths, self._max_batch_tokens, alike=0, extra=room):
                chosen = [rows[i] for i in batch]
                sampled = self._sample([prompts[i] for i in chosen], [uniforms[i] for i in chosen])
                for i, reply in zip(chosen, sampled, strict=True):
                    replies[i] = reply
        return replies

    def _sample(self, prompts: Sequence[Ids], uniforms: Sequence[NDArray[np.float64]]) -> list[Reply]:
        numbers = pad_right(uniforms, np.float64)
        ids, logprobs = np.zeros(numbers.shape, dtype=np.int64), np.zeros(numbers.shape)
        lengths = np.array([len(limit) for limit in uniforms])
        finished = np.zeros(len(prompts), dtype=bool)
        branches = _Branches(self, prompts, numbers.shape[1])
        for step in range(numbers.shape[1]):
            rows = branches.rows
            tokens, nats = branches.sample(numbers[rows, step])
            ids[rows, step], logprobs[rows, step] = tokens, nats
            if not np.isfinite(nats).all():
                raise FloatingPointError(
                    f"the model's logits are not numbers at token {step} of a reply (NaN or infinite): "
                    "its weights have diverged, or its dtype is too narrow; load an earlier checkpoint"
                )
            ended = rows[self._stopping.ended(ids, rows, step) & (lengths[rows] > step)]
            lengths[ended], finished[ended] = step + 1, True
            if lengths.max() == step + 1:
                break
            branches.read(tokens, lengths[rows] > step + 1)
        written = [(ids[i, :n].copy(), logprobs[i, :n].copy()) for i, n in enumerate(lengths)]
        return [
            Reply(self._stopping.text.reply_text(tokens), tokens, nats, bool(done))
            for (tokens, nats), done in zip(written, finished, strict=True)
        ]


class StoppingCriteria:
    """Decides which replies have ended: by an end token, or by the token that completes a stop string.

    Where a token is always the same bytes, only rows whose newest token could complete a stop string are
    decoded. Their last tokens are, and the whole reply where these have a stop string or broken characters.
    No string of `stop` is empty; `vocabulary` is the number of tokens that can be sampled.
    """

    def __init__(self, text: TokenText, stop: Sequence[str], vocabulary: int):
        self.text, self._stop = text, stop
        self._ends = np.zeros(vocabulary, dtype=bool)
        self._ends[[end for end in text.ends if 0 <= end < vocabulary]] = True
        # A token has at least one byte, except for a few that decode to nothing, or only within a word.
        self._tail = max((len(string.encode()) for string in stop), default=0) + 8
        self._completing = self._completing_tokens(vocabulary)

    def ended(self, ids: Ids, rows: Ids, step: int) -> NDArray[np.bool_]:
        """Which of `rows` (R,) of the replies `ids` (B, T) have ended with their token number `step`."""
        newest = ids[rows, step]
        over = self._ends[newest]
        if self._stop:
            for place in np.flatnonzero(self._completing[newest] & ~over):
                reply = ids[rows[place], : step + 1]
                tail = self.text.decode(reply[-self._tail :])
                # A tail that begins inside a character can break all characters that are spelled in bytes.
                if BROKEN in tail or any(string in tail for string in self._stop):
                    whole = self.text.decode(reply)
                    over[place] = any(string in whole for string in self._stop)
        return over

    def _completing_tokens(self, vocabulary: int) -> NDArray[np.bool_]:
        """(V,) which tokens could complete a stop string."""
        if not self._stop:
            return np.zeros(vocabulary, dtype=bool)
        if not self.text.byte_level:
            return np.ones(vocabulary, dtype=bool)
        last = {string[-1] for string in self._stop}
        if not all(letter.isascii() for letter in last):
            last.add(BROKEN)  # the last byte of such a letter may be a token of its own
        texts = self.text.backend.decode_batch([[i] for i in range(vocabulary)], skip_special_tokens=False)
        return np.array([not last.isdisjoint(text) for text in texts])


def sample_tokens(logits: Tensor, uniforms: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
    """Token ids (B, n) and their log-probabilities (B, n) in nats, by inverting the cumulative distribution.

    A token depends on the logits of its row, of (B, V), and on its own number alone, of `uniforms` (B, n),
    float64 in [0, 1). The log-probabilities are those of the whole distribution at the temperature, also
    where `params` truncate it.
    """
    scaled = scale_logits(logits, params.temperature)
    top, likeliest = scaled.max(1, keepdim=True)
    weights = (scaled - top).exp_()  # the one exponential of a step: it dominates with large vocabularies
    if params.temperature == 0:
        ids = likeliest.expand(uniforms.shape)
    else:
        ids = _invert(_truncate(weights, params) if params.truncates else weights, uniforms)
    total = weights.sum(1, keepdim=True, dtype=torch.float64)
    return ids, (scaled.gather(1, ids) - top).double() - total.log()


def scale_logits(logits: Tensor, temperature: float) -> Tensor:
    """Logits (..., V) in float32 divided by the temperature; at temperature 0 as they are."""
    logits = logits.float()
    return logits if temperature in (0, 1) else logits / temperature


def _truncate(weights: Tensor, params: SamplingParams) -> Tensor:
    """Weights (B, V), 0 where a token is not sampled; tokens as likely as the last one kept stay."""
    if params.top_k and params.top_k < weights.shape[1]:
        least = weights.topk(params.top_k, dim=1).values[:, -1:]
        weights = weights.where(weights >= least, 0)
    if params.top_p is not None and params.top_p < 1:
        falling = weights.sort(dim=1, descending=True).values
        sums = falling.cumsum(1, dtype=torch.float64)
        enough = (sums < params.top_p * sums[:, -1:]).sum(1, keepdim=True)
        weights = weights.where(weights >= falling.gather(1, enough), 0)
    return weights.where(weights >= params.min_p, 0) if params.min_p else weights  # the largest weight is 1


def _invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """The tokens (B, n) in whose share of the summed weights (B, V) the uniform numbers (B, n) fall."""
    # Sums of blocks first: a cumulative sum over a whole vocabulary is slow, and one block of it is enough.
    blocks = torch.nn.functional.pad(weights, (0, -weights.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))
    sums = blocks.sum(2, dtype=torch.float64).cumsum(1)
    reached = uniforms * sums[:, -1:]
    block = _search(sums, reached)
    before = sums.gather(1, (block - 1).clamp(min=0)).where(block > 0, 0)
    rows = torch.arange(len(weights), device=weights.device)[:, None]
    inside = blocks[rows, block].cumsum(2, dtype=torch.float64)
    ids = block * BLOCK + _search(inside, (reached - before)[..., None])[..., 0]
    return ids.clamp_(max=weights.shape[1] - 1)  # beyond it only where a weight is NaN


def _search(sums: Tensor, reached: Tensor) -> Tensor:
    """The first places at which rising sums (..., V) exceed the numbers (..., n)."""
    whole = sums[..., -1:]
    # Below the whole even where rounding reaches it, so that no token without weight is found.
    below = torch.minimum(reached, torch.nextafter(whole, torch.zeros_like(whole)))
    return torch.searchsorted(sums, below, right=True).clamp_(max=sums.shape[-1] - 1)


class PreallocatedLayer(DynamicLayer):
    """A cache layer with room for the tokens to come, so that a step writes one token and copies none.

    `keys` and `values` are (heads, N, D); the layer has their heads, D and device, `rows` rows in use of
    `capacity` (a CPU commits the memory of a row when it is first used), `used` tokens of each that count as
    written, and room for `room` more.
    """

    keys: Tensor
    values: Tensor

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        dtype: torch.dtype,
        rows: int,
        capacity: int,
        used: int,
        room: int,
    ):
        super().__init__()
        # Zeros, because masked values must be finite.
        self.keys, self.values = (
            states.new_zeros(capacity, len(states), used + room, states.shape[-1], dtype=dtype)
            for states in (keys, values)
        )
        self.rows, self.used = rows, used
        self.dtype, self.device, self.is_initialized = dtype, keys.device, True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append new states; keys and values (B, heads, used, D) of all tokens."""
        end = self.used + key_states.shape[-2]
        self.keys[: self.rows, :, self.used : end] = key_states
        self.values[: self.rows, :, self.used : end] = value_states
        self.used = end
        return self.keys[: self.rows, :, :end], self.values[: self.rows, :, :end]

    def get_seq_length(self) -> int:
        """Tokens that are in it."""
        return self.used

    def copy(self, source: Tensor, target: Tensor, rows: int) -> None:
        """Write rows `source` to rows `target`; `rows` are in use afterwards."""
        for states in (self.keys, self.values):
            states[target, :, : self.used] = states[source, :, : self.used]
        self.rows = rows

    def keep(self, rows: Tensor, capacity: int, trim: int) -> None:
        """Keep only these rows, without their first `trim` tokens."""
        for name in ("keys", "values"):
            states = getattr(self, name)
            _, heads, width, size = states.shape
            smaller = states.new_zeros(capacity, heads, width - trim, size)
            smaller[: len(rows), :, : self.used - trim] = states[rows, :, trim : self.used]
            setattr(self, name, smaller)
        self.rows = len(rows)
        self.used -= trim


def prefill(
    backbone: PreTrainedModel,
    prompts: Sequence[Ids],
    room: int,
    device: torch.device,
    capacity: int | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[DynamicCache, Tensor]:
    """A cache of B prompts, padded at the left to the longest, and the last hidden state (B, H) of each.

    A prefix that several share is read once where the model can read packed sequences; other models read one
    prompt at a time. The cache has memory for `capacity` rows (None: B) and `room` tokens after the prompts,
    in `dtype` (None: that of the model's keys).
    """
    packs = can_read_packed(backbone)
    width, last, allocated = max(map(len, prompts)), torch.empty(0), list[PreallocatedLayer]()
    for batch in pack_batches(prompts, PREFILL) if packs else [[i] for i in range(len(prompts))]:
        cache = DynamicCache()  # made without the config, it also keeps what a sliding window masks
        if packs:
            packed = PackedBatch([prompts[i] for i in batch], device)
            hidden, places = read_packed(backbone, packed, cache), packed.places
        else:
            ids = torch.from_numpy(prompts[batch[0]]).to(device)[None]
            hidden = backbone(input_ids=ids, **cache_inputs(backbone, cache)).last_hidden_state[0]
            places = [np.arange(len(hidden))]
        layers = [(layer.keys[0], layer.values[0]) for layer in cast(list[Any], cache.layers)]
        if not allocated:
            last = hidden.new_empty(len(prompts), hidden.shape[-1])
            rows = len(prompts)
            allocated = [
                PreallocatedLayer(keys, values, dtype or keys.dtype, rows, capacity or rows, width, room)
                for keys, values in layers
            ]
        for tokens, i in zip(places, batch, strict=True):
            there = slice(width - len(tokens), width)
            last[i] = hidden[int(tokens[-1])]
            for layer, (keys, values) in zip(allocated, layers, strict=True):
                layer.keys[i, :, there] = keys[:, tokens]
                layer.values[i, :, there] = values[:, tokens]
    decoding = DynamicCache()
    decoding.layers = list(allocated)
    return decoding, last


class _Branches:
    """The distinct beginnings of a batch's replies, with their cache.

    Rows with the same prompt and the same tokens so far are one branch, which the model reads once, until
    they draw different tokens: the rows of a group begin together, and a sure model keeps them together.
    `rows` (R,) are the numbers of the rows whose replies continue.
    """

    def __init__(self, sampler: TokenSampler, prompts: Sequence[Ids], room: int):
        self._model, backbone, self._window = sampler.model.model, sampler.model.backbone, sampler.window
        self._takes_positions = "position_ids" in inspect.signature(backbone.forward).parameters
        self._params, self._absent = sampler.params, sampler.absent
        numbers = dict[bytes, int]()
        self.rows = np.arange(len(prompts))
        self._branch = np.array([numbers.setdefault(prompt.tobytes(), len(numbers)) for prompt in prompts])
        distinct = [prompts[row] for row in np.unique(self._branch, return_index=True)[1]]
        # `attend_once` computes in float32, and would otherwise convert the whole cache at each token.
        dtype = torch.float32 if sampler.attends_once else None
        self._cache, hidden = prefill(backbone, distinct, room, sampler.device, len(prompts), dtype)
        self._logits = sampler.model.logits(hidden)
        self._behind = cache_inputs(self._model, self._cache)
        lengths = np.array([len(prompt) for prompt in distinct])
        self._padding = lengths.max() - lengths  # (B,) of each branch, as all that follows
        self._used = int(lengths.max())
        self._device = hidden.device

    def sample(self, uniforms: NDArray[np.float64]) -> tuple[Ids, NDArray[np.float64]]:
        """The next token (R,) of each row, drawn by its uniform number (R,), and its log-probability (R,)."""
        order = np.argsort(self._branch, kind="stable")
        counts = np.bincount(self._branch, minlength=len(self._padding))
        place = np.empty(len(order), dtype=np.int64)  # of each row among those of its branch
        place[order] = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        numbers = np.zeros((len(counts), counts.max()))
        numbers[self._branch, place] = uniforms
        logits = self._logits.masked_fill(self._absent, -torch.inf)
        tokens, logprobs = sample_tokens(logits, torch.from_numpy(numbers).to(self._device), self._params)
        return tokens.cpu().numpy()[self._branch, place], logprobs.cpu().numpy()[self._branch, place]

    def read(self, tokens: Ids, active: NDArray[np.bool_]) -> None:
        """Read the tokens (R,) just drawn; `active` (R,) says which rows continue."""
        self.rows, drawn = self.rows[active], tokens[active]
        ids = self._part(self._branch[active], drawn)
        if len(np.unique(self._branch)) <= SHRINK * len(ids):
            ids = self._shrink(ids)
        self._used += 1
        positions = torch.from_numpy(self._used - 1 - self._padding).to(self._device)[:, None]
        if self._window is not None:  # branches that have ended run past the last position
            positions = positions.clamp(max=self._window - 1)
        mask = torch.from_numpy(np.arange(self._used) >= self._padding[:, None]).to(self._device)
        self._logits = self._model(
            input_ids=torch.from_numpy(ids).to(self._device)[:, None],
            attention_mask=mask if self._padding.any() else None,
            **self._behind,
            **({"position_ids": positions} if self._takes_positions else {}),
        ).logits[:, -1]

    def _part(self, parents: Ids, drawn: Ids) -> Ids:
        """The newest token (B,) of each branch; rows of one branch that drew different tokens part."""
        pairs, branch = np.unique(np.stack([parents, drawn], 1), axis=0, return_inverse=True)
        parent, token = pairs.T
        parted = np.flatnonzero(parent[1:] == parent[:-1]) + 1  # the first token drawn keeps the place
        count = len(self._padding)
        free = np.setdiff1d(np.arange(count + len(parted)), parent)[: len(parted)]
        places = parent.copy()
        places[parted] = free
        if len(parted):
            rows = max(count, int(free.max()) + 1)
            source, target = (
                torch.from_numpy(numbers).to(self._device) for numbers in (parent[parted], free)
            )
            for layer in self._cache.layers:
                cast(PreallocatedLayer, layer).copy(source, target, rows)
            self._padding = np.concatenate([self._padding, np.zeros(rows - count, dtype=np.int64)])
            self._padding[free] = self._padding[parent[parted]]
        self._branch = places[branch.ravel()]
        ids = np.zeros(len(self._padding), dtype=np.int64)
        ids[places] = token
        return ids

    def _shrink(self, ids: Ids) -> Ids:
        """Remove the branches of which no row continues; the newest tokens of the others."""
        kept, self._branch = np.unique(self._branch, return_inverse=True)
        trim = int(self._padding[kept].min())
        self._padding, self._used = self._padding[kept] - trim, self._used - trim
        rows = torch.from_numpy(kept).to(self._device)
        for layer in self._cache.layers:
            cast(PreallocatedLayer, layer).keep(rows, len(self.rows), trim)
        return ids[kept]


def attend_once(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention (B, 1, heads, D) of one new token of each row to the cache, as transformers calls it.

    On a CPU `scaled_dot_product_attention` takes seven times as long as these two products for one query in
    bfloat16. `query` is (B, heads, 1, D), `key` and `value` (B, key heads, T, D), `attention_mask`
    (B, 1, 1, T) True where a token may look; the others are those of `memenvs.models.prefixes.attend`.
    """
    rows, heads, _, size = query.shape
    # The heads that share keys follow each other, so that keys are not repeated.
    wide = torch.promote_types(value.dtype, torch.float32)
    queries = (
        (query * (size**-0.5 if scaling is None else scaling)).to(wide).reshape(rows * key.shape[1], -1, size)
    )
    scores = torch.bmm(queries, key.flatten(0, 1).to(wide).transpose(1, 2))
    if softcap is not None:
        scores = scores.div(softcap).tanh().mul(softcap)
    if attention_mask is not None:
        scores = scores.view(rows, heads, -1).masked_fill(~attention_mask[:, 0], -torch.inf).view_as(scores)
    attended = torch.bmm(scores.softmax(-1), value.flatten(0, 1).to(wide))
    return attended.view(rows, 1, heads, -1).to(query.dtype), None


AttentionInterface.register(ATTENTION, attend_once)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
