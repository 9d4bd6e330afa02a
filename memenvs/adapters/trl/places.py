"""Turns and their tokens, found again in a batch of TRL's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memenvs.baselines.episode import Episode, Floats
from memenvs.baselines.policy import Reply


def place(values: Sequence[Floats], written: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Numbers (N_i,) of the first rows' written tokens, at their places in (B, T); 0 elsewhere.

    A row that TRL has masked as a whole, as it can those that were cut, stays 0.

    >>> place([np.array([1.0, 2.0])], np.array([[True, False, True], [False, False, False]])).tolist()
    [[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]]
    """
    placed = np.zeros(written.shape, np.float32)
    for row, (own, mask) in enumerate(zip(values, written[: len(values)], strict=True)):
        if mask.any():
            placed[row, mask] = own
    return placed


def tool_episode(group: int, env: Any, steps: NDArray[np.int64], written: NDArray[np.bool_]) -> Episode:
    """The episode of a tool environment, its turns being the runs of written tokens.

    Args:
        group: number of its group.
        env: the `ToolEnv` that has played it.
        steps: its number of steps after each generation; rises. A step belongs to the run before it, and
            those that end an episode in silence to the last.
        written: (T,) the tokens that the policy wrote.
    """
    edges = np.flatnonzero(np.diff(written.astype(np.int64), prepend=0, append=0))
    lengths = (edges[1::2] - edges[::2]).tolist() or [0]
    rewards, outcomes = env._turn_rewards, env._outcomes
    run = np.searchsorted(steps, np.arange(len(rewards)), side="right") - 1
    run = np.clip(run, 0, len(lengths) - 1)
    return Episode(
        group,
        str(env._info["task"]),
        replies=[Reply("", np.zeros(n, np.int64), np.zeros(n), True) for n in lengths],  # TRL keeps the ids
        turn_rewards=np.bincount(run, rewards, len(lengths)).tolist(),
        outcome=float(sum(outcomes)),
        outcomes=np.bincount(run, outcomes, len(lengths)).tolist(),
        end="terminated",
    )
