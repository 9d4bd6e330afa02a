"""An advantage for every turn, from the turn rewards and outcomes of a group of rollouts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from memenvs.core.checks import Array, Range, check_choice, check_lengths, check_numbers, one_row
from memenvs.credit.groups import grpo, rloo

Advantage = Callable[[Array, Sequence[Hashable] | None], Array]

ENDED = ("zero", "skip")


def mt_grpo(
    turn_rewards: Sequence[ArrayLike],
    outcomes: ArrayLike,
    *,
    alpha: float = 1.0,
    groups: Sequence[Hashable] | None = None,
    ended: str = "zero",
    eps: float = 1e-4,
    ddof: int = 1,
    scale: str = "std",
) -> list[Array]:
    """Turn advantages, for each rollout (K_i,): MT-GRPO for K turns.

        A^O_i     = (R^O_i     - mean R^O)   / (std R^O   + eps)                  MT-PPO eq. 10
        A^I_{i,l} = (R^I_{i,l} - mean R^I_l) / (std R^I_l + eps)                  MT-PPO eq. 11
        A_{i,k}   = sum_{l=k}^{K-1} alpha^(l-k) A^I_{i,l} + alpha^(K_i-k) A^O_i   MT-PPO eq. 12

    Means and std run over the G rollouts of a group, those of A^I turn by turn. K_i is the last turn of
    rollout i, K that of the longest of its group. What the last turn of a rollout earns is in its outcome:
    the last entry of its turn rewards is not read. NaN stands for a turn without a reward of its own: its A^I
    is 0, and it is left out of the mean and std of the others. A rollout that was cut before its last turn
    keeps R^I of the turn it was cut at if it comes with one entry more, whose advantage is then dropped.

    The papers' rollouts all have K turns. Where the policy decides when to stop, `ended` says what R^I_{i,l}
    is from the last turn K_i on:

    - `"zero"`: 0, so that going on is compared with stopping, and the last turn also has the A^I of what it
      gave up. Every rollout is compared at every turn, whatever it did, so the means are a baseline that
      biases nothing (with G - 1 of G, as each rollout is in its own mean). The division by std does: late
      turns that few rollouts reach have a small std, and weigh more than what they pay. `scale="none"` and
      `mt_rloo` do not divide.
    - `"skip"`: nothing; A^I is 0 there, and only the rollouts that went on are compared. How many means are
      subtracted then depends on when the rollout stopped: going on is charged with what it earns on average,
      sum_l mean R^I_l, so that turn rewards never teach whether to go on (verl-project/verl#7244).

    >>> [turns.round(2).tolist() for turns in mt_grpo([[1, 0], [0]], [0, 0], eps=0.0)]
    [[0.71, 0.0], [-0.71]]

    Args:
        turn_rewards: R^I, for each rollout (K_i,).
        outcomes: R^O (G,).
        alpha: discount a turn of what later turns earn, A^O among it; 0 to 1 in the paper. 0 gives a turn
            that is not the last its own reward alone.
        groups: the group of each rollout; None: all of one.
        ended: `"zero"` or `"skip"`.
        eps: added to std.
        ddof: of std.
        scale: `"std"`, or `"none"` for the means alone.

    Raises:
        ValueError: alpha is negative or not finite, `ended` or `scale` unknown, or the parts do not fit
            together.
    """
    advantage = partial(grpo, eps=eps, ddof=ddof, scale=scale)
    return _mixed(turn_rewards, outcomes, alpha, groups, ended, advantage)


def mt_rloo(
    turn_rewards: Sequence[ArrayLike],
    outcomes: ArrayLike,
    *,
    alpha: float = 1.0,
    groups: Sequence[Hashable] | None = None,
    ended: str = "zero",
) -> list[Array]:
    """Turn advantages, for each rollout (K_i,): `mt_grpo` with the leave-one-out baselines of `rloo`.

    Source: MT-GRPO eq. 11 and 12 for two turns, whose lambda is alpha.

    Args:
        turn_rewards: see `mt_grpo`.
        outcomes: see `mt_grpo`.
        alpha: see `mt_grpo`.
        groups: see `mt_grpo`.
        ended: see `mt_grpo`.

    Raises:
        ValueError: see `mt_grpo`.
    """
    return _mixed(turn_rewards, outcomes, alpha, groups, ended, rloo)


def combine_turns(turns: ArrayLike, outcome: float, alpha: float = 1.0) -> Array:
    """Turn advantages (K,) of one rollout from its A^I (K,), the last not read, and its A^O: MT-PPO eq. 12.

    >>> combine_turns([1.0, 2.0, np.nan], 10.0, alpha=0.5).tolist()
    [4.5, 7.0, 10.0]
    """
    own = np.nan_to_num(one_row("turns", turns), nan=0.0)
    own[-1:] = outcome
    return _discounted(own[None], alpha)[0]


def _mixed(
    turn_rewards: Sequence[ArrayLike],
    outcomes: ArrayLike,
    alpha: float,
    groups: Sequence[Hashable] | None,
    ended: str,
    advantage: Advantage,
) -> list[Array]:
    """Equation 12, with any advantage inside a group."""
    check_choice("ended", ended, ENDED)
    turns = [one_row("turn_rewards", rewards) for rewards in turn_rewards]
    results = one_row("outcomes", outcomes)
    names = [0] * len(turns) if groups is None else list(groups)
    check_lengths(turn_rewards=turns, outcomes=results, groups=names)
    lengths = [len(rewards) for rewards in turns]
    # Column l: what the rollouts earned at turn l. No rollout has a turn before its last there.
    earned = np.full((len(turns), max(lengths, default=0)), 0.0 if ended == "zero" else np.nan)
    for row, rewards in zip(earned, turns, strict=True):
        row[: max(len(rewards) - 1, 0)] = rewards[:-1]
    places = [(name, turn) for name in names for turn in range(earned.shape[1])]
    own = advantage(earned.reshape(-1), places).reshape(earned.shape)
    for row, length, result in zip(own, lengths, advantage(results, names), strict=True):
        row[max(length - 1, 0) : length] += result
    return [row[:length] for row, length in zip(_discounted(own, alpha), lengths, strict=True)]


def _discounted(own: Array, alpha: float) -> Array:
    """sum_{l>=k} alpha^(l-k) own_l at each turn k, along rows (G, K); writes into `own`."""
    check_numbers(Range(0), alpha=alpha)
    for turn in reversed(range(own.shape[1] - 1)):
        own[:, turn] += alpha * own[:, turn + 1]
    return own
