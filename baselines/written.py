"""Sequences and what a policy wrote of them come in; what it says of those tokens now goes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memenvs.baselines.choice import Choice
from memenvs.baselines.losses import entropy_of
from memenvs.baselines.policy import Evaluation
from memenvs.baselines.token_text import Ids
from memenvs.extras import require
from memenvs.wrappers.scorers.head import Halves

torch = require("torch", "train")

Masks = Sequence[NDArray[np.bool_]]


def evaluate(
    halves: Halves,
    value_head: Any,
    choice: Choice,
    sequences: Sequence[Ids],
    written: Masks,
    entropy: bool,
    device: Any,
) -> Evaluation:
    """One forward pass over all sequences, padded at the right; logits only where a token was written.

    Args:
        halves: of the model.
        value_head: from hidden states (N, H) in float32 to values (N, 1); None: no values.
        choice: gives the temperature.
        sequences: (T,) ids each.
        written: (T,) each, never the first token.
        entropy: whether to give that too.
        device: where the model takes its ids.
    """
    if not any(map(len, sequences)):
        return Evaluation(*[torch.zeros(0, device=device)] * 3)
    hidden, tokens = states_before(halves, sequences, written, device)
    logprobs = choice.scaled(halves.logits(hidden)).log_softmax(-1)
    chosen = logprobs.gather(1, tokens[:, None].to(logprobs.device))[:, 0]
    spread = entropy_of(logprobs) if entropy else None
    return Evaluation(chosen, spread, None if value_head is None else value_head(hidden.float())[:, 0])


def states_before(halves: Halves, sequences: Sequence[Ids], written: Masks, device: Any) -> tuple[Any, Any]:
    """Hidden states (N, H) at the places before written tokens, and those tokens (N,).

    A token is predicted, and its state valued, at the place before it. The arguments are those of `evaluate`.
    """
    ids = np.zeros((len(sequences), max(map(len, sequences), default=0)), dtype=np.int64)
    mask = np.zeros(ids.shape, dtype=bool)
    for row, (sequence, own) in enumerate(zip(sequences, written, strict=True)):
        ids[row, : len(sequence)], mask[row, : len(own)] = sequence, own
    rows, places = (torch.from_numpy(found).to(device) for found in np.nonzero(mask))
    inputs = torch.from_numpy(ids).to(device)
    states = halves.base(input_ids=inputs, use_cache=False).last_hidden_state
    return states[rows, places - 1], inputs[rows, places]


def check_written(sequences: Sequence[Ids], written: Masks, window: int | None) -> None:
    """Raise a one-line `ValueError` unless sequences and masks agree, fit, and begin with a prompt."""
    if len(sequences) != len(written):
        raise ValueError(f"{len(sequences)} sequences and {len(written)} masks; give each sequence one")
    for i, (sequence, mask) in enumerate(zip(sequences, written, strict=True)):
        if len(sequence) != len(mask):
            raise ValueError(
                f"sequence {i} has {len(sequence)} tokens and its mask {len(mask)}; both must agree"
            )
        if window is not None and len(sequence) > window:
            raise ValueError(
                f"sequence {i} has {len(sequence):,} tokens and the window is {window:,}; shorten it"
            )
        if len(mask) and mask[0]:
            raise ValueError(
                f"token 0 of sequence {i} is marked as written, but nothing predicts it; put a prompt before"
            )
