"""Episodes of trained policies."""

from __future__ import annotations

from typing import Any

from memenvs.baselines.rollout import group_seeds
from memenvs.models import HFPolicy
from memenvs.rollout.engine import collect
from memenvs.rollout.records import Episode


def play_fresh(venv: Any, policy: HFPolicy, episodes: int, reply: int) -> list[Episode]:
    """Episodes of a policy, with other random tasks and tokens than a run and its evaluations.

    Args:
        venv: the environments, without autoreset.
        policy: the policy that plays.
        episodes: how many; always the same ones.
        reply: maximum tokens of a reply.
    """
    return list(collect(venv, policy, group_seeds(0, 0, 4, episodes), max_new_tokens=reply))
