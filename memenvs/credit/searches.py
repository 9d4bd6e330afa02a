"""Rewards of agents that call a tool: OTC for how often, StepSearch for what each call brings."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from memenvs.credit.groups import Array


def tool_efficiency(calls: ArrayLike, fewest: float = 0.0, *, smooth: float = 1.0) -> Array:
    """OTC's r_tool (G,), 0 to 1: how near the calls m of each rollout are to the fewest n that were enough.

        r_tool = cos(m pi / (2m + c))                       n = 0: OTC-PPO, and OTC-GRPO without a call
        r_tool = sin(f pi / (2n)),   f = 2nm / (m + n)      n > 0: OTC-GRPO

    1 at m = n, less for more calls and, with n > 0, for fewer. Source: OTC (arXiv 2504.14870), its tool
    rewards of OTC-PPO and OTC-GRPO. We read them in summaries of the paper; its value of c is in none.

    >>> tool_efficiency([0, 1, 2, 6], fewest=2).round(3).tolist()
    [0.0, 0.866, 1.0, 0.707]

    Args:
        calls: m (G,), of each rollout.
        fewest: n, of the rollouts of the task that are right; 0 where none is.
        smooth: c > 0; the larger, the less each call costs while n is 0.
    """
    counts = np.asarray(calls, np.float64)
    if fewest == 0:
        return np.cos(counts * np.pi / (2 * counts + smooth))
    return np.sin(counts * np.pi / (counts + fewest))


def search_gains(matches: Sequence[ArrayLike]) -> Array:
    """StepSearch's information gain (K,) of each turn of a rollout.

        G_t = mean_i max(0, c_i^t - m_i),   m_i = max over earlier turns of c_i, at first 0

    c_i^t, 0 to 1, is how well the best passage of turn t matches evidence document i; `matches` has c (E,)
    for each turn, zeros at one that brought nothing. Source: StepSearch (arXiv 2505.15107), the step rewards
    of its section on training, as `qa_step.py` of its public code has them.

    >>> search_gains([[0.5, 0.0], [0.25, 0.0], [1.0, 1.0]]).tolist()
    [0.25, 0.0, 0.75]
    """
    rows = np.asarray(matches, np.float64).reshape(len(matches), -1)
    best = np.maximum.accumulate(np.vstack([np.zeros_like(rows[:1]), rows]))[:-1]
    return np.maximum(rows - best, 0.0).mean(axis=1) if rows.size else np.zeros(len(rows))


def redundancy(passages: Sequence[Sequence[Hashable]]) -> Array:
    """StepSearch's redundancy (K,), 0 to 1: of the passages of a turn, the share that was brought before.

    Passages are given by anything that tells them apart. Source: that of `search_gains`.

    >>> redundancy([["a", "b"], [], ["b", "c"]]).tolist()
    [0.0, 0.0, 0.5]
    """
    seen: set[Hashable] = set()
    shares = []
    for turn in passages:
        again = 0
        for passage in turn:
            again += passage in seen
            seen.add(passage)
        shares.append(again / max(len(turn), 1))
    return np.array(shares)


def novelty(passages: Sequence[Sequence[Hashable]]) -> Array:
    """The share (K,), 0 to 1, of the different passages of each turn that no earlier turn has brought.

    It is 0 for a turn that brought none. Our stand-in for `search_gains` where no evidence is known.

    >>> novelty([["a", "b", "b"], [], ["b", "c"]]).tolist()
    [1.0, 0.0, 0.5]
    """
    seen: set[Hashable] = set()
    shares = []
    for turn in map(set, passages):
        shares.append(len(turn - seen) / max(len(turn), 1))
        seen |= turn
    return np.array(shares)
