"""Prompts come in, tokens drawn one by one with a KV cache go out."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.baselines.choice import Choice
from memenvs.baselines.kv_cache import read_prompts
from memenvs.baselines.stops import Stops
from memenvs.baselines.token_text import Ids
from memenvs.extras import require
from memenvs.wrappers.scorers.head import Halves

torch = require("torch", "train")

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
