"""Advantages within groups of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memenvs.core.data import checked

Array = NDArray[np.float64]

Scale = Literal["std", "none"]

RTOL = 1e-9
"""Numbers whose difference is at most this share of the largest of them are equal."""
ATOL = 1e-12
"""Numbers whose difference is at most this are equal, and an advantage of at most this is 0."""


def all_equal(values: ArrayLike) -> bool:
    """Whether the measured values differ by no more than the rounding of float64; True where there is none.

        max x - min x <= max(ATOL, RTOL * max |x|)

    It decides wherever a spread is divided by, or a difference means that there is something to learn: the
    same rewards in another order have another sum. A NaN was not measured, and is left out.

    >>> all_equal([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]), all_equal([0.5, 0.500001])
    (True, False)
    """
    array = np.asarray(values, np.float64)
    measured = array[~np.isnan(array)]
    if not len(measured):
        return True
    return bool(np.ptp(measured) <= max(ATOL, RTOL * float(np.abs(measured).max())))


def without_rounding(advantages: Array) -> Array:
    """Advantages with exactly 0 where what was added has cancelled, except for rounding."""
    return np.where(np.abs(advantages) <= ATOL, 0.0, advantages)


def group_normalize(values: ArrayLike, *, eps: float = 1e-4, ddof: int = 1) -> Array:
    """Advantages (n,) of values (n,) inside their group.

        A_i = (r_i - mean(r)) / (std(r) + eps)

    Zeros where the values are equal (`all_equal`) or there is only one. Source: GRPO; eps and ddof as in
    MT-GRPO's code.

    >>> group_normalize([0.0, 1.0], eps=0.0).round(4).tolist()
    [-0.7071, 0.7071]
    """
    array = np.asarray(values, np.float64)
    measured = array[~np.isnan(array)]
    if len(measured) <= ddof or all_equal(measured):
        return np.zeros_like(array)
    # Scaled to the largest value, so that no square overflows or vanishes.
    scale = float(np.abs(measured).max())
    shares = measured / scale
    normal = (array / scale - shares.mean()) / (shares.std(ddof=ddof) + eps / scale)
    return np.nan_to_num(normal, nan=0.0)


@checked
def grpo(
    rewards: ArrayLike,
    groups: Sequence[Hashable] | None = None,
    *,
    eps: float = 1e-6,
    ddof: int = 1,
    scale: Scale = "std",
) -> Array:
    """Advantages (G,) of rollouts, each against its own group.

        A_i = (r_i - mean r) / (std r + eps)        GRPO
        A_i =  r_i - mean r                         Dr. GRPO, MemAgent's scripts: `scale="none"`

    Zeros in a group of one or of equal rewards. A NaN is left out of its group and gets 0.

    >>> grpo([0.0, 1.0, 5.0, 7.0], groups=["a", "a", "b", "b"], scale="none").tolist()
    [-0.5, 0.5, -1.0, 1.0]

    Args:
        rewards: r (G,).
        groups: the group of each rollout, in any order; None: all of one.
        eps: added to std.
        ddof: delta degrees of freedom of std.
        scale: `"std"` or `"none"`.
    """

    def advantage(known: Array) -> Array:
        return group_normalize(known, eps=eps, ddof=ddof) if scale == "std" else _centred(known)

    return _in_groups(rewards, groups, advantage)


def rloo(rewards: ArrayLike, groups: Sequence[Hashable] | None = None) -> Array:
    """Advantages (G,) of rollouts, each against the mean of the others of its group.

        A_i = r_i - (1 / (G - 1)) sum_{j != i} r_j        RLOO (Ahmadian et al., 2024)

    Zeros in a group of one or of equal rewards. A NaN is left out of its group and gets 0. The arguments are
    those of `grpo`.

    >>> rloo([0.0, 1.0, 2.0]).tolist()
    [-1.5, 0.0, 1.5]
    """

    def advantage(known: Array) -> Array:
        return _centred(known) * (len(known) / max(len(known) - 1, 1))

    return _in_groups(rewards, groups, advantage)


def gdpo(
    components: Mapping[str, ArrayLike],
    groups: Sequence[Hashable] | None = None,
    *,
    weights: Mapping[str, float] | None = None,
    eps: float = 1e-6,
    ddof: int = 1,
) -> Array:
    """Advantages (G,) of rollouts whose reward has several components, each normalised by itself.

        A_i = sum_c w_c (r_{i,c} - mean r_c) / (std r_c + eps)    in the group, component by component
        A^_i = A_i / (std A + eps)                                over all rollouts given, the batch

    So the weight of a component is w whatever its range, and two rollouts with equal sums of rewards can
    differ. The mean of A over the batch, which the paper subtracts, is 0 because each group's mean is. A
    NaN is left out of its component and adds 0. Source: GDPO (Liu et al., arXiv 2601.05242), as its public
    code has it.

    >>> gdpo({"right": [0, 1, 1], "form": [1, 0, 1]}, eps=0.0).round(3).tolist()
    [-0.577, -0.577, 1.155]

    Args:
        components: r_c (G,) by name.
        groups: the group of each rollout, in any order; None: all of one.
        weights: w_c of some components; 1 of the others.
        eps: added to std.
        ddof: delta degrees of freedom of std.

    Raises:
        ValueError: a weight names an unknown component.
    """
    weighed = {**dict.fromkeys(components, 1.0), **(weights or {})}
    if unknown := [name for name in weighed if name not in components]:
        raise ValueError(
            f"unknown component {unknown[0]!r}; the components are {', '.join(components) or 'none'}"
        )
    parts = [weight * grpo(components[name], groups, eps=eps, ddof=ddof) for name, weight in weighed.items()]
    total = without_rounding(np.sum(parts, axis=0))
    return total / (total.std(ddof=ddof) + eps) if total.any() else total


def members(groups: Iterable[Hashable]) -> list[list[int]]:
    """The numbers of the rollouts of each group, groups in the order in which they appear."""
    rollouts_of: dict[Hashable, list[int]] = {}
    for i, group in enumerate(groups):
        rollouts_of.setdefault(group, []).append(i)
    return list(rollouts_of.values())


def _in_groups(
    rewards: ArrayLike, groups: Sequence[Hashable] | None, advantage: Callable[[Array], Array]
) -> Array:
    """Apply `advantage` to the measured rewards of each group."""
    array = np.asarray(rewards, np.float64)
    advantages = np.zeros_like(array)
    for rollouts in members([0] * len(array) if groups is None else groups):
        if measured := [i for i in rollouts if not np.isnan(array[i])]:
            advantages[measured] = advantage(array[measured])
    return advantages


def _centred(known: Array) -> Array:
    """Less their mean; exactly 0 where they are equal, whatever the rounding of the mean."""
    return np.zeros_like(known) if all_equal(known) else known - known.mean()
