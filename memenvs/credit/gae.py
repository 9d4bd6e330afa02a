"""Token rewards and values come in, with a mask of the tokens the policy wrote; advantages go out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from memenvs.credit.checks import Array, Mask, check_shapes

BLOCK = 16  # steps that one matrix product sums
CACHED = 2**16  # numbers worked on at a time, so that each pass finds those of the last in the cache


def gae(
    rewards: ArrayLike, values: ArrayLike, mask: ArrayLike, gamma: float = 1.0, lam: float = 1.0
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
        gamma: discount a written token, 0 to 1.
        lam: 0 to 1; 1 gives returns less values.

    Raises:
        ValueError: shapes differ, gamma or lam is out of range, or a written token's number is not finite.
    """
    for name, share in (("gamma", gamma), ("lam", lam)):
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"{name} must be from 0 to 1, got {share!r}")
    earned, expected = np.asarray(rewards, np.float64), np.asarray(values, np.float64)
    written = np.asarray(mask, np.bool_)
    check_shapes(rewards=earned, values=expected, mask=written)
    if written.ndim != 2:
        raise ValueError(f"rewards must have shape (B, T), got {written.shape}")
    advantages = np.zeros(written.shape)
    step = max(1, CACHED // max(written.shape[1], 1))
    for first in range(0, len(written), step):
        rows = slice(first, first + step)
        _estimate(earned[rows], expected[rows], written[rows], gamma, lam, advantages[rows])
    return advantages


def _estimate(rewards: Array, values: Array, mask: Mask, gamma: float, lam: float, out: Array) -> None:
    """Fill `out` with the advantages of some rows."""
    # Numbers, not the mask itself: picking by a mask without pattern costs three times as much.
    written = np.flatnonzero(mask)
    if not len(written):
        return
    counts = np.count_nonzero(mask, axis=1)
    value = values.reshape(-1).take(written)
    following = np.append(value[1:], 0.0)
    following[np.cumsum(counts[counts > 0]) - 1] = 0.0
    delta = rewards.reshape(-1).take(written) + gamma * following - value
    if not np.isfinite(delta).all():
        raise ValueError("rewards and values must be finite at every token of the mask, got NaN or infinity")
    # Pushed to the left, the written tokens of a row are neighbours.
    pushed = np.arange(-(-int(counts.max()) // BLOCK) * BLOCK) < counts[:, None]
    deltas = np.zeros(pushed.shape)
    deltas[pushed] = delta
    out.reshape(-1)[written] = _discounted_sums(deltas, gamma * lam)[pushed]


def _discounted_sums(x: Array, c: float) -> Array:
    """A_t = x_t + c A_{t+1} along rows (B, T), without a loop over T.

    A block of steps is one product with the triangle of powers of c; what a block hands to the one before it
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
