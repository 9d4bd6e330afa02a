"""Values come in, with a mask of those that count; their mean, variance and whitened form go out."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from memenvs.credit.checks import Array, Mask, check_shapes


def masked_mean(values: ArrayLike, mask: ArrayLike, axis: int | None = None) -> Array:
    """The mean over the mask, of all or along an axis; 0 where nothing counts."""
    array, counts = _pair(values, mask)
    return np.where(counts, array, 0.0).sum(axis) / np.maximum(counts.sum(axis), 1)


def masked_var(values: ArrayLike, mask: ArrayLike, ddof: int = 1) -> float:
    """The variance over the mask; 0 where no more than `ddof` values count."""
    array, counts = _pair(values, mask)
    known = array[counts]
    return float(known.var(ddof=ddof)) if len(known) > ddof else 0.0


def whiten(values: ArrayLike, mask: ArrayLike, *, shift: bool = True, eps: float = 1e-8) -> Array:
    """Values of mean 0 and variance 1 over the mask, in their shape; 0 where mask is False.

        w = (v - mean v) / sqrt(var v + eps)        var with ddof 1

    Zeros where the values are equal.

    Args:
        values: any shape, such as advantages (B, T).
        mask: of that shape.
        shift: False gives the mean back afterwards.
        eps: added to the variance.
    """
    array, counts = _pair(values, mask)
    white = np.zeros_like(array)
    known = array[counts]
    if len(known) == 0:
        return white
    mean = known.mean()
    centred = known - mean if np.ptp(known) else np.zeros_like(known)
    white[counts] = centred / np.sqrt(masked_var(array, counts) + eps) + (0.0 if shift else mean)
    return white


def _pair(values: ArrayLike, mask: ArrayLike) -> tuple[Array, Mask]:
    array, counts = np.asarray(values, np.float64), np.asarray(mask, np.bool_)
    check_shapes(values=array, mask=counts)
    return array, counts
