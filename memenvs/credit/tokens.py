"""Credit on tokens: generalised advantage estimation, masked whitening, and where credit of turns goes."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memenvs.core.data import Count, Share, checked
from memenvs.credit.groups import Array, all_equal

Mask = NDArray[np.bool_]

Placement = Literal["turn", "merged", "outcome"]

BLOCK = 16  # steps that one matrix product sums
CACHED = 2**16  # numbers worked on at a time, so that each pass finds those of the last in the cache


@checked
def gae(
    rewards: ArrayLike, values: ArrayLike, mask: ArrayLike, gamma: Share = 1.0, lam: Share = 1.0
) -> Array:
    """Generalised advantage estimates (B, T), stepping over tokens the policy did not write.

        delta_t = r_t + gamma V_u - V_t        A_t = delta_t + gamma lam A_u

    u is the next t with mask; past the last one V and A are 0. Zero where mask is False; rewards and values
    there are never read. The critic's targets are A + V. An episode of several sequences is one row: join
    them. Source: MT-PPO eq. 8; rewards sit where eq. 9 puts them (`place_rewards`).

    >>> gae([[0.0, 9.0, 1.0]], [[0.5, 9.0, 0.25]], [[True, False, True]]).tolist()
    [[0.5, 0.0, 0.75]]

    Args:
        rewards: r (B, T).
        values: V (B, T).
        mask: (B, T), True where the policy wrote the token.
        gamma: discount per written token, 0 to 1.
        lam: 0 to 1; 1 gives returns less values.

    Raises:
        ValueError: gamma or lam is out of range, or a written token's number is not finite.
    """
    rewards, values = np.asarray(rewards, np.float64), np.asarray(values, np.float64)
    mask = np.asarray(mask, np.bool_)
    advantages = np.zeros(mask.shape)
    step = max(1, CACHED // max(mask.shape[1], 1))
    for first in range(0, len(mask), step):
        rows = slice(first, first + step)
        # Numbers, not the mask itself: picking by a mask without pattern costs three times as much.
        places = np.flatnonzero(mask[rows])
        if not len(places):
            continue
        counts = np.count_nonzero(mask[rows], axis=1)
        value = values[rows].reshape(-1).take(places)
        following = np.append(value[1:], 0.0)
        following[np.cumsum(counts[counts > 0]) - 1] = 0.0
        delta = rewards[rows].reshape(-1).take(places) + gamma * following - value
        if not np.isfinite(delta).all():
            raise ValueError(
                "rewards and values must be finite at every token of the mask, got NaN or infinity"
            )
        # Pushed to the left, the written tokens of a row are neighbours.
        pushed = np.arange(-(-int(counts.max()) // BLOCK) * BLOCK) < counts[:, None]
        deltas = np.zeros(pushed.shape)
        deltas[pushed] = delta
        advantages[rows].reshape(-1)[places] = _discounted_sums(deltas, gamma * lam)[pushed]
    return advantages


@checked
def turn_gae(
    rewards: ArrayLike, values: ArrayLike, turns: ArrayLike, gamma: Share = 1.0, lam: Share = 1.0
) -> Array:
    """Generalised advantage estimates (N,) of one rollout whose time step is a turn: Turn-PPO.

        delta_k = R_k + gamma V_{k+1} - V_k        A_k = delta_k + gamma lam A_{k+1}

    R_k is the sum of the turn's token rewards, V_k the value before its first token; past the last turn V and
    A are 0. Every token of turn k has A_k, and the critic's target is A_k + V_k. Source: Turn-PPO
    (arXiv 2512.17008), which also clips the ratio of a turn as a whole.

    >>> turn_gae([0.0, 0.5, 1.0], [0.2, 0.9, 0.4], turns=[0, 0, 1], gamma=0.5, lam=0.5).round(3).tolist()
    [0.65, 0.65, 0.6]

    Args:
        rewards: r (N,), of the tokens that the policy wrote.
        values: V (N,).
        turns: (N,) the number of each token's turn, rising.
        gamma: discount per turn, 0 to 1.
        lam: 0 to 1.
    """
    starts, lengths = _runs(turns)
    earned, worth = np.add.reduceat(np.asarray(rewards, np.float64), starts), np.asarray(values)[starts]
    (advantages,) = gae([earned], [worth], np.ones((1, len(starts)), np.bool_), gamma, lam)
    return np.repeat(advantages, lengths)


@checked
def bi_level_gae(
    rewards: ArrayLike,
    values: ArrayLike,
    turns: ArrayLike,
    gamma: Share = 1.0,
    lam: Share = 1.0,
    turn_gamma: Share = 1.0,
) -> Array:
    """Generalised advantage estimates (N,) of one rollout on two levels, its turns and their tokens: VAGEN.

        delta_k = r_e + turn_gamma V_{e'} - V_e    A_e = delta_k + turn_gamma lam A_{e'}
        delta_t = r_t + gamma V_{t+1} - V_t        A_t = delta_t + gamma lam A_{t+1}         t < e

    e is the last token of turn k, e' that of turn k + 1; past the last turn V and A are 0. The critic's
    targets are A + V. The arguments are those of `turn_gae`, `gamma` per token and `turn_gamma` per turn.
    Source: Bi-Level GAE of VAGEN (arXiv 2510.16907) as its public code was released: the advantage of a turn
    replaces that of its last token.

    >>> bi_level_gae([0.0, 0.5, 1.0], [0.2, 0.9, 0.4], turns=[0, 0, 1], gamma=0.5, lam=0.5).round(3).tolist()
    [0.325, 0.3, 0.6]
    """
    earned, worth = np.array(rewards, np.float64), np.asarray(values, np.float64)
    starts, lengths = _runs(turns)
    if not len(starts):
        return np.zeros(0)
    ends = starts + lengths - 1
    (of_turns,) = gae([earned[ends]], [worth[ends]], np.ones((1, len(ends)), np.bool_), turn_gamma, lam)
    earned[ends] = of_turns + worth[ends]  # so that the last token's own estimate is its turn's
    mask = np.arange(lengths.max()) < lengths[:, None]
    rows = np.zeros((2, *mask.shape))
    rows[:, mask] = earned, worth
    return gae(rows[0], rows[1], mask, gamma, lam)[mask]


def _runs(turns: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first token of each turn, and its number of tokens."""
    _, starts, lengths = np.unique(np.asarray(turns), return_index=True, return_counts=True)
    return starts, lengths


def place_rewards(
    turn_rewards: ArrayLike,
    ends: ArrayLike,
    length: int,
    *,
    placement: Placement = "turn",
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
        outcome: R^O; None: the turn rewards hold it already (`placement="outcome"` then rewards nothing).
    """
    rewards, last = np.asarray(turn_rewards, np.float64), np.asarray(ends, np.int64)
    tokens = np.zeros(length)
    if placement == "turn":
        np.add.at(tokens, last, np.nan_to_num(rewards, nan=0.0))
    elif placement == "merged":
        tokens[last[-1:]] = np.nansum(rewards)
    tokens[last[-1:]] += np.nan_to_num(outcome or 0.0, nan=0.0)
    return tokens


@checked
def overlong_penalty(lengths: ArrayLike, max_length: int, buffer: Count, factor: float = 1.0) -> Array:
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
    over = np.asarray(lengths, np.float64) - (max_length - buffer)
    return -factor * np.maximum(over, 0.0) / buffer + 0.0


def whiten(values: ArrayLike, mask: ArrayLike, *, eps: float = 1e-8) -> Array:
    """Values of any shape with mean 0 and variance 1 over a mask of that shape; 0 where the mask is False.

        w = (v - mean v) / sqrt(var v + eps)        var with ddof 1

    Zeros where the values are equal.
    """
    array, counts = np.asarray(values, np.float64), np.asarray(mask, np.bool_)
    white = np.zeros_like(array)
    counted = array[counts]
    centred = np.zeros_like(counted) if all_equal(counted) else counted - counted.mean()
    white[counts] = centred / np.sqrt(masked_var(array, counts) + eps)
    return white


def masked_mean(values: ArrayLike, mask: ArrayLike, axis: int | None = None) -> Array:
    """The mean over the mask, of all or along an axis; 0 where nothing counts."""
    array, counts = np.asarray(values, np.float64), np.asarray(mask, np.bool_)
    return np.where(counts, array, 0.0).sum(axis) / np.maximum(counts.sum(axis), 1)


def masked_var(values: ArrayLike, mask: ArrayLike, ddof: int = 1) -> float:
    """The variance over the mask; 0 where no more than `ddof` values count."""
    array, counts = np.asarray(values, np.float64), np.asarray(mask, np.bool_)
    counted = array[counts]
    return float(counted.var(ddof=ddof)) if len(counted) > ddof else 0.0


def _discounted_sums(x: Array, c: float) -> Array:
    """A_t = x_t + c A_{t+1} along rows (B, T), without a loop over T.

    A block of steps is one product with the triangle of powers of c; what a block adds to the one before it
    is the same recurrence with c^BLOCK, over as many steps as there are blocks. No power is above 1, so that
    neither c = 1 nor a small c loses digits. May write into x.
    """
    rows, steps = x.shape
    if steps % BLOCK:
        x = np.pad(x, ((0, 0), (0, -steps % BLOCK)))
    triangle = np.tril(c ** np.abs(np.subtract.outer(np.arange(BLOCK), np.arange(BLOCK))))
    blocks = x.reshape(rows, -1, BLOCK)
    if blocks.shape[1] > 1:
        heads = _discounted_sums((x.reshape(-1, BLOCK) @ triangle[:, 0]).reshape(rows, -1), c**BLOCK)
        blocks[:, :-1, -1] += c * heads[:, 1:]
    return (x.reshape(-1, BLOCK) @ triangle).reshape(rows, -1)[:, :steps]
