"""Rewards and advantages of TAMTRL, InfoMem and MemPO, from what was measured of memories."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from memenvs.core.data import checked
from memenvs.credit.groups import Array, all_equal, group_normalize, members

Combine = Literal["product", "plus"]
Side = Literal["success", "wrong", "both"]


class MemPOAdvantages(NamedTuple):
    """The two parts of MemPO's advantage.

    Attributes:
        trajectory: (G,) for every token of a rollout.
        memory: for each rollout (K_i,), added on the tokens inside the memory of each turn.
    """

    trajectory: Array
    memory: list[Array]


@checked
def tamtrl_rewards(
    teacher: Sequence[ArrayLike],
    outcomes: ArrayLike,
    *,
    fixed: Sequence[ArrayLike] | None = None,
    minmax: bool = True,
    combine: Combine = "product",
    penalties: ArrayLike | None = None,
    bounds: tuple[float, float] | None = None,
) -> list[Array]:
    """Turn rewards R_t, for each rollout (K_i,), from the teacher's view of each memory.

        p^_t = (p_t - min p) / (max p - min p)    over the whole batch        TAMTRL eq. 5
        R_t  = p^_t * r   (or r + p^_t: `combine="plus"`)                     TAMTRL eq. 6

    A p_t of NaN is a memory that could not be measured: its R_t is NaN, no reward at all. Where all p_t are
    equal (`all_equal`), p^_t is 0.

    Args:
        teacher: p_t, for each rollout of the batch (K_i,).
        outcomes: r (G,).
        fixed: for each rollout (K_i,), R_t of the turns that were not shown to the teacher (the answer, an
            empty memory), whose p_t is not read; NaN at the others. None: all were shown.
        minmax: without it p^_t = p_t.
        combine: `"product"` or `"plus"`.
        penalties: (G,), added to every R_t of a rollout after eq. 6, such as DAPO's length penalty; None: 0.
        bounds: smallest and largest p, where a larger batch has been seen than this one.
    """
    scores = [np.asarray(p, np.float64) for p in teacher]
    rewards = np.asarray(outcomes, np.float64)
    added = np.zeros_like(rewards) if penalties is None else np.asarray(penalties, np.float64)
    rows = [np.full(len(p), np.nan) for p in scores] if fixed is None else [np.asarray(row) for row in fixed]
    if minmax:
        taught = np.concatenate([p[np.isnan(row)] for p, row in zip(scores, rows, strict=True)] or [[]])
        measured = taught[~np.isnan(taught)]
        low, high = bounds or ((measured.min(), measured.max()) if len(measured) else (0.0, 0.0))
        flat = all_equal([low, high])
        scores = [np.where(np.isnan(p), p, 0.0) if flat else (p - low) / (high - low) for p in scores]
    together = [p * r if combine == "product" else p + r for p, r in zip(scores, rewards, strict=True)]
    return [
        np.where(np.isnan(row), both, row) + penalty
        for both, row, penalty in zip(together, rows, added, strict=True)
    ]


def tamtrl(
    teacher: Sequence[ArrayLike],
    outcomes: ArrayLike,
    *,
    tasks: Sequence[Hashable] | None = None,
    fixed: Sequence[ArrayLike] | None = None,
    minmax: bool = True,
    combine: Combine = "product",
    penalties: ArrayLike | None = None,
    eps: float = 1e-6,
    ddof: int = 1,
) -> list[Array]:
    """Turn advantages, for each rollout (K_i,): TAMTRL eq. 5 to 7.

        A_t = (R_t - mean R) / (std R + eps)    over all turns of a task's rollouts    TAMTRL eq. 7

    Min-max (eq. 5) runs over the whole batch, mean and std over each task alone. A memory that could not be
    measured (NaN) is in none of them, and gets 0. The arguments are those of `tamtrl_rewards`; `tasks` names
    the task of each rollout (None: all of one), `eps` is added to std, `ddof` is that of std.
    """
    rewards = tamtrl_rewards(
        teacher, outcomes, fixed=fixed, minmax=minmax, combine=combine, penalties=penalties
    )
    return normalize_turns(rewards, tasks=tasks, eps=eps, ddof=ddof)


def normalize_turns(
    rewards: Sequence[ArrayLike],
    *,
    tasks: Sequence[Hashable] | None = None,
    eps: float = 1e-6,
    ddof: int = 1,
) -> list[Array]:
    """Turn advantages, for each rollout (K_i,), of any rewards of turns.

        A_t = (R_t - mean R) / (std R + eps)    over all turns of a task's rollouts    TAMTRL eq. 7

    A turn that could not be measured (NaN) is in neither mean nor std, and gets 0. `rewards` are R_t, for
    each rollout (K_i,); the other arguments are those of `tamtrl`.
    """
    turns = [np.asarray(of_rollout, np.float64) for of_rollout in rewards]
    advantages = [np.zeros_like(of_rollout) for of_rollout in turns]
    for rollouts in members([0] * len(turns) if tasks is None else tasks):
        joined = group_normalize(np.concatenate([turns[i] for i in rollouts]), eps=eps, ddof=ddof)
        ends = np.cumsum([len(turns[i]) for i in rollouts])[:-1]
        for i, of_rollout in zip(rollouts, np.split(joined, ends), strict=True):
            advantages[i] = of_rollout
    return advantages


@checked
def infomem_bonus(
    gains: ArrayLike,
    successes: ArrayLike,
    *,
    side: Side = "success",
    normalize: bool = True,
    eps: float = 1e-6,
    ddof: int = 0,
) -> Array:
    """InfoMem's r~ (G,): the information gains, z-scored inside the successful rollouts.

        r~_i = (g_i - mean_S g) / (std_S g + eps),  i in S;  0 elsewhere      InfoMem eq. 9
        R_i  = outcome_i + beta * r~_i                                        InfoMem eq. 10

    S holds the successful rollouts (`side="success"`) or the others (`"wrong"`); with `"both"` each side is
    z-scored inside itself. A side of one rollout keeps its raw gain, since a z-score would erase it.

    Args:
        gains: r_gain (G,), nats per token (eq. 6); NaN for none.
        successes: (G,) whether the answer is right.
        side: who receives it.
        normalize: False gives the raw gains of the side.
        eps: added to std.
        ddof: delta degrees of freedom of std.
    """
    measured, right = np.asarray(gains, np.float64), np.asarray(successes, np.bool_)
    bonus = np.zeros_like(measured)
    for name, rollouts in (("success", right), ("wrong", ~right)):
        chosen = rollouts & ~np.isnan(measured)
        if side in (name, "both"):
            raw = measured[chosen]
            alone = not normalize or len(raw) == 1
            bonus[chosen] = raw if alone else group_normalize(raw, eps=eps, ddof=ddof)
    return bonus


def mempo(
    outcomes: ArrayLike, memory: Sequence[ArrayLike], *, eps: float = 1e-6, ddof: int = 1
) -> MemPOAdvantages:
    """The two advantages of MemPO.

        A_trajectory_i  = (r_i  - mean r) / (std r + eps)     over the G rollouts
        A_memory_ij     = (R_ij - mean R) / (std R + eps)     over all memories of the group
        A of a token    = A_trajectory_i, + A_memory_ij where it is inside the memory of turn j

    `outcomes` are r (G,), `memory` is R_ij for each rollout (K_i,), NaN at a turn that wrote no memory; `eps`
    is added to std, whose delta degrees of freedom are `ddof`. Source: MemPO eq. 4 to 9, as we read them
    (docs/decisions.md).
    """
    memories = normalize_turns(memory, eps=eps, ddof=ddof)
    return MemPOAdvantages(group_normalize(outcomes, eps=eps, ddof=ddof), memories)
