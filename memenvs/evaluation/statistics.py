"""Means with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from tqdm import tqdm

from memenvs.core.env import Info
from memenvs.rollout.scripted import Policy

_NORMAL = 1.959964  # deviations on either side of the mean that hold 95% of a normal law
_DRAWN = 4_000_000  # values of resamples that are held at once; bounds memory where tasks are many


class Interval(NamedTuple):
    """A mean and its 95% interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def play_episode(
    env: gym.Env[Any, Any],
    policy: Policy,
    *,
    task: int | None = None,
    seed: int | None = None,
    watch: Callable[[], None] = lambda: None,
) -> Info:
    """Play one episode and return its last info.

    Args:
        env: a text environment, wrapped or not.
        policy: replies.
        task: number of the task; drawn if None.
        seed: of the reset.
        watch: called after the reset and after every step.
    """
    observation, info = env.reset(seed=seed, options=None if task is None else {"task": task})
    watch()
    over = False
    while not over:
        observation, _, terminated, truncated, info = env.step(policy(observation, info))
        over = terminated or truncated
        watch()
    return info


def play_tasks(
    env: gym.Env[Any, Any], policy: Policy, tasks: Iterable[int], *, seed: int = 0
) -> dict[str, list[float]]:
    """Play the numbered tasks once each; the metrics of every episode, and its `return`.

    Each task has a seed of its own, drawn from `seed` and its number.
    """
    found: dict[str, list[float]] = {}
    for task in tqdm(list(tasks), desc="episodes", delay=1.0, leave=False, disable=None):
        own = int(np.random.SeedSequence([seed, task]).generate_state(1)[0])
        info = play_episode(env, policy, task=task, seed=own)
        for name, value in {"return": sum(info["turn_rewards"]), **info["metrics"]}.items():
            found.setdefault(name, []).append(value)
    return found


def bootstrap(values: Sequence[float], *, resamples: int = 2000, seed: int = 0) -> Interval:
    """Mean of `values` and its 95% percentile-bootstrap interval.

    Raises:
        ValueError: no values.
    """
    if not len(values):
        raise ValueError("no values to average; play at least one task")
    array = np.asarray(values, np.float64)
    rng, rows = np.random.default_rng(seed), max(1, _DRAWN // len(array))
    sizes = [min(rows, resamples - start) for start in range(0, resamples, rows)]
    means = np.concatenate([rng.choice(array, (size, len(array))).mean(axis=1) for size in sizes])
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(array.mean()), float(low), float(high))


def wilson(values: Sequence[float]) -> Interval:
    """Mean of `values`, each 0 or 1, and Wilson's 95% score interval: all zeros do not make it a point.

    Of n zeros it reaches up to 3.84 / (n + 3.84): 0.243 of 12.

    Raises:
        ValueError: no values.
    """
    if not len(values):
        raise ValueError("no values to average; play at least one task")
    n, mean, square = len(values), float(np.mean(values)), _NORMAL**2 / len(values)
    centre = (mean + square / 2) / (1 + square)
    reach = _NORMAL * np.sqrt(mean * (1 - mean) / n + square / (4 * n)) / (1 + square)
    return Interval(mean, max(0.0, float(centre - reach)), min(1.0, float(centre + reach)))


def share_interval(values: Sequence[float], *, seed: int = 0) -> Interval:
    """Mean of shares (0 to 1) and its 95% interval: `wilson` where each is 0 or 1, else `bootstrap`."""
    return wilson(values) if {0.0, 1.0}.issuperset(values) else bootstrap(values, seed=seed)
