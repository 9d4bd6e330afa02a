"""Rewards of turns come in, with the tokens at which turns end; rewards and advantages of tokens go out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memenvs.credit.checks import Array, check_choice, one_row

PLACEMENTS = ("turn", "merged", "outcome")


def place_rewards(
    turn_rewards: ArrayLike,
    ends: ArrayLike,
    length: int,
    *,
    placement: str = "turn",
    outcome: float | None = None,
) -> Array:
    """Token rewards (T,) of one rollout, 0 but at the last tokens of turns.

        r_t = R_k at t = ends_k, and + R^O at the last of them    MT-PPO eq. 9: `"turn"`
        r_t = sum_k R_k + R^O at the last of them                 PPO-MR: `"merged"`
        r_t = R^O at the last of them                             PPO-OR: `"outcome"`

    Every placement but the last gives the same return. A NaN (a turn without a reward) counts as 0.

    >>> place_rewards([0.25, 0.5], ends=[1, 3], length=5, outcome=1.0).tolist()
    [0.0, 0.25, 0.0, 1.5, 0.0]

    Args:
        turn_rewards: R (K,).
        ends: for each turn the index of the last token that the policy wrote in it; these rise, and a turn
            in which it wrote nothing repeats the one before.
        length: T, tokens.
        placement: `"turn"`, `"merged"` or `"outcome"`.
        outcome: R^O, where the turn rewards do not hold it yet; `placement="outcome"` needs it.
    """
    check_choice("placement", placement, PLACEMENTS)
    rewards, last = one_row("turn_rewards", turn_rewards), _ends(ends, length)
    _check_turns(rewards, last)
    if placement == "outcome" and outcome is None:
        raise ValueError('placement="outcome" rewards the outcome alone, got outcome=None')
    final = one_row("outcome", [0.0 if outcome is None else outcome])
    tokens = np.zeros(length)
    if placement == "turn":
        np.add.at(tokens, last, np.nan_to_num(rewards, nan=0.0))
    elif placement == "merged":
        tokens[last[-1:]] = np.nansum(rewards)
    tokens[last[-1:]] += np.nan_to_num(final, nan=0.0)
    return tokens


def spread_turns(values: ArrayLike, ends: ArrayLike, length: int) -> Array:
    """Token values (T,) of one rollout: each token has its turn's, those behind the last turn 0.

    What the environment wrote between two turns goes with the later one; a loss masks it.

    >>> spread_turns([0.25, 0.5], ends=[1, 3], length=5).tolist()
    [0.25, 0.25, 0.5, 0.5, 0.0]

    Args:
        values: (K,), such as the advantages of `mt_grpo`.
        ends: see `place_rewards`.
        length: T, tokens.
    """
    turns, last = one_row("values", values), _ends(ends, length)
    _check_turns(turns, last)
    tokens = np.zeros(length)
    owned = np.diff(last, prepend=-1)
    tokens[: owned.sum()] = np.repeat(turns, owned)
    return tokens


def overlong_penalty(lengths: ArrayLike, max_length: int, buffer: int, factor: float = 1.0) -> Array:
    """Rewards (G,), 0 or less, that fall over the last tokens before the limit.

        R_i = -factor * max(0, L_i - (max_length - buffer)) / buffer        DAPO eq. 13

    A rollout at the limit gets -factor. As in verl, one beyond it gets less still; the paper stops there,
    and a limit that holds lets none through.

    >>> overlong_penalty([8, 12, 14, 16], max_length=16, buffer=4).tolist()
    [0.0, 0.0, -0.5, -1.0]

    Args:
        lengths: L (G,), tokens that the policy wrote.
        max_length: tokens.
        buffer: tokens over which the penalty grows, 1 to max_length.
        factor: the penalty at the limit.
    """
    if not 1 <= buffer <= max_length:
        raise ValueError(f"buffer must be from 1 to max_length ({max_length}) tokens, got {buffer!r}")
    over = one_row("lengths", lengths) - (max_length - buffer)
    return -factor * np.maximum(over, 0.0) / buffer + 0.0


def _ends(ends: ArrayLike, length: int) -> NDArray[np.int64]:
    array = np.asarray(ends)
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"ends must be one row of whole numbers, got {array.dtype} of shape {array.shape}")
    if array[0] < 0 or array[-1] >= length or (np.diff(array) < 0).any():
        raise ValueError(f"ends must rise from 0 to at most {length - 1}, got {array.tolist()}")
    return array.astype(np.int64)


def _check_turns(turns: Array, ends: NDArray[np.int64]) -> None:
    if len(turns) != len(ends):
        raise ValueError(f"every turn needs its end, got {len(turns)} turns and {len(ends)} ends")
