"""What verl's tokens were paid comes in; advantages by turn go out, under names that verl's config can give.

    algorithm.adv_estimator=memenvs_mt_grpo

with VERL_USE_EXTERNAL_MODULES=memenvs.adapters.verl.advantages in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memenvs.adapters.versions import check_version
from memenvs.credit import grpo, mt_grpo
from memenvs.extras import require

check_version("verl", "0.9.1", "0.9.2", "verl")
core_algos: Any = require("verl.trainer.ppo.core_algos", "verl")

Rows = list[NDArray[np.float64]]
Credit = Callable[[Rows, list[Hashable]], Sequence[Any]]


@core_algos.register_adv_est("memenvs_mt_grpo")
def mt_grpo_by_run(token_level_rewards: Any, response_mask: Any, index: Any, **rest: Any) -> Any:
    """MT-GRPO (`mt_grpo`: MT-PPO eq. 12, alpha 1) for rows that are whole episodes.

    What the last turn earns is the outcome; an episode that is over counts as 0 at turns others still play.
    """
    return by_run(token_level_rewards, response_mask, index, partial(_mt_grpo, ended="zero"))


@core_algos.register_adv_est("memenvs_mt_grpo_skip")
def mt_grpo_skip(token_level_rewards: Any, response_mask: Any, index: Any, **rest: Any) -> Any:
    """`memenvs_mt_grpo`, but an episode that is over is left out of the turns others still play."""
    return by_run(token_level_rewards, response_mask, index, partial(_mt_grpo, ended="skip"))


@core_algos.register_adv_est("memenvs_turns")
def turns_of_a_task(token_level_rewards: Any, response_mask: Any, index: Any, **rest: Any) -> Any:
    """What a turn was paid, normalised over all turns of its task (TAMTRL eq. 7); rows may be turns."""

    def credit(turns: Rows, groups: list[Hashable]) -> Sequence[Any]:
        names = [name for name, rewards in zip(groups, turns, strict=True) for _ in rewards]
        flat = grpo(np.concatenate(turns), names) if turns else np.zeros(0)
        return np.split(flat, np.cumsum([len(rewards) for rewards in turns])[:-1])

    return by_run(token_level_rewards, response_mask, index, credit)


@core_algos.register_adv_est("memenvs_as_paid")
def as_paid(token_level_rewards: Any, response_mask: Any, index: Any = None, **rest: Any) -> Any:
    """What a turn was paid, as it is: for credit that is final already."""
    return by_run(token_level_rewards, response_mask, index, lambda turns, groups: turns)


def _mt_grpo(turns: Rows, groups: list[Hashable], ended: str) -> Sequence[Any]:
    return mt_grpo(turns, [float(rewards[-1]) for rewards in turns], groups=groups, ended=ended)


def by_run(rewards: Any, mask: Any, index: Any, credit: Credit) -> tuple[Any, Any]:
    """Advantages (B, T) and, the same, returns: each token has what `credit` gives to its turn.

    Turn k of a row is the k-th run of ones in its mask. Rows without one, such as those verl pads with, are
    no part of any group.

    Args:
        rewards: (B, T).
        mask: (B, T), 1 where the policy wrote.
        index: (B,) the task of each row.
        credit: from the turn rewards of rows and their tasks to advantages, one for each turn.
    """
    ones = mask.cpu().numpy().astype(bool)
    starts = ones & ~np.pad(ones, ((0, 0), (1, 0)))[:, :-1]
    runs = np.where(ones, starts.cumsum(1) - 1, -1)
    live = np.flatnonzero(ones.any(1)).tolist()
    paid = rewards.detach().cpu().numpy().astype(np.float64)
    turns: Rows = [np.bincount(runs[i][ones[i]], paid[i][ones[i]]).astype(np.float64) for i in live]
    names: list[Hashable] = [0 if index is None else index[i] for i in live]
    advantages = np.zeros(ones.shape)
    for i, values in zip(live, credit(turns, names), strict=True):
        advantages[i][ones[i]] = np.asarray(values)[runs[i][ones[i]]]
    made = rewards.new_tensor(advantages)
    return made, made.clone()
