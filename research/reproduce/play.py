"""Episodes of trained policies."""

from __future__ import annotations

from typing import Any

from memenvs.baselines.rollout import group_seeds
from memenvs.core.episode import Episode
from memenvs.models import HFPolicy
from memenvs.rollout.collect import collect


def play_fresh(env: str, policy: HFPolicy, episodes: int, reply: int, **options: Any) -> list[Episode]:
    """Episodes of a policy, with other random tasks and tokens than a run and its evaluations.

    Args:
        env: id of the environment.
        policy: the policy that plays.
        episodes: how many; always the same ones.
        reply: maximum tokens of a reply.
        options: other arguments of `memenvs.collect`.
    """
    return collect(env, policy, group_seeds(0, 0, 4, episodes), max_new_tokens=reply, **options)
