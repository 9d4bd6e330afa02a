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
from memenvs.models.policy import SamplingParams
from memenvs.models.prefixes import PackedBatch, attention, can_read_packed, pack_batches, read_packed

SHRINK = 0.75  # rows that have ended are removed once at most this share of a batch continues
PREFILL = 16_384  # tokens of prompts in a forward pass; a longer prompt is read alone
ATTENTION = "memenvs_decode"  # name of `attend_once` among the attention implementations of transformers


class TokenSampler:
    """Samples replies, each from its own uniform numbers, so that none depends on the others in its batch.

    Only the last bits of float sums depend on the batch: where a uniform number is within 1e-6 of the border
    between two tokens, a reply may differ.

    Args:
        model: computes the logits.
        device: where the model takes its ids.
        params: how a token is sampled.
        stopping: what ends a reply.
        window: number of positions that the model has; None: any number.
        max_batch_tokens: tokens of prompts and replies in a batch; bounds the memory of its cache.
    """

    def __init__(
        self,
        model: CausalLM,
        device: torch.device,
        params: SamplingParams,
        stopping: StoppingCriteria,
        window: int | None,
        max_batch_tokens: int,
    ):
        self.model, self.device, self.window = model, device, window
        self._params, self._stopping, self._max_batch_tokens = params, stopping, max_batch_tokens

    def __call__(self, prompts: Sequence[Ids], uniforms: Sequence[NDArray[np.float64]]) -> list[Reply]:
        """Replies to prompts, each of at most as many tokens as it has uniform numbers.

        Raises:
            FloatingPointError: the model's logits are NaN or infinite.
        """
        replies = [Reply("", np.zeros(0, dtype=np.int64), np.zeros(0), False)] * len(prompts)
        rows = [i for i, numbers in enumerate(uniforms) if len(numbers)]
        rows.sort(key=lambda i: prompts[i].tobytes())  # equal prompts come into one batch, and are read once
        lengths, room = [len(prompts[i]) for i in rows], max(map(len, uniforms), default=0)
        on_cpu = self.device.type == "cpu" and can_read_packed(self.model.backbone)
        with attention(self.model.backbone, ATTENTION) if on_cpu else nullcontext():
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
        active = _ActiveRows(self, prompts, numbers.shape[1])
        for step in range(numbers.shape[1]):
            rows = active.rows
            chance = torch.from_numpy(numbers[rows, step]).to(self.device)
            tokens, nats = sample_tokens(active.logits, chance, self._params)
            ids[rows, step], logprobs[rows, step] = tokens.cpu().numpy(), nats.cpu().numpy()
            if not np.isfinite(logprobs[rows, step]).all():
                raise FloatingPointError(
                    f"the model's logits are not numbers at token {step} of a reply (NaN or infinite): "
                    "its weights have diverged, or its dtype is too narrow; load an earlier checkpoint"
                )
            ended = rows[self._stopping.ended(ids, rows, step) & (lengths[rows] > step)]
            lengths[ended], finished[ended] = step + 1, True
            if lengths.max() == step + 1:
                break
            active.read(tokens, lengths[rows] > step + 1)
        written = [(ids[i, :n].copy(), logprobs[i, :n].copy()) for i, n in enumerate(lengths)]
        return [
            Reply(self._stopping.text.reply_text(tokens), tokens, nats, bool(done))
            for (tokens, nats), done in zip(written, finished, strict=True)
        ]


class StoppingCriteria:
    """Decides which replies have ended: by an end token, or by the token that completes a stop string.

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
        # A token has at least one byte, except for a few that decode to nothing, or only within a word.
        self._tail = max((len(string.encode()) for string in stop), default=0) + 8
        self._completing = self._completing_tokens(vocabulary)

    def ended(self, ids: Ids, rows: Ids, step: int) -> NDArray[np.bool_]:
        """Which of `rows` (R,) of the replies `ids` (B, T) have ended with their token number `step`."""
        newest = ids[rows, step]
        over = self._ends[newest]
        if self._stop:
            for place in np.flatnonzero(self._completing[newest] & ~over):
                tail = self.text.decode(ids[rows[place], max(0, step + 1 - self._tail) : step + 1])
                over[place] = any(string in tail for string in self._stop)
        return over

    def _completing_tokens(self, vocabulary: int) -> NDArray[np.bool_]:
        """(V,) which tokens could complete a stop string."""
        if not self._stop:
            return np.zeros(vocabulary, dtype=bool)
        last = {string[-1] for string in self._stop}
        if not all(letter.isascii() for letter in last):
            last.add(BROKEN)  # the last byte of such a letter may be a token of its own
        texts = self.text.backend.decode_batch([[i] for i in range(vocabulary)], skip_special_tokens=False)
        return np.array([not last.isdisjoint(text) for text in texts])


def sample_tokens(logits: Tensor, uniforms: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor]:
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


def scale_logits(logits: Tensor, temperature: float) -> Tensor:
    """Logits (..., V) in float32 divided by the temperature; at temperature 0 as they are."""
    logits = logits.float()
    return logits if temperature in (0, 1) else logits / temperature


def _truncate(weights: Tensor, params: SamplingParams) -> Tensor:
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


def _invert(sums: Tensor, uniforms: Tensor) -> Tensor:
    """The tokens (B, 1) in whose share of the cumulative weights (B, V) the uniform numbers (B,) fall."""
    whole = sums[:, -1:]
    # Below the whole even where the product rounds up, so that no token without weight is found.
    reached = torch.minimum(uniforms[:, None] * whole, torch.nextafter(whole, torch.zeros_like(whole)))
    return torch.searchsorted(sums, reached, right=True).clamp_(max=sums.shape[1] - 1)


class PreallocatedLayer(DynamicLayer):
    """A cache layer with room for the tokens to come, so that a step writes one token and copies none.

    Args:
        keys: (heads, N, D), whose shape, dtype and device the layer has, as it has those of `values`.
        values: as `keys`.
        rows: B.
        used: tokens of each row that count as written.
        room: tokens to come.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, keys: Tensor, values: Tensor, rows: int, used: int, room: int):
        super().__init__()
        # Zeros, because masked values must be finite.
        self.keys, self.values = (
            states.new_zeros(rows, len(states), used + room, states.shape[-1]) for states in (keys, values)
        )
        self.used, self.dtype, self.device, self.is_initialized = used, keys.dtype, keys.device, True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append new states; keys and values (B, heads, used, D) of all tokens."""
        end = self.used + key_states.shape[-2]
        self.keys[:, :, self.used : end] = key_states
        self.values[:, :, self.used : end] = value_states
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        """Tokens that are in it."""
        return self.used

    def keep(self, rows: Tensor, trim: int) -> None:
        """Keep only these rows, without their first `trim` tokens."""
        self.keys, self.values = self.keys[rows, :, trim:], self.values[rows, :, trim:]
        self.used -= trim


def prefill(
    backbone: PreTrainedModel, prompts: Sequence[Ids], room: int, device: torch.device
) -> tuple[DynamicCache, Tensor]:
    """A cache of all prompts, padded at the left to the longest, and the last hidden state (B, H) of each.

    Args:
        backbone: gives hidden states and fills a cache; see `memenvs.models.loading.CausalLM`.
        prompts: B prompts; equal ones are read once, and so is a prefix that several share where the model
            can read packed sequences. Other models read one prompt at a time.
        room: tokens to come after the prompts.
        device: where the backbone takes its ids.
    """
    copies: dict[bytes, list[int]] = {}
    for row, prompt in enumerate(prompts):
        copies.setdefault(prompt.tobytes(), []).append(row)
    rows = list(copies.values())
    distinct = [prompts[same[0]] for same in rows]
    packs = can_read_packed(backbone)
    width, last, allocated = max(map(len, prompts)), torch.empty(0), list[PreallocatedLayer]()
    for batch in pack_batches(distinct, PREFILL) if packs else [[i] for i in range(len(distinct))]:
        cache = DynamicCache()  # made without the config, it also keeps what a sliding window masks
        if packs:
            packed = PackedBatch([distinct[i] for i in batch], device)
            hidden, places = read_packed(backbone, packed, cache), packed.places
        else:
            ids = torch.from_numpy(distinct[batch[0]]).to(device)[None]
            hidden = backbone(input_ids=ids, **cache_inputs(backbone, cache)).last_hidden_state[0]
            places = [np.arange(len(hidden))]
        layers = [(layer.keys[0], layer.values[0]) for layer in cast(list[Any], cache.layers)]
        if not allocated:
            last = hidden.new_empty(len(prompts), hidden.shape[-1])
            allocated = [
                PreallocatedLayer(keys, values, len(prompts), width, room) for keys, values in layers
            ]
        for tokens, i in zip(places, batch, strict=True):
            there = slice(width - len(tokens), width)
            last[rows[i]] = hidden[int(tokens[-1])]
            for layer, (keys, values) in zip(allocated, layers, strict=True):
                layer.keys[rows[i], :, there] = keys[:, tokens]
                layer.values[rows[i], :, there] = values[:, tokens]
    decoding = DynamicCache()
    decoding.layers = list(allocated)
    return decoding, last


class _ActiveRows:
    """The rows of a batch that the model still reads, with their cache; rows that have ended are removed."""

    def __init__(self, sampler: TokenSampler, prompts: Sequence[Ids], room: int):
        self.rows = np.arange(len(prompts))
        self._model, backbone, self._window = sampler.model.model, sampler.model.backbone, sampler.window
        self._takes_positions = "position_ids" in inspect.signature(backbone.forward).parameters
        self._cache, hidden = prefill(backbone, prompts, room, sampler.device)
        self.logits = sampler.model.logits(hidden)
        self._behind = cache_inputs(self._model, self._cache)
        lengths = np.array([len(prompt) for prompt in prompts])
        self._padding = lengths.max() - lengths
        self._used = int(lengths.max())
        self._positions = torch.from_numpy(lengths).to(hidden.device)
        places = np.arange(self._used + room)
        self._mask = torch.from_numpy(places >= self._padding[:, None]).to(hidden.device)

    def read(self, tokens: Tensor, active: NDArray[np.bool_]) -> None:
        """Read the tokens (B,) just sampled; `active` (B,) says which rows continue."""
        if active.mean() <= SHRINK:
            tokens = self._shrink(tokens, active)
        self._used += 1
        positions = self._positions[:, None]
        if self._window is not None:  # rows that have ended run past the last position
            positions = positions.clamp(max=self._window - 1)
        self.logits = self._model(
            input_ids=tokens[:, None],
            attention_mask=self._mask[:, : self._used] if self._padding.any() else None,
            **self._behind,
            **({"position_ids": positions} if self._takes_positions else {}),
        ).logits[:, -1]
        self._positions += 1

    def _shrink(self, tokens: Tensor, active: NDArray[np.bool_]) -> Tensor:
        self.rows, self._padding = self.rows[active], self._padding[active]
        trim = int(self._padding.min())
        self._padding, self._used = self._padding - trim, self._used - trim
        kept = torch.from_numpy(np.flatnonzero(active)).to(tokens.device)
        self._positions, self._mask = self._positions[kept], self._mask[kept, trim:]
        for layer in self._cache.layers:
            cast(PreallocatedLayer, layer).keep(kept, trim)
        return tokens[kept]


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
    """Attention of one new token of each row to those in the cache, in the form that transformers calls.

    On a CPU `scaled_dot_product_attention` takes seven times as long as these two products for one query in
    bfloat16.

    Args:
        module: the layer.
        query: (B, heads, 1, D).
        key: (B, key heads, T, D).
        value: (B, key heads, T, D).
        attention_mask: (B, 1, 1, T) True where a token may look; None: everywhere.
        scaling: of the scores; None: 1 / sqrt(D).
        softcap: c in scores = c tanh(scores / c); None: no cap.
        others: for other implementations.

    Returns:
        (B, 1, heads, D), and None in place of the weights.
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
    return attended.view(rows, 1, heads, -1).to(value.dtype), None


AttentionInterface.register(ATTENTION, attend_once)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
