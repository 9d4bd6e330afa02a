"""Options that `play` and `evaluate run` share: models, and reward methods around the environment."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, get_args

import gymnasium as gym

from memenvs.cli import NAMED, Parser
from memenvs.core.env import TextEnv
from memenvs.evaluation.policies import ModelOptions
from memenvs.models.loading import Dtype
from memenvs.wrappers import RewardWrapper
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.registry import MethodSpec, ScorerSpec, make_scorer, plain_method
from memenvs.wrappers.scorers import HFScorer, Scorer


def add_models(parser: Parser) -> None:
    """Add the options that `model_options` reads."""
    add = parser.add_argument_group("models").add_argument
    add("--temperature", type=float, help="0 always takes the likeliest token (default 1.0)")
    add("--top-p", type=float, help="sample from the likeliest tokens that together have this probability")
    add("--top-k", type=int, help="sample from this many of the likeliest tokens")
    add("--min-p", type=float, help="sample from tokens at least this share as likely as the likeliest one")
    add("--max-new-tokens", type=int, help="tokens of a reply (default 1024)")
    add("--stop", nargs="+", metavar="TEXT", help="end a reply after this text")
    add("--chat-args", **NAMED, help="arguments of the chat template: enable_thinking=false")
    add("--dtype", choices=get_args(Dtype), help="hf: auto is the checkpoint's where that is fast (default)")
    add("--model", help="openai: the model's name there (default: the one it serves)")
    add("--conversation", action="store_true", help="openai: send a growing episode as messages")
    add("--body", **NAMED, help="openai: more fields of a request, as top_p=0.9, or one JSON object")
    add("--timeout", type=float, help="openai: seconds to wait for an answer (default 600)")
    add("--tries", type=int, help="openai: times to send a request before its episode fails (default 6)")
    parser.set_defaults(**asdict(ModelOptions()))


def model_options(args: argparse.Namespace) -> ModelOptions:
    """The options of `add_models`."""
    return ModelOptions(**{name: getattr(args, name) for name in asdict(ModelOptions())})


def add_methods(parser: Parser) -> None:
    """Add `--methods` and `--scorer`."""
    add = parser.add_argument_group("reward methods").add_argument
    add(
        "--methods",
        nargs="+",
        default=[],
        metavar="NAME",
        help="reward methods around the environment: TAMTRL, InfoMem beta=0.1, package.module:Class for your "
        "own, or JSON as for the learners (`python -m memenvs list` names them)",
    )
    add(
        "--scorer",
        help="gives them log-probabilities: lexical, hf:MODEL, vllm:MODEL, or JSON with settings; policy is "
        "the model that plays (default with hf:MODEL)",
    )


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
    if not isinstance(inner := env.unwrapped, TextEnv):
        raise ValueError(
            f"methods are for environments of texts, not for {type(inner).__name__}; leave them out"
        )
    wrapped = RewardWrapper(env, methods)
    wrapped.reset(seed=0)
    is_model = policy.startswith("hf:") if isinstance(policy, str) else hasattr(policy, "model")
    if scorer == "policy" and not is_model:
        raise ValueError(
            "scorer policy is the model that plays, of --policy hf:MODEL; give lexical or hf:MODEL"
        )
    asking = [one for one in wrapped.methods if type(one).requests is not RewardMethod.requests]
    if asking and scorer is None and not is_model:
        name, _ = plain_method(asking[0])
        raise ValueError(f"{name} asks for log-probabilities; give --scorer lexical or hf:MODEL")
    if scorer != "policy":
        make_scorer(scorer)


def choose_scorer(scorer: ScorerSpec, encoder: Any) -> tuple[Scorer | None, str | None]:
    """The scorer of checked methods, and the template of its prompts.

    Args:
        scorer: as for `make_scorer`, or `"policy"`; None is the policy if that is a model in this process.
        encoder: that model, an `HFPolicy`, or None.
    """
    if scorer == "policy" or (scorer is None and hasattr(encoder, "model")):
        return HFScorer(encoder.model, encoder.tokenizer), encoder.template
    return make_scorer(scorer), None
