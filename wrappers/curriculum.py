"""A curriculum over a task set: levels of difficulty, and when to move on to the next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from memenvs.core.data import Count, checked
from memenvs.core.state import State, check_keys, from_plain, to_plain
from memenvs.core.vector import Mask, Step, TextVectorEnv, one_each, read_mask, read_seeds
from memenvs.tasks.taskset import TaskSet

_STREAM = 1  # next to a seed: not the environment's own stream of that seed


@dataclass
class LevelProgress:
    """How far a curriculum has come.

    Attributes:
        level: from 0.
        scores: the last values of the metric at this level, at most a window of them.
    """

    level: int = 0
    scores: list[float] = field(default_factory=list)


@checked
@dataclass(eq=False)
class Curriculum:
    """The tasks of a set by levels; the next level begins when a metric's running mean is high enough.

    A level is a value of a number in the tasks' `meta`, as `hops`, or `tokens` rounded up to a power of two
    (`memenvs build mix` writes both for every task); the lowest comes first. It depends on the
    updates alone: processes that make the same ones are at the same level.

    Attributes:
        progress: the level and its last scores.
        levels: value of each level, and the numbers of its tasks.

    Args:
        tasks: the task set.
        by: name of a number in the tasks' `meta`.
        metric: name in `info["metrics"]` at the end of an episode.
        threshold: the mean of the last `window` values at which the next level begins.
        window: episodes.

    Raises:
        ValueError: a task without such a number, or a threshold or window out of range.
    """

    tasks: TaskSet
    by: str = "hops"
    metric: str = "success"
    threshold: float = 0.8
    window: Count = 64

    def __post_init__(self) -> None:
        grouped: dict[int, list[int]] = {}
        self._values: dict[str, int] = {}
        for number, task in enumerate(self.tasks):
            value = task.meta.get(self.by)
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(
                    f"task {task.id} of {self.tasks.name} has {self.by}={value!r}, which is not a level; "
                    "choose a whole number that all have, or give them hops and tokens by `memenvs build mix`"
                )
            level = 1 << max(0, value - 1).bit_length() if self.by == "tokens" else value
            grouped.setdefault(level, []).append(number)
            self._values[task.id] = level
        self.levels = sorted(grouped.items())
        self.progress = LevelProgress()

    @property
    def value(self) -> int:
        """The value of `by` at this level; of `tokens` the power of two."""
        return self.levels[self.progress.level][0]

    @property
    def mean(self) -> float:
        """The mean of the last scores at this level; 0 before there are any."""
        scores = self.progress.scores
        return sum(scores) / len(scores) if scores else 0.0

    @property
    def numbers(self) -> list[int]:
        """The numbers of this level's tasks."""
        return self.levels[self.progress.level][1]

    def draw(self, seed: int) -> int:
        """The number of a task of this level; equal seeds draw the same one."""
        return self.numbers[int(np.random.default_rng([seed, _STREAM]).integers(len(self.numbers)))]

    def check_metric(self, env: Any) -> None:
        """Raise a `ValueError` unless an unwrapped environment has the curriculum's metric."""
        if self.metric not in env.metric_names:
            raise ValueError(f"metric must be one of {', '.join(env.metric_names)}, got {self.metric!r}")

    def update(self, ended: Iterable[tuple[str, float]]) -> bool:
        """Count the metrics of ended episodes, by the ids of their tasks; return whether a new level begins.

        Tasks of other levels, such as those of episodes that began before the last move, do not count. A call
        moves up by one level at most.
        """
        here = [value for task, value in ended if self._values.get(task) == self.value]
        self.progress.scores = [*self.progress.scores, *map(float, here)][-self.window :]
        full = len(self.progress.scores) == self.window
        moves = full and self.mean >= self.threshold and self.progress.level + 1 < len(self.levels)
        if moves:
            self.progress = LevelProgress(self.progress.level + 1)
        return moves

    def get_state(self) -> State:
        """Level and scores, and the curriculum they belong to, as plain data."""
        return {**self._identity, "progress": to_plain(self.progress)}

    def set_state(self, state: State) -> None:
        """Resume from a state of a curriculum over the same tasks.

        Raises:
            ValueError: it is of another; nothing has changed then.
        """
        check_keys(state, *self._identity, "progress")
        for name, value in self._identity.items():
            if state[name] != value:
                raise ValueError(f"this state is of a curriculum with {name}={state[name]!r}, not {value!r}")
        self.progress = from_plain(state["progress"], LevelProgress, "the state's progress")

    @property
    def _identity(self) -> State:
        names = {"by": self.by, "metric": self.metric, "threshold": self.threshold, "window": self.window}
        return {"tasks": self.tasks.hash, **names}


class CurriculumWrapper(VectorWrapper[Any, Any, Any, Any, Any]):
    """Sample the tasks of text environments from a curriculum's level.

    A reset that names no task samples one with its seed, so that environments of equal seeds (a group) play
    one task. Ended episodes move the curriculum at the next reset, never between episodes that begin
    together. A `VectorRewardWrapper` goes around it.

    Args:
        env: a `TextVectorEnv` with `autoreset_mode="Disabled"`, over the curriculum's task set.
        curriculum: may be shared.

    Raises:
        ValueError: another environment, autoreset mode or task set, or no such metric.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], curriculum: Curriculum) -> None:
        inner = env.unwrapped
        if not isinstance(inner, TextVectorEnv) or inner.autoreset_mode is not AutoresetMode.DISABLED:
            raise ValueError(
                f"a curriculum chooses tasks at reset: give a TextVectorEnv with autoreset_mode='Disabled', "
                f"got {inner}"
            )
        first: Any = inner.envs[0].unwrapped
        if getattr(getattr(first, "tasks", None), "hash", None) != curriculum.tasks.hash:
            raise ValueError(f"the environments do not play {curriculum.tasks.name}, the curriculum's tasks")
        curriculum.check_metric(first)
        super().__init__(env)
        self.curriculum, self._vector = curriculum, inner
        self._ended: list[tuple[str, float]] = []
        self._seeds = np.random.default_rng()

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Start episodes; see `TextVectorEnv.reset`. An unseeded one draws its seed from the last seeded."""
        options = dict(options or {})
        mask = read_mask("reset_mask", options.get("reset_mask"), self.num_envs)
        seeds = read_seeds(seed, self.num_envs)
        tasks = one_each("task", options.pop("task", None), self.num_envs)
        self.curriculum.update(self._ended)
        self._ended = []
        if given := [value for value in seeds if value is not None]:
            self._seeds = np.random.default_rng(given)
        for i in np.flatnonzero(mask).tolist():
            if tasks[i] is None:
                seeds[i] = int(self._seeds.integers(2**63)) if seeds[i] is None else seeds[i]
                tasks[i] = self.curriculum.draw(int(seeds[i] or 0))
        batch: tuple[tuple[Any, ...], dict[str, Any]]
        batch = self.env.reset(seed=seeds, options={**options, "task": tasks})  # type: ignore[arg-type]
        return batch

    def step(self, actions: Sequence[str], mask: Mask | None = None) -> Step:
        """Play one reply in each environment; see `TextVectorEnv.step`."""
        stepped: Step = self.env.step(actions, *(() if mask is None else (mask,)))
        _, _, terminated, truncated, _ = stepped
        for i in np.flatnonzero(terminated | truncated).tolist():
            info = self._vector.infos_list[i]
            if not info.get("error"):
                self._ended.append((info["task"], info["metrics"][self.curriculum.metric]))
        return stepped
