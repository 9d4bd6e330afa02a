"""Scores of a run by a property of its tasks: `memenvs evaluate by`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memenvs.core.arguments import closest_first, env_parameters
from memenvs.core.data import checked
from memenvs.evaluation.log import EvaluatedRun, read_run
from memenvs.evaluation.summary import markdown_table, metric_interval, show_number
from memenvs.tasks.taskset import Task, open_questions

_MOST_VALUES, _RANGES = 8, 4  # a number with more values than that is cut into ranges
_SCORES = ("success", "em", "f1")


@checked
def scores_by(field: str, run: str | Path, *, metrics: Sequence[str] | None = None) -> str:
    """A Markdown table of a run: a row for each value of a field of its tasks, with 95% intervals.

    Args:
        field: a field of the tasks' `meta`, such as hops or type; tokens, what was read in an episode; or
            depth, how far into the documents the evidence is, from 0 to 1 (the mean over its documents).
        run: a folder that `evaluate` wrote with `out`.
        metrics: names of metrics; None: success, em and f1.

    Raises:
        ValueError: the tasks have no such field or have changed, or no metric of a name is there.
        OSError: a file does not exist.
    """
    played = read_run(Path(run), Path(run).name)
    names = [name for name in _SCORES if name in played.means] if metrics is None else metrics
    for name in names:
        if name not in played.means:
            known = ", ".join(closest_first(name, played.means))
            raise ValueError(f"{played.name} has no metric {name!r}; its metrics: {known}")
    rows = []
    for label, tasks in _groups(_values(played, field)).items():
        cells = [label, f"{len(tasks):,}"]
        for name in names:
            means = [played.means[name][task] for task in tasks if task in played.means[name]]
            interval = metric_interval(name, means) if means else None
            cells.append(f"{show_number(interval.mean)} ({interval.span()})" if interval else "")
        rows.append(cells)
    return "\n".join(markdown_table([field, "tasks", *names], rows)) + "\n"


def _values(run: EvaluatedRun, field: str) -> dict[int, Any]:
    """The field of each task that has it, by the task's number."""
    if field == "tokens" and "prompt_tokens" in run.means:
        return dict(run.means["prompt_tokens"])
    env, given = run.setting["env"], run.setting["env_args"]
    arguments = {one.name: one.default for one in env_parameters(env) or ()} | given
    if "tasks" not in arguments:
        raise ValueError(f"tasks of {env} have no field {field!r}")
    questions = open_questions(arguments["tasks"])
    if questions.hash != run.setting["data"]["tasks"]:
        raise ValueError(f"{arguments['tasks']} has changed since {run.name} was played; play it again")
    tasks = {number: questions[number] for number in sorted(run.measured)}
    if field == "depth":
        return {number: _depth(task) for number, task in tasks.items() if task.evidence and task.documents}
    values = {number: task.meta[field] for number, task in tasks.items() if field in task.meta}
    if not values:
        fields = ", ".join(closest_first(field, {name for task in tasks.values() for name in task.meta}))
        raise ValueError(f"no task of {run.name} has {field!r}; choose tokens, depth or a field: {fields}")
    return values


def _depth(task: Task) -> float:
    places = [task.documents.index(document) for document in task.evidence]
    return float(np.mean(places)) / max(1, len(task.documents) - 1)


def _groups(values: Mapping[int, Any]) -> dict[str, list[int]]:
    """Tasks by their value, or by the range of a number with many values."""
    distinct = sorted(set(map(_label, values.values())))
    are_numbers = all(isinstance(value, (int, float)) for value in values.values())
    groups: dict[str, list[int]] = {}
    if not are_numbers or len(distinct) <= _MOST_VALUES:
        for label in distinct:
            groups[label] = [task for task, value in values.items() if _label(value) == label]
        return groups
    edges = np.unique(np.quantile([*values.values()], np.linspace(0, 1, _RANGES + 1)))
    for low, high in itertools.pairwise(edges):
        last = high == edges[-1]
        inside = [task for task, value in values.items() if low <= value < high or (last and value == high)]
        if inside:
            groups[f"{show_number(low)} to {show_number(high)}"] = inside
    return groups


def _label(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
