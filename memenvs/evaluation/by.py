"""Scores of a run by a property of its tasks: `memenvs evaluate by`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memenvs.core.arguments import env_parameters
from memenvs.core.data import checked
from memenvs.core.errors import unknown_name
from memenvs.core.terminal import CommandResult
from memenvs.evaluation.log import EvaluatedRun, read_runs
from memenvs.evaluation.summary import markdown_table, metric_interval, show_number
from memenvs.tasks.taskset import open_questions

_MOST_VALUES, _RANGES = 8, 4  # a number with more values is cut into ranges


@checked
def scores_by(field: str, run: str | Path, /, *, metrics: Sequence[str] | None = None) -> CommandResult:
    """Show the scores of a run by a field of its tasks, as a table with 95% intervals.

    A number with many values is cut into ranges with about as many tasks in each.

    Examples:
      memenvs evaluate by hops runs/lexical
      memenvs evaluate by depth runs/lexical --metrics em format

    Args:
        field: a field of the tasks' `meta`, such as hops or type; tokens, what was read in an episode; or
            depth, how far into the documents the evidence is, from 0 to 1 (the mean over its documents).
        run: a folder that `evaluate run` wrote with --out.
        metrics: names of metrics; by default success, em and f1.

    Raises:
        ValueError: the tasks have no such field or have changed, or no metric of a name is there.
        OSError: a file does not exist.
    """
    (played,) = read_runs([run])
    names = [name for name in ("success", "em", "f1") if name in played.means] if metrics is None else metrics
    for name in names:
        if name not in played.means:
            raise ValueError(unknown_name(f"{played.name} has no metric", name, played.means))
    rows, data = list[list[str]](), list[dict[str, Any]]()
    for label, tasks in _labelled(_values(played, field)).items():
        measured = {
            name: [played.means[name][task] for task in tasks if task in played.means[name]] for name in names
        }
        scores = {name: metric_interval(name, means) for name, means in measured.items() if means}
        rows.append([label, f"{len(tasks):,}", *(str(scores.get(name, "")) for name in names)])
        data.append(
            {field: label, "tasks": len(tasks)} | {name: score._asdict() for name, score in scores.items()}
        )
    return CommandResult("\n".join(markdown_table([field, "tasks", *names], rows)) + "\n", lambda: data)


def _values(run: EvaluatedRun, field: str) -> dict[int, Any]:
    """The field of each task that has it, by the task's number."""
    if field == "tokens" and "prompt_tokens" in run.means:
        return dict(run.means["prompt_tokens"])
    parameters = env_parameters(run.setting["env"]) or ()
    arguments = {parameter.name: parameter.default for parameter in parameters} | run.setting["env_args"]
    tasks = {}
    if "tasks" in arguments:
        questions = open_questions(arguments["tasks"])
        if questions.hash != run.setting["data"]["tasks"]:
            raise ValueError(f"{arguments['tasks']} has changed since {run.name} was played; play it again")
        tasks = {number: questions[number] for number in sorted(run.measured)}
    if field == "depth":
        return {
            number: float(np.mean([task.documents.index(document) for document in task.evidence]))
            / max(1, len(task.documents) - 1)
            for number, task in tasks.items()
            if task.evidence and task.documents
        }
    values = {number: task.meta[field] for number, task in tasks.items() if field in task.meta}
    if not values:
        fields = ["tokens", "depth", *(name for task in tasks.values() for name in task.meta)]
        raise ValueError(unknown_name(f"no task of {run.name} has the field", field, fields))
    return values


def _labelled(values: dict[int, Any]) -> dict[str, list[int]]:
    """The tasks by their value as a text, in order; numbers by ranges that hold about as many tasks each."""
    numbers = all(isinstance(value, (int, float)) for value in values.values())
    if numbers and len({*values.values()}) > _MOST_VALUES:
        edges = np.unique(np.quantile([*values.values()], np.linspace(0, 1, _RANGES + 1)))
        places = {task: int(np.searchsorted(edges[1:-1], value, "right")) for task, value in values.items()}
        names = [f"{show_number(low)} to {show_number(high)}" for low, high in itertools.pairwise(edges)]
        pairs = [(names[place], task) for task, place in sorted(places.items(), key=lambda pair: pair[1])]
    else:
        texts = {
            task: ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            for task, value in values.items()
        }
        pairs = [(text, task) for task, text in sorted(texts.items(), key=lambda pair: pair[1])]
    labelled: dict[str, list[int]] = {}
    for label, task in pairs:
        labelled.setdefault(label, []).append(task)
    return labelled
