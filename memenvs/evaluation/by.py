"""Scores of a run by a property of its tasks: `memenvs evaluate by`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memenvs.core.arguments import closest_first, env_parameters
from memenvs.core.data import checked
from memenvs.evaluation.log import EvaluatedRun, read_run
from memenvs.evaluation.summary import markdown_table, metric_interval, show_number
from memenvs.tasks.taskset import Task, open_questions

_MOST_VALUES, _RANGES = 8, 4  # a number with more values is cut into ranges
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
    values = _values(played, field)
    numbers = all(isinstance(value, (int, float)) for value in values.values())
    labels = _ranges(values) if numbers and len({*values.values()}) > _MOST_VALUES else _texts(values)
    rows = []
    for label in dict.fromkeys(labels.values()):
        tasks = [task for task in labels if labels[task] == label]
        cells = [label, f"{len(tasks):,}"]
        for name in names:
            means = [played.means[name][task] for task in tasks if task in played.means[name]]
            interval = metric_interval(name, means) if means else None
            cells.append(str(interval) if interval else "")
        rows.append(cells)
    return "\n".join(markdown_table([field, "tasks", *names], rows)) + "\n"


def _values(run: EvaluatedRun, field: str) -> dict[int, Any]:
    """The field of each task that has it, by the task's number."""
    if field == "tokens" and "prompt_tokens" in run.means:
        return dict(run.means["prompt_tokens"])
    env, env_args = run.setting["env"], run.setting["env_args"]
    arguments = {parameter.name: parameter.default for parameter in env_parameters(env) or ()} | env_args
    tasks: dict[int, Task] = {}
    if "tasks" in arguments:
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


def _texts(values: dict[int, Any]) -> dict[int, str]:
    """The value of each task as a text, in the order of the texts."""
    texts = {
        task: ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
        for task, value in values.items()
    }
    return dict(sorted(texts.items(), key=lambda pair: pair[1]))


def _ranges(values: dict[int, float]) -> dict[int, str]:
    """The range of each task's number, in rising order; ranges hold about as many tasks each."""
    edges = np.unique(np.quantile([*values.values()], np.linspace(0, 1, _RANGES + 1)))
    places = {task: int(np.searchsorted(edges[1:-1], value, "right")) for task, value in values.items()}
    names = [f"{show_number(low)} to {show_number(high)}" for low, high in itertools.pairwise(edges)]
    return {task: names[k] for task, k in sorted(places.items(), key=lambda pair: pair[1])}
