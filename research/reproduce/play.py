"""Episodes of the policies that the runs have made."""

from __future__ import annotations

from typing import Any

from memenvs.baselines.rollout import group_seeds
from memenvs.models import HFPolicy
from memenvs.rollout.engine import collect
from memenvs.rollout.records import Episode


def play_fresh(venv: Any, policy: HFPolicy, episodes: int, reply: int) -> list[Episode]:
    """Episodes of a policy, on other draws of tasks and tokens than those of a run and its evaluations.

    Args:
        venv: of the environment, without autoreset.
        policy: that plays.
        episodes: so many; always the same.
        reply: tokens that a reply may have.
    """
    return list(collect(venv, policy, group_seeds(0, 0, 4, episodes), max_new_tokens=reply))
