"""Parts that adapters share: an environment and a comparison from plain data, and what a trainer may see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium as gym

import memenvs  # noqa: F401  # registers the environments
from memenvs.core.arguments import check_arguments, make_env, parameters_of
from memenvs.core.env import Info, check_text_observations, public_info, task_options
from memenvs.wrappers import RewardMethod, RewardWrapper
from memenvs.wrappers.comparison import COMPARISONS, Comparison, ComparisonSettings

TextEnvironment = gym.Env[str, str]


def open_with_pictures(
    env: str, env_args: Mapping[str, Any] | None, methods: Sequence[Any], scorer: Any
) -> gym.Env[Any, str]:
    """As `open_env`; its observations may have a picture beside the text.

    Raises:
        ValueError: it does not take an argument.
    """
    made = make_env(env, plain(env_args or {}))
    return RewardWrapper(made, plain(methods), plain(scorer)) if methods else made


def open_env(
    env: str,
    env_args: Mapping[str, Any] | None = None,
    methods: Sequence[Any] = (),
    scorer: Any = None,
) -> TextEnvironment:
    """A text environment, with reward methods around it if there are any.

    Args:
        env: its id.
        env_args: its arguments.
        methods: see `memenvs.wrappers.registry.make_methods`.
        scorer: see `memenvs.wrappers.registry.make_scorer`.

    Raises:
        ValueError: its observations are not texts, or it does not take an argument.
    """
    made = open_with_pictures(env, env_args, methods, scorer)
    check_text_observations(made)
    return made


class Draw(NamedTuple):
    """What a group plays, by a row of a trainer's data.

    Attributes:
        seed: of the reset; the task's number where the row has no seed, so that a group shares it.
        task: number of the task; None: the seed draws it.
    """

    seed: int
    task: int | None

    @property
    def options(self) -> dict[str, Any]:
        """The options of the reset."""
        return task_options(self.task)


def read_draw(row: Mapping[str, Any]) -> Draw:
    """What a row says that its group plays: `task` (a number), `seed`, or both.

    Raises:
        ValueError: it has neither.
    """
    task, seed = (None if (n := row.get(name)) is None else int(n) for name in ("task", "seed"))
    if task is None and seed is None:
        raise ValueError(f"a row needs `task` or `seed`, got the columns {', '.join(row) or 'none'}")
    return Draw(task if seed is None else seed, task)  # type: ignore[arg-type]  # one of them is a number


def read_credit(
    credit: Mapping[str, Any], methods: Sequence[RewardMethod]
) -> tuple[Comparison, ComparisonSettings]:
    """A comparison and its settings, for `memenvs.baselines.advantages.group_advantages`.

    Args:
        credit: plain data: `reward` (`"outcome"` by default) names a comparison or one of the methods; the
            rest are fields of `ComparisonSettings`.
        methods: the reward methods of the rollouts.

    Raises:
        ValueError: there is no such comparison or setting, or the comparison does not use a setting.
    """
    settings = dict(credit)
    reward = settings.pop("reward", "outcome")
    known = {**COMPARISONS, **{method.name: method for method in methods}}
    if reward not in known:
        raise ValueError(
            f"credit['reward'] must be one of {', '.join(COMPARISONS)}, or one of the "
            f"reward methods, got {reward!r}"
        )
    check_arguments("credit", settings, parameters_of(ComparisonSettings))
    how = ComparisonSettings(**settings)
    how.check(known[reward], reward)
    return known[reward], how


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
    shown = {name: public[name] for name in names if name in public}
    if "credits" in shown:
        fields = ("turn", "value", "span", "advantage", "reason")
        shown["credits"] = {
            method: [{name: getattr(credit, name) for name in fields} for credit in credits]
            for method, credits in shown["credits"].items()
        }
    return plain(shown)


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
