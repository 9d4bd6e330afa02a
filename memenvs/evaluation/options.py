"""Reward methods around the environment that an evaluation plays, and their scorer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from memenvs.core.env import text_env_of
from memenvs.wrappers import RewardWrapper
from memenvs.wrappers.registry import MethodSpec, ScorerSpec, make_scorer, plain_method
from memenvs.wrappers.scorers import HFScorer, Scorer


def check_methods(
    env: gym.Env[Any, Any], policy: Any, methods: Sequence[MethodSpec], scorer: ScorerSpec
) -> None:
    """Refuse reward methods that do not fit, before the policy's model loads.

    Args:
        env: the environment that they will wrap; it is reset.
        policy: as for `choose_policy`.
        methods: as for `make_methods`, or none.
        scorer: as for `make_scorer`, or `"policy"`.

    Raises:
        ValueError: the environment lacks what a method needs, or nothing gives a method its
            log-probabilities; there is no such scorer, or it has no methods to score for.
    """
    if not methods:
        if scorer is not None:
            raise ValueError(f"scorer {scorer} is for reward methods; give --methods, or leave it out")
        return
    text_env_of(env)
    wrapped = RewardWrapper(env, methods, "lexical")  # any scorer: the right one is checked below
    wrapped.reset(seed=0)
    is_model = policy.startswith("hf:") if isinstance(policy, str) else hasattr(policy, "model")
    if scorer == "policy" and not is_model:
        raise ValueError(
            "scorer policy is the model that plays, of --policy hf:MODEL; give lexical or hf:MODEL"
        )
    asking = [method for method in wrapped.methods if method.asks]
    if asking and scorer is None and not is_model:
        name, _ = plain_method(asking[0])
        raise ValueError(f"{name} needs log-probabilities; add --scorer lexical or --scorer hf:MODEL")
    if scorer != "policy":
        make_scorer(scorer)


def choose_scorer(scorer: ScorerSpec, model: Any) -> Scorer | None:
    """The scorer of checked methods.

    Args:
        scorer: as for `make_scorer`, or `"policy"`; None is the policy if that is a model in this process.
        model: that model, an `HFPolicy`, which reads prompts in its chat template; or None.
    """
    if scorer == "policy" or (scorer is None and hasattr(model, "model")):
        return make_scorer(HFScorer(model.model, model.tokenizer), model.template)
    return make_scorer(scorer)
