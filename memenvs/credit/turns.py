"""An advantage for every turn, from the rewards of a group: MT-GRPO, IGPO, ReMemR1, GiGPO."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from memenvs.core.data import Count, NonNegative, Share, checked
from memenvs.credit.groups import Array, Scale, grpo, rloo

Advantage = Callable[[Array, Sequence[Hashable] | None], Array]
Ended = Literal["zero", "skip"]


@checked
def mt_grpo(
    turn_rewards: Sequence[ArrayLike],
    outcomes: ArrayLike,
    *,
    alpha: NonNegative = 1.0,
    groups: Sequence[Hashable] | None = None,
    ended: Ended = "zero",
    eps: float = 1e-4,
    ddof: int = 1,
    scale: Scale = "std",
) -> list[Array]:
    """Turn advantages, for each rollout (K_i,): MT-GRPO for K turns.

        A^O_i     = (R^O_i     - mean R^O)   / (std R^O   + eps)                  MT-PPO eq. 10
        A^I_{i,l} = (R^I_{i,l} - mean R^I_l) / (std R^I_l + eps)                  MT-PPO eq. 11
        A_{i,k}   = sum_{l=k}^{K-1} alpha^(l-k) A^I_{i,l} + alpha^(K_i-k) A^O_i   MT-PPO eq. 12

    Means and std run over the G rollouts of a group, those of A^I turn by turn. K_i is the last turn of
    rollout i, K that of the longest of its group. What the last turn of a rollout earns is in its outcome:
    the last entry of its turn rewards is not read. NaN is a turn without a reward of its own: its A^I
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
      sum_l mean R^I_l, so that turn rewards never teach whether to continue (verl-project/verl#7244).

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
        ddof: delta degrees of freedom of std.
        scale: `"std"`, or `"none"` for the means alone.
    """
    advantage = partial(grpo, eps=eps, ddof=ddof, scale=scale)
    return _turn_advantages(turn_rewards, outcomes, alpha, groups, ended, advantage)


@checked
def mt_rloo(
    turn_rewards: Sequence[ArrayLike],
    outcomes: ArrayLike,
    *,
    alpha: NonNegative = 1.0,
    groups: Sequence[Hashable] | None = None,
    ended: Ended = "zero",
) -> list[Array]:
    """Turn advantages, for each rollout (K_i,): `mt_grpo` with the leave-one-out baselines of `rloo`.

    The arguments are those of `mt_grpo`. Source: MT-GRPO eq. 11 and 12 for two turns, whose lambda is alpha.
    """
    return _turn_advantages(turn_rewards, outcomes, alpha, groups, ended, rloo)


def combine_turns(turns: ArrayLike, outcome: float, alpha: float = 1.0) -> Array:
    """Turn advantages (K,) of one rollout from its A^I (K,), the last not read, and its A^O: MT-PPO eq. 12.

    >>> combine_turns([1.0, 2.0, np.nan], 10.0, alpha=0.5).tolist()
    [4.5, 7.0, 10.0]
    """
    earned = np.nan_to_num(np.asarray(turns, np.float64), nan=0.0)
    earned[-1:] = outcome
    return _discounted(earned[None], alpha)[0]


@checked
def igpo(
    gains: Sequence[ArrayLike],
    outcomes: ArrayLike,
    *,
    gamma: NonNegative = 1.0,
    groups: Sequence[Hashable] | None = None,
    eps: float = 1e-6,
    ddof: int = 0,
) -> list[Array]:
    """Turn advantages, for each rollout (K_i,): IGPO.

        a_{i,k} = (g_{i,k} - mean g) / (std g + eps)      k < K_i, over all gains of the group
        a_{i,K} = (r_i     - mean r) / (std r + eps)      K_i, over the outcomes of the group
        A_{i,k} = sum_{l >= k} gamma^(l-k) a_{i,l}

    The last entry of a rollout's gains is not read: its last turn earns the outcome. A gain of NaN could not
    be measured: its a is 0, and it is in no mean. `gains` are g for each rollout (K_i,), `outcomes` r (G,),
    `gamma` is the discount per turn, 0 or more; `groups`, `eps` and `ddof` are those of `grpo`. Source: IGPO
    (arXiv 2510.14967), as its public code was released.

    >>> [turns.round(2).tolist() for turns in igpo([[0.1, 0], [0.3, 0]], [1, 0], gamma=0.5, eps=0)]
    [[-0.5, 1.0], [0.5, -1.0]]
    """
    turns, results, names = _to_arrays(gains, outcomes, groups)
    earned = [np.append(row[:-1], result) for row, result in zip(turns, results, strict=True)]
    parts = [
        (name, k == len(row) - 1) for name, row in zip(names, earned, strict=True) for k in range(len(row))
    ]
    normal = _normalised(earned, parts, eps, ddof)
    return [
        _discounted(row[None], gamma)[0][: len(gained)] for row, gained in zip(normal, turns, strict=True)
    ]


@checked
def trace(
    gains: Sequence[ArrayLike],
    outcomes: ArrayLike,
    *,
    horizon: Count = 3,
    gamma: NonNegative = 0.8,
    weight: float = 0.2,
    terminal: float = 2.0,
    groups: Sequence[Hashable] | None = None,
    eps: float = 1e-6,
) -> list[Array]:
    """Turn advantages, for each rollout (K_i,): TRACE.

        A_{i,k} = A_i + weight (D_{i,k} + F_{i,k})      k < K_i - 1
        A_{i,k} = A_i                                   k = K_i - 1
        F_{i,k} = terminal gamma^(K_i - 1 - k) A_i

    A_i is GRPO's advantage of the outcomes with the standard deviation of the population, D `mean_ahead`;
    k counts from 0, and F is 0 where the turns averaged in D end before the last gain. `gains` (K_i,), whose
    last entry is not read, are differences of V; `outcomes` r (G,), `groups` and `eps` are those of `grpo`.

    Source: TRACE (arXiv 2607.13988, algorithm 1), which we read in two independent implementations.

    >>> [turns.round(2).tolist() for turns in trace([[1, 0], [0, 0]], [1, 0], eps=0)]
    [[1.52, 1.0], [-1.32, -1.0]]
    """
    turns, results, names = _to_arrays(gains, outcomes, groups)
    advantages = []
    for row, advantage in zip(turns, grpo(results, names, eps=eps, ddof=0), strict=True):
        left = np.arange(len(row) - 1, 0, -1)  # gains from each turn on
        fill = np.where(left <= horizon, terminal * gamma**left * advantage, 0.0)
        dense = weight * (mean_ahead(row[:-1], horizon=horizon, gamma=gamma) + fill)
        advantages.append(advantage + np.append(dense, [0.0] * min(1, len(row))))
    return advantages


def mean_ahead(gains: ArrayLike, *, horizon: int = 3, gamma: float = 0.8) -> Array:
    """(K,) the discounted mean of each turn's gain and those after it, `horizon` in all (TRACE).

        D_k = sum_j gamma^j g_{k+j} / sum_j gamma^j,      0 <= j < horizon, k + j < K

    A gain of NaN counts 0.

    >>> mean_ahead([1.0, 0.0, 3.0], horizon=2, gamma=0.5).tolist()
    [0.6666666666666666, 1.0, 3.0]
    """
    values = np.nan_to_num(np.asarray(gains, np.float64))
    discounts = gamma ** np.arange(horizon)
    windows = [values[k : k + horizon] for k in range(len(values))]
    return np.array([np.average(window, weights=discounts[: len(window)]) for window in windows])


@checked
def rememr1(
    states: Sequence[ArrayLike],
    outcomes: ArrayLike,
    *,
    alpha: Share = 0.8,
    groups: Sequence[Hashable] | None = None,
    eps: float = 1e-6,
    ddof: int = 1,
    scale: Scale = "std",
) -> list[Array]:
    """Turn advantages, for each rollout (K_i,): ReMemR1.

        A_{i,k} = alpha (r_i - mean r) / (std r + eps) + (1 - alpha) (s_{i,k} - mean s_k) / (std s_k + eps)

    Means and std run over the rollouts of a group, those of s turn by turn over the rollouts that have the
    turn. A state reward of NaN could not be measured: its part is 0, and it is in no mean. `states` are s for
    each rollout (K_i,), `outcomes` r (G,); the arguments after `alpha` are those of `grpo`. Source: ReMemR1
    (arXiv 2509.23040), as its public code combines the two (`ray_trainer.py`). Its training scripts divide
    neither part by its std: `scale="none"`.

    >>> [turns.round(2).tolist() for turns in rememr1([[1, 0], [0, 0]], [1, 0], alpha=0.5, eps=0.0)]
    [[0.71, 0.35], [-0.71, -0.35]]
    """
    turns, results, names = _to_arrays(states, outcomes, groups)
    whole = grpo(results, names, eps=eps, ddof=ddof, scale=scale)
    places = [(name, k) for name, row in zip(names, turns, strict=True) for k in range(len(row))]
    normal = _normalised(turns, places, eps, ddof, scale)
    return [alpha * result + (1 - alpha) * row for result, row in zip(whole, normal, strict=True)]


@checked
def gigpo(
    rewards: Sequence[ArrayLike],
    states: Sequence[Sequence[Hashable]],
    *,
    gamma: NonNegative = 0.95,
    groups: Sequence[Hashable] | None = None,
    eps: float = 1e-6,
    ddof: int = 1,
    scale: Scale = "std",
) -> list[Array]:
    """GiGPO's step advantages A^S, for each rollout (K_i,); its A is A^E + omega A^S (eq. 8), A^E by `grpo`.

        R_{i,k}   = sum_{l >= k} gamma^(l-k) r_{i,l}              eq. 5
        A^S_{i,k} = (R_{i,k} - mean R) / (std R + eps)            eq. 7, or without std: `scale="none"`

    Mean and std run over all turns of the group whose state is that of turn k (eq. 6), also over several of
    one rollout. Zeros for a state that occurs once. `rewards` are r and `states` keys of the states in which
    turns act, both for each rollout (K_i,); `gamma` is the discount per turn, 0 or more, and the arguments
    after it are those of `grpo`. Source: GiGPO (arXiv 2505.10978).

    >>> gigpo([[0, 1], [0, 0]], [["s", "a"], ["s", "b"]], gamma=0.5, scale="none")[0].tolist()
    [0.25, 0.0]
    """
    names = [0] * len(rewards) if groups is None else groups
    returns = [_discounted(np.array([row], np.float64), gamma)[0] for row in rewards]
    places = [(name, state) for name, row in zip(names, states, strict=True) for state in row]
    return _normalised(returns, places, eps, ddof, scale)


def _to_arrays(
    turns: Sequence[ArrayLike], outcomes: ArrayLike, groups: Sequence[Hashable] | None
) -> tuple[list[Array], Array, Sequence[Hashable]]:
    """Numbers of turns (K_i,), results (G,), and the group of each rollout."""
    rows = [np.asarray(row, np.float64) for row in turns]
    return rows, np.asarray(outcomes, np.float64), [0] * len(rows) if groups is None else groups


def _normalised(
    rows: Sequence[Array], places: Sequence[Hashable], eps: float, ddof: int, scale: Scale = "std"
) -> list[Array]:
    """Numbers of turns, for each rollout (K_i,), normalised over those at equal places."""
    if not rows:
        return []
    normal = grpo(np.concatenate(rows), places, eps=eps, ddof=ddof, scale=scale)
    return np.split(normal, np.cumsum([len(row) for row in rows])[:-1])


def _turn_advantages(
    turn_rewards: Sequence[ArrayLike],
    outcomes: ArrayLike,
    alpha: float,
    groups: Sequence[Hashable] | None,
    ended: str,
    advantage: Advantage,
) -> list[Array]:
    """Equation 12, with any advantage inside a group."""
    turns, results, names = _to_arrays(turn_rewards, outcomes, groups)
    lengths = [len(rewards) for rewards in turns]
    # Column l: what the rollouts earned at turn l. No rollout has a turn before its last there.
    earned = np.full((len(turns), max(lengths, default=0)), 0.0 if ended == "zero" else np.nan)
    for row, rewards in zip(earned, turns, strict=True):
        row[: max(len(rewards) - 1, 0)] = rewards[:-1]
    places = [(name, turn) for name in names for turn in range(earned.shape[1])]
    compared = advantage(earned.reshape(-1), places).reshape(earned.shape)
    for row, length, result in zip(compared, lengths, advantage(results, names), strict=True):
        row[max(length - 1, 0) : length] += result
    return [row[:length] for row, length in zip(_discounted(compared, alpha), lengths, strict=True)]


def _discounted(rows: Array, alpha: float) -> Array:
    """sum_{l>=k} alpha^(l-k) x_l at each turn k, along rows x (G, K); writes into `rows`."""
    for turn in reversed(range(rows.shape[1] - 1)):
        rows[:, turn] += alpha * rows[:, turn + 1]
    return rows
