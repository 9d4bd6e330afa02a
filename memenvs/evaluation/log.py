"""The folder of a run: its setting, a line for each episode as it ends, and the results."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from memenvs.core.data import Count, NonNegative
from memenvs.core.episode import Episode
from memenvs.core.episode_file import EPISODES, EpisodeWriter, read_lines
from memenvs.core.files import hold_folder, names_apart, read_json, write_json, write_text

if TYPE_CHECKING:
    from memenvs.evaluation.summary import Summary

SETTING, RESULTS, TABLE = "setting.json", "results.json", "results.md"
COST = "cost.json"
COSTS = dict[str, NonNegative | None]


class Pair(NamedTuple):
    """Which episode: the `sample`-th of a task, both from 0."""

    task: int
    sample: int


class RunLog:
    """The episodes of a run, kept in a folder where one is given.

    Finished episodes of an earlier run are kept; failed ones and an incomplete last line are dropped, to be
    played again. `episodes` holds their results without turns and replies, which may be long; `seconds` is
    what playing them took.

    Args:
        folder: made if it does not exist; None keeps nothing on disk.
        setting: what decides an episode, plain data; a folder has episodes of one setting.
        texts: also keep what was read, as for `EpisodeWriter`.

    Raises:
        ValueError: the folder has another setting or other files, its lines cannot be read, or another run is
            writing to it.
    """

    def __init__(self, folder: Path | None, setting: dict[str, Any], *, texts: bool = True) -> None:
        self.episodes: dict[Pair, Episode] = {}
        self.seconds = 0.0
        self._unused: Path | None = None  # a folder that was made here and has no episode yet
        self._writer: EpisodeWriter | None = None
        self._open = contextlib.ExitStack()
        self.folder, self._setting = folder, setting
        if folder is None:
            return
        other = (
            sorted(path.name for path in folder.iterdir() if path.name[0] != ".") if folder.is_dir() else []
        )
        if other and not (folder / SETTING).exists():
            raise ValueError(f"{folder} holds {other[0]!r} and no {SETTING}; choose another --out")
        self._unused = None if folder.exists() else folder
        with contextlib.ExitStack() as opened:
            opened.enter_context(hold_folder(folder))
            path = folder / EPISODES
            lines: dict[Pair, str] = {}
            for line, episode in read_lines(path) if path.exists() else ():
                if not episode.error:
                    lines[pair_of(episode)] = line
                    self.episodes[pair_of(episode)] = without_texts(episode)
            if lines:
                _check_setting(folder, setting)
            else:  # another setting replaces a mistaken one
                write_json(folder / SETTING, setting)
            write_text(path, "".join(lines.values()))
            if (folder / COST).exists():
                self.seconds = read_json(folder / COST, "delete it", COSTS).get("seconds") or 0.0
            self._writer = opened.enter_context(EpisodeWriter(path, texts=texts))
            self._open = opened.pop_all()

    def keep(self, episode: Episode) -> None:
        """Write an episode to the folder."""
        self.episodes[pair_of(episode)] = without_texts(episode)
        self._unused = None
        if self._writer:
            self._writer.write(episode)

    def write_results(self, task: str, summary: Summary) -> None:
        """Write what the run came to, where there is a folder; `task` says which tasks it is about."""
        if self.folder:
            results = {"setting": self._setting, "task": task, **summary.to_json()}
            write_json(self.folder / RESULTS, results)
            write_text(self.folder / TABLE, str(summary))
            write_json(self.folder / COST, dict(summary.cost))

    def close(self) -> None:
        """Close the file and release the folder; a new folder without an episode is removed."""
        self._open.close()
        if self._unused:
            shutil.rmtree(self._unused)


def _check_setting(folder: Path, setting: dict[str, Any]) -> None:
    before = read_json(folder / SETTING, "choose another --out")
    now = json.loads(json.dumps(setting))  # as a file would hold it
    for name in now | before:
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{folder} was begun with {name} = {json.dumps(before.get(name))}, not "
                f"{json.dumps(now.get(name))}; choose another --out, or give the setting it was begun with"
            )


def pair_of(episode: Episode) -> Pair:
    """The task and sample of an episode."""
    return Pair(-1 if episode.number is None else episode.number, episode.member)


def without_texts(episode: Episode) -> Episode:
    """An episode without its texts and tokens."""
    return replace(episode.without_texts(), turns=[], advantages=episode.advantages[:0])


class EvaluatedRun(NamedTuple):
    """A run as its folder holds it.

    Attributes:
        name: name in tables.
        folder: the folder.
        setting: setting of the evaluation, with the `samples` per task.
        tasks: the id of each task that was played, by its number.
        means: means by metric and task number, without failed episodes.
        finished: number of episodes that ended.
        failed: number of episodes that failed.
    """

    name: str
    folder: Path
    setting: dict[str, Any]
    tasks: dict[int, str]
    means: dict[str, dict[int, float]]
    finished: int
    failed: int

    @property
    def measured(self) -> set[int]:
        """The tasks with a finished episode."""
        return set().union(*self.means.values())


class RunFacts(msgspec.Struct):
    """What readers of a run's setting rely on."""

    env_args: dict[str, Any] = {}
    methods: list[tuple[str, dict[str, Any]] | str] | None = None


class _Setting(RunFacts, kw_only=True):
    env: str
    env_args: dict[str, Any]
    n_tasks: Annotated[int, Meta(ge=1, le=10**8)]
    policy: str
    data: dict[str, str] = {}


class _Results(msgspec.Struct):
    setting: _Setting
    samples: Count
    task: str


def read_run(folder: Path, name: str) -> EvaluatedRun:
    """A run from its folder, with the episodes that its results are about.

    An episode that failed and is being played again counts as failed.

    Raises:
        ValueError: the run has not ended, or a file holds something else.
        OSError: a file does not exist.
    """
    path, again = folder / RESULTS, "run the same command again: it plays only what has not ended"
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} has no {RESULTS}; give the --out folder of a finished `evaluate run`"
        )
    results = read_json(path, again, _Results)
    setting, samples = results["setting"], results["samples"]
    try:
        numbers = set(read_tasks(results["task"], setting["n_tasks"]))
    except ValueError as error:
        raise ValueError(f"{path}: {error}; {again}") from error
    kept = (without_texts(episode) for _, episode in read_lines(folder / EPISODES))
    by_pair = {pair_of(episode): episode for episode in kept}
    episodes = {
        pair: episode for pair, episode in by_pair.items() if pair.task in numbers and pair.sample < samples
    }
    finished = [episode for _, episode in sorted(episodes.items()) if not episode.error]
    return EvaluatedRun(
        name,
        folder,
        setting={**setting, "samples": samples},
        tasks={pair.task: episode.task for pair, episode in sorted(episodes.items()) if episode.task},
        means=task_means((pair_of(episode).task, episode.metrics) for episode in finished),
        finished=len(finished),
        failed=len(numbers) * samples - len(finished),
    )


def read_runs(folders: Sequence[str | Path]) -> list[EvaluatedRun]:
    """Runs by short names that tell them apart; errors are those of `read_run`."""
    paths = [Path(folder) for folder in folders]
    return [read_run(path, name) for path, name in zip(paths, names_apart(paths), strict=True)]


def check_alike(runs: Sequence[EvaluatedRun], names: Sequence[str], allow: Sequence[str]) -> list[str]:
    """A sentence on each setting in which a run differs from the first one.

    Args:
        runs: at least one run.
        names: names of the settings that must be equal.
        allow: names of settings that may differ: all of one, as `env_args`, or one value, as `env_args.k`.

    Raises:
        ValueError: another setting differs, or a number is another task in two runs.
    """
    first, allowed, refused = runs[0], list[str](), dict[str, str]()
    wanted = _flat(first.setting, names)
    for run in runs[1:]:
        setting = _flat(run.setting, names)
        for name in wanted | setting:
            value, before = setting.get(name, "nothing"), wanted.get(name, "nothing")
            line = f"{name} is {value} in {run.name} and {before} in {first.name}"
            if value != before and not {name, name.partition(".")[0]}.isdisjoint(allow):
                allowed.append(f"{line}.")
            elif value != before:
                refused.setdefault(name, line)
    if refused:
        raise ValueError(
            f"the runs differ in more than the policy: {'; '.join(refused.values())}; choose runs of one "
            f"setting, or allow it with --allow {' '.join(refused)}"
        )
    for run in runs[1:]:
        if renamed := [n for n, task in run.tasks.items() if first.tasks.get(n, task) != task]:
            raise ValueError(
                f"task {renamed[0]} is {run.tasks[renamed[0]]!r} in {run.name} and "
                f"{first.tasks[renamed[0]]!r} in {first.name}; choose runs of one task set"
            )
    return allowed


def _flat(setting: dict[str, Any], names: Sequence[str]) -> dict[str, str]:
    """Settings as JSON by name; values of an object by `name.key`.

    Task sets and prompts with a hash are compared by it, because a file has another path on another machine.
    """
    flat: dict[str, Any] = {}
    for name in names:
        value = setting.get(name)
        flat |= {f"{name}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {name: value}
    for name in ("tasks", "template"):
        if f"data.{name}" in flat:
            flat.pop(f"env_args.{name}", None)
    return {name: json.dumps(value, ensure_ascii=False, sort_keys=True) for name, value in flat.items()}


def task_means(played: Iterable[tuple[int, Mapping[str, float]]]) -> dict[str, dict[int, float]]:
    """The mean of every metric over each task's episodes, by metric and number of the task.

    Args:
        played: of each episode that did not fail the number of its task and its metrics, by task and sample.
    """
    values: dict[str, dict[int, list[float]]] = {}
    for task, metrics in played:
        for name, value in metrics.items():
            values.setdefault(name, {}).setdefault(task, []).append(value)
    return {
        name: {task: float(np.mean(of_task)) for task, of_task in by_task.items()}
        for name, by_task in values.items()
    }


def read_tasks(text: str, n_tasks: int) -> list[int]:
    """Numbers of tasks, each once, in the order given.

    Args:
        text: numbers and half-open ranges, separated by commas; a range without an end goes to the last task.
        n_tasks: number of tasks of the environment.

    Raises:
        ValueError: a part is neither, is empty, or goes beyond the last task.

    >>> read_tasks("7,0:3", 10)
    [7, 0, 1, 2]
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, colon, end = (piece.strip() for piece in part.partition(":"))
        try:
            start = int(first or "0" if colon else first)
            stop = int(end or n_tasks) if colon else start + 1
        except ValueError:
            start = stop = -1
        if not 0 <= start < stop <= n_tasks:
            raise ValueError(
                f"tasks must be numbers and ranges such as 0:100 in 0 to {n_tasks - 1}, got {part!r}"
            )
        numbers += range(start, stop)
    return list(dict.fromkeys(numbers))


def show_tasks(numbers: Iterable[int]) -> str:
    """Numbers of tasks in rising order, as `read_tasks` reads them.

    >>> show_tasks([7, 0, 1, 2])
    '0:3,7'
    """
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1]:
            ranges[-1][1] += 1
        else:
            ranges.append([number, number + 1])
    return ",".join(str(start) if stop == start + 1 else f"{start}:{stop}" for start, stop in ranges)
