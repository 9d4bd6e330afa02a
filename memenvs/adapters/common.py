"""Parts that adapters share: an environment and a comparison from plain data, and what a trainer may see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym

import memenvs  # noqa: F401  # registers the environments
from memenvs.core.env import Info, check_text_observations, public_info
from memenvs.rollout.collect import maker
from memenvs.wrappers import RewardWrapper


def open_env(
    env: str,
    env_args: Mapping[str, Any] | None = None,
    methods: Sequence[Any] = (),
    scorer: Any = None,
    *,
    pictures: bool = False,
) -> gym.Env[Any, str]:
    """A text environment, with reward methods around it if there are any.

    Args:
        env: the environment's id.
        env_args: the environment's arguments.
        methods: reward methods, as `memenvs.wrappers.registry.make_methods` takes them.
        scorer: gives them log-probabilities, as `memenvs.wrappers.registry.make_scorer` takes it.
        pictures: whether observations may have a picture beside the text.

    Raises:
        ValueError: the observations are not texts, or the environment does not take an argument.
    """
    opened = maker(env, plain(env_args or {}))()
    if not pictures:
        check_text_observations(opened)
    return RewardWrapper(opened, plain(methods), plain(scorer)) if methods else opened


def read_draw(row: Mapping[str, Any]) -> tuple[int, int | None]:
    """The seed and the number of the task that a row of a trainer's data names by `seed`, `task` or both.

    Without a seed it is the task's number, so that a group shares it; without a task the seed draws one.

    Raises:
        ValueError: the row has neither.
    """
    task, seed = (None if row.get(name) is None else int(row[name]) for name in ("task", "seed"))
    if seed is None:
        seed = task
    if seed is None:
        raise ValueError(f"a row needs `task` or `seed`, got the columns {', '.join(row) or 'none'}")
    return seed, task


def turn_record(info: Info) -> dict[str, Any]:
    """The part of `public_info` that adapters pass on for a turn, as JSON, with None for NaN.

    Returns:
        `task`, `turn` (turns played), `context`, `rewards` (the components of this turn), `turn_rewards`
        (of all turns so far; the truth about each at the end), `metrics` (zeros until the end) and, under
        reward methods, `credits` by method: a list of `turn`, `value`, `span`,
        `reason` and `advantage` (a value that is not to be normalised again).
    """
    names = ("task", "turn", "context", "rewards", "turn_rewards", "metrics", "credits")
    public = public_info(info)
    record = {name: public[name] for name in names if name in public}
    if "credits" in record:
        fields = ("turn", "value", "span", "advantage", "reason")
        record["credits"] = {
            method: [{name: getattr(credit, name) for name in fields} for credit in credits]
            for method, credits in record["credits"].items()
        }
    return plain(record)


def component_sums(turns: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The sum of each component over the records of `turn_record`, without what is unknown."""
    names = turns[-1]["rewards"] if turns else ()
    return {name: math.fsum(turn["rewards"][name] or 0.0 for turn in turns) for name in names}


def plain(value: Any) -> Any:
    """Dicts and lists all the way down, whatever a configuration library wraps them in; None for NaN.

    >>> plain({"sizes": (1, 2), "value": float("nan")})
    {'sizes': [1, 2], 'value': None}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value
