"""The credit that a trainer was asked for is checked before anything is played."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from memenvs.baselines.advantages import Estimator, Reward, group_advantages

OF_TOOLS = ("outcome", "merged", "turn")


def check_credit(credit: Mapping[str, Any], methods: Sequence[str] | None) -> dict[str, Any]:
    """The arguments of `group_advantages`, or a one-line `ValueError`.

    Args:
        credit: as `TurnAdvantages` got it.
        methods: names of the rollout's reward methods; None for tools.
    """
    known = list(inspect.signature(group_advantages).parameters)[2:]
    if unknown := sorted(set(credit) - set(known)):
        raise ValueError(f"credit has no {unknown[0]!r}; it may have {', '.join(known)}")
    rewards = OF_TOOLS if methods is None else get_args(Reward)
    for name, choices in (("reward", rewards), ("estimator", get_args(Estimator))):
        if name in credit and credit[name] not in choices:
            raise ValueError(f"credit[{name!r}] must be one of {', '.join(choices)}, got {credit[name]!r}")
    wanted = credit.get("reward")
    if wanted in ("tamtrl", "mempo") and wanted not in (methods or ()):
        raise ValueError(
            f"credit {wanted!r} wants its method; put a VectorRewardWrapper around the environments"
        )
    return dict(credit)
