"""Turn rewards and outcomes of a group of rollouts come in; an advantage for every turn goes out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from memenvs.credit.checks import Array, check_lengths, one_row
from memenvs.credit.groups import grpo, rloo

Advantage = Callable[[Array, Sequence[Hashable] | None], Array]


def mt_grpo(
    turn_rewards: Sequence[ArrayLike],
    outcomes: ArrayLike,
    *,
    alpha: float = 1.0,
    groups: Sequence[Hashable] | None = None,
    eps: float = 1e-4,
    ddof: int = 1,
    scale: str = "std",
) -> list[Array]:
    """Turn advantages, for each rollout (K_i,).

        A_{i,k} = A^T_{i,k} + alpha A^O_i    k < K_i         MT-GRPO eq. 12
        A_{i,K} = A^O_i                      the last turn

    A^O is `grpo` of the outcomes, A^T_{i,k} is `grpo` of the k-th turn rewards over the rollouts of the group
    for which turn k is not the last. The paper has two turns; for more, turns are compared by their number.
    The last entry of each rollout's turn rewards is not read: what the last turn earns is in the outcome.
    NaN stands for a turn without a reward of its own: its A^T is 0. A rollout that was cut before its last
    turn keeps A^T of the turn it was cut at if it comes with one entry more, whose advantage is then dropped.

    Args:
        turn_rewards: for each rollout (K_i,).
        outcomes: (G,).
        alpha: weight of the outcome in the turns before the last; 0 gives them their own reward alone.
        groups: the group of each rollout; None: all of one.
        eps: added to std.
        ddof: of std.
        scale: `"std"`, or `"none"` for the means alone.
    """
    advantage = partial(grpo, eps=eps, ddof=ddof, scale=scale)
    return _mixed(turn_rewards, outcomes, alpha, groups, advantage)


def mt_rloo(
    turn_rewards: Sequence[ArrayLike],
    outcomes: ArrayLike,
    *,
    alpha: float = 1.0,
    groups: Sequence[Hashable] | None = None,
) -> list[Array]:
    """Turn advantages, for each rollout (K_i,): `mt_grpo` with the leave-one-out baselines of `rloo`.

    Args:
        turn_rewards: see `mt_grpo`.
        outcomes: see `mt_grpo`.
        alpha: see `mt_grpo`.
        groups: see `mt_grpo`.
    """
    return _mixed(turn_rewards, outcomes, alpha, groups, rloo)


def combine_turns(turns: ArrayLike, outcome: float, alpha: float = 1.0) -> Array:
    """Turn advantages (K,) of one rollout from its A^T (K,), the last not read, and its A^O: MT-GRPO eq. 12.

    For tree rollouts, whose A^T is `grpo` over the samples of one node.

    >>> combine_turns([1.0, 2.0, np.nan], 10.0, alpha=0.5).tolist()
    [6.0, 7.0, 10.0]
    """
    advantages = np.nan_to_num(one_row("turns", turns), nan=0.0) + alpha * outcome
    advantages[-1:] = outcome
    return advantages


def _mixed(
    turn_rewards: Sequence[ArrayLike],
    outcomes: ArrayLike,
    alpha: float,
    groups: Sequence[Hashable] | None,
    advantage: Advantage,
) -> list[Array]:
    """Equation 12, with any advantage inside a group."""
    turns = [one_row("turn_rewards", rewards) for rewards in turn_rewards]
    results = one_row("outcomes", outcomes)
    names = [0] * len(turns) if groups is None else list(groups)
    check_lengths(turn_rewards=turns, outcomes=results, groups=names)
    # Every turn before the last, in the group of its number.
    early = [(i, k) for i, rewards in enumerate(turns) for k in range(len(rewards) - 1)]
    normal = advantage(np.array([turns[i][k] for i, k in early]), [(names[i], k) for i, k in early])
    own = [np.zeros(len(rewards)) for rewards in turns]
    for (i, k), value in zip(early, normal, strict=True):
        own[i][k] = value
    whole = advantage(results, names)
    return [combine_turns(parts, result, alpha) for parts, result in zip(own, whole, strict=True)]
