"""A causal model that reads whole sequences: hidden states at given tokens, in batches by a budget."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import numpy as np
import torch
import torch.utils.checkpoint
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from memenvs.core.batching import ALIKE, micro_batches, pad_right, padded_tokens
from memenvs.core.episode import Ids
from memenvs.models.loading import CausalLM, depends_on_length
from memenvs.models.prefixes import PackedBatch, can_read_packed, pack_batches, packed_tokens, read_packed

T = TypeVar("T")
Masks = Sequence[NDArray[np.bool_]]
LOGITS = 2**26  # numbers in a slice of logits: 256 MB in float32
CACHED_LOGITS = 2**23  # the same without gradients, where smaller slices are as fast


class SequenceReader:
    """Reads whole sequences with a causal model, with gradients where torch keeps them.

    A forward pass over several sequences reads a prefix that they share once, without padding; a model that
    `can_read_packed` refuses, or one with gradient checkpointing, reads them as rows padded at the right.

    Raises:
        ValueError: it is not a causal language model.
    """

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self._parts = CausalLM(model)
        self._packs = can_read_packed(self._parts.backbone)

    @property
    def device(self) -> torch.device:
        """Where the model takes its ids."""
        return cast(nn.Embedding, self.model.get_input_embeddings()).weight.device

    @property
    def packs(self) -> bool:
        """Whether a shared prefix is read once; not with gradient checkpointing."""
        checkpoints = any(getattr(part, "gradient_checkpointing", False) for part in self.model.modules())
        return self._packs and not checkpoints

    def micro_batches(self, sequences: Sequence[Ids], budget: int) -> list[list[int]]:
        """Numbers of sequences in batches for a pass, each of at most `budget` tokens that it computes.

        Sequences that share a prefix come together; otherwise those of similar length. One longer than the
        budget is a batch of its own.
        """
        if self.packs:
            return pack_batches(sequences, budget)
        alike = 1.0 if depends_on_length(self.model.config.get_text_config()) else ALIKE
        return micro_batches([len(ids) for ids in sequences], budget, alike)

    def computed(self, sequences: Sequence[Ids], batches: Sequence[Sequence[int]]) -> int:
        """Positions that passes over batches compute: padding counts, a shared prefix counts once."""
        if self.packs:
            return sum(packed_tokens([sequences[i] for i in batch]) for batch in batches)
        return padded_tokens([len(ids) for ids in sequences], batches)

    def states(self, sequences: Sequence[Ids], response_masks: Masks) -> Tensor:
        """Hidden states (N, H) that the N response tokens are predicted from, of all sequences in order.

        Ids and masks are (T,) each, within the model's window; a mask is never True at the first token.
        """
        return self._states_before(sequences, response_masks)[0]

    def token_logprobs(self, sequences: Sequence[Ids], response_masks: Masks) -> Tensor:
        """Log-probabilities (N,) of the response tokens, nats, at temperature 1; arguments as of `states`."""

        def compute(hidden: Tensor, tokens: Tensor) -> Tensor:
            logits = self._parts.logits(hidden).float()
            return logits.gather(1, tokens[:, None].to(logits.device))[:, 0] - logits.logsumexp(1)

        columns = self._states_before(sequences, response_masks)
        return torch.cat(by_slices(compute, columns, self._vocabulary))

    def _states_before(self, sequences: Sequence[Ids], masks: Masks) -> tuple[Tensor, Tensor]:
        """Hidden states (N, H) at the positions before response tokens, and those tokens (N,)."""
        if self.packs and any(mask.any() for mask in masks):
            ends = [int(np.flatnonzero(mask)[-1]) if mask.any() else 0 for mask in masks]
            read = [ids[:end] for ids, end in zip(sequences, ends, strict=True)]
            batch = PackedBatch(read, self.device)
            before = np.concatenate(
                [row[np.flatnonzero(mask) - 1] for row, mask in zip(batch.places, masks, strict=True)]
            )
            tokens = np.concatenate([ids[mask] for ids, mask in zip(sequences, masks, strict=True)])
            states = read_packed(self._parts.backbone, batch)
            chosen = torch.from_numpy(before).to(states.device)
            return states.index_select(0, chosen), torch.from_numpy(tokens).to(self.device)
        nonzero = np.nonzero(pad_right(masks, np.bool_))
        rows, places = (torch.from_numpy(indices).to(self.device) for indices in nonzero)
        inputs = torch.from_numpy(pad_right(sequences)).to(self.device)
        states = self._parts.backbone(input_ids=inputs, use_cache=False).last_hidden_state
        return states[rows, places - 1], inputs[rows, places]

    @property
    def _vocabulary(self) -> int:
        """The width of the logits, which in some models exceeds the tokenizer's tokens by a few."""
        size: int = self.model.get_output_embeddings().weight.shape[0]
        return size


def by_slices(compute: Callable[..., T], columns: Sequence[Tensor], width: int) -> list[T]:
    """Apply a function to slices of columns (N, …) that give a bounded number of logits each.

    Where there are several and torch keeps gradients, a slice is computed again in the backward pass, since
    kept logits would take most of the memory. `width` is the number of logits that a row takes.
    """
    rows = max(1, (LOGITS if torch.is_grad_enabled() else CACHED_LOGITS) // width)
    parts = list(zip(*(column.split(rows) for column in columns), strict=True))
    if len(parts) > 1 and torch.is_grad_enabled():
        compute = functools.partial(torch.utils.checkpoint.checkpoint, compute, use_reentrant=False)
    return [compute(*part) for part in parts]
