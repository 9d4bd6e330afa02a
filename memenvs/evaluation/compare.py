"""Comparison of evaluated policies, task by task: `compare`, and `memenvs evaluate compare`.

`memenvs evaluate compare RUN RUN`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memenvs.core.data import checked
from memenvs.core.errors import counted, one_line, unknown_name
from memenvs.core.files import resolved
from memenvs.credit import ATOL, RTOL, Array
from memenvs.evaluation.log import EvaluatedRun, check_alike, read_runs
from memenvs.evaluation.plots import COLOURS, Pictures, new_figure, plain_axis, write_page
from memenvs.evaluation.summary import (
    COUNTS,
    NORMAL,
    Interval,
    TableFormat,
    bootstrap,
    show_number,
    table_text,
)
from memenvs.evaluation.turns import TurnRow, draw_turns, turn_rows, turn_table, turns_of_runs
from memenvs.rollout.names import policy_label

MATCHED = ("env", "env_args", "n_tasks", "data", "methods", "scorer", "seed", "memenvs", "samples")
"""What runs must share: the setting of the evaluation without the policy, and the samples of a task."""

RESAMPLES = 10_000


class MetricDifference(NamedTuple):
    """How far a run is from the baseline in one metric.

    Attributes:
        metric: its name.
        run: name of the run.
        baseline: the baseline's mean over tasks of the mean over a task's episodes.
        mean: the run's, over the same tasks.
        difference: mean over tasks of the run's minus the baseline's, and its 95% interval.
        wins: tasks where the run's mean is higher, whether or not higher is better.
        ties: tasks where they are equal.
        losses: tasks where it is lower.
    """

    metric: str
    run: str
    baseline: float
    mean: float
    difference: Interval
    wins: int
    ties: int
    losses: int


@dataclass(frozen=True)
class PairedComparison:
    """Runs compared with a baseline, paired by task.

    Attributes:
        runs: the baseline first.
        differences: differences by metric, and for each metric by run.
        tasks: number of tasks that every run finished.
        caption: what is compared, how, and which differences besides the policy were allowed, in sentences.
    """

    runs: tuple[EvaluatedRun, ...]
    differences: tuple[MetricDifference, ...]
    tasks: int
    caption: str

    @cached_property
    def turns(self) -> tuple[TurnRow, ...]:
        """What each turn earned and did with the evidence, for each run; read from their files when asked."""
        return tuple(turn_rows(turns_of_runs(self.runs)))

    def __str__(self) -> str:
        """A sentence for each run, the caption, a Markdown table of the metrics, the runs and the turns."""
        metrics = [row.metric for row in self.differences]
        first = "success" if "success" in metrics else metrics[0]
        lines = [self._headline(row) for row in self.differences if row.metric == first]
        page = "\n".join([*map(one_line, lines), "", one_line(self.caption), "", self._table([], "markdown")])
        folders = {run.name: run.folder for run in self.runs}
        return page + ("\n" + "\n".join(turn_table(self.turns, folders)) + "\n" if self.turns else "")

    def _headline(self, row: MetricDifference) -> str:
        """A sentence on a run's difference in a metric, with the tasks on which the run is worse."""
        base, after = (
            next(run for run in self.runs if run.name == name).means[row.metric]
            for name in (self.runs[0].name, row.run)
        )
        lower = [str(task) for task in sorted({*base} & {*after}) if after[task] < base[task] - ATOL]
        tasks = f" (tasks {', '.join(lower[:10])}{', …' if len(lower) > 10 else ''})" if lower else ""
        change = f"a difference of {row.difference.text('+')}"
        return (
            f"{row.run}: {row.metric} {show_number(row.mean)} against {show_number(row.baseline)} of "
            f"{self.runs[0].name}, {change}; higher on {counted(row.wins, 'task')}, equal on {row.ties:,}, "
            f"lower on {row.losses:,}{tasks}."
        )

    def latex(self) -> str:
        """A `tabular` with the rules of booktabs, with its caption and the runs below."""
        return self._table([self.caption, ""], "latex")

    def _table(self, notes: list[str], form: TableFormat) -> str:
        """The table with notes and a line on each run below it."""
        rows = list[list[str]]()
        for label, of_metric in self._merged().items():
            rows.append([label, self.runs[0].name, show_number(of_metric[0].baseline), "", "", ""])
            for row in of_metric:
                counts = f"{row.wins:,}/{row.ties:,}/{row.losses:,}"
                change = [show_number(row.difference.mean, "+"), row.difference.span()]
                rows.append(["", row.run, show_number(row.mean), *change, counts])
        for run in self.runs:
            model = f" ({run.setting['model']})" if run.setting.get("model") else ""
            counts = f"{counted(run.finished, 'episode')} finished, {run.failed:,} failed"
            notes.append(f"- {run.name}: policy {policy_label(run.setting['policy'])}{model}; {counts}")
        columns = ["metric", "run", "mean", "difference", "95% interval", "win/tie/loss"]
        return table_text(columns, rows, notes, form)

    def _merged(self) -> dict[str, list[MetricDifference]]:
        """The rows of each metric, or of several in which all runs have the same numbers."""
        names: dict[tuple[object, ...], list[str]] = {}
        rows: dict[str, list[MetricDifference]] = {}
        for row in self.differences:
            rows.setdefault(row.metric, []).append(row)
        for metric, of_metric in rows.items():
            names.setdefault(tuple(row[1:] for row in of_metric), []).append(metric)
        return {", ".join(equal): rows[equal[0]] for equal in names.values()}

    def draw(self) -> Any:
        """A forest plot: a panel for each metric, with a line at zero and the interval of each run as a bar.

        The panels of shares have one scale.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ImportError: matplotlib is not installed.
        """
        merged, others = self._merged(), len(self.runs) - 1
        figure = new_figure(7.0, len(merged) * (others * 0.21 + 0.55) + 0.5)  # inches: a row, and the rest
        axes = figure.subplots(len(merged), squeeze=False)[:, 0]
        shares = [
            axis
            for axis, rows in zip(axes, merged.values(), strict=True)
            if rows[0].metric not in COUNTS
            and all(max(abs(row.baseline), abs(row.mean)) <= 1 for row in rows)
        ]
        for axis in shares[1:]:
            axis.sharex(shares[0])
        for axis, (label, rows) in zip(axes, merged.items(), strict=True):
            axis.axvline(0, color="0.4", linewidth=0.8, zorder=0)
            plain_axis(axis, "x")
            axis.set_title(label, loc="left", fontsize=9)
            axis.set_yticks(range(others), [run.name for run in self.runs[1:]], fontsize=9, parse_math=False)
            axis.tick_params(axis="y", length=0)
            axis.set_ylim(others - 0.5, -0.5)
            axis.margins(x=0.08)
            axis.spines["left"].set_visible(False)
            beside = {"transform": axis.get_yaxis_transform(), "va": "center", "fontsize": 8}
            for y, row in enumerate(rows):
                mean, low, high = row.difference
                axis.plot([low, high], [y, y], color=COLOURS[0], linewidth=1.6, solid_capstyle="butt")
                axis.plot([mean], [y], "o", color=COLOURS[0], markersize=4.5)
                axis.text(1.02, y, row.difference.text("+"), **beside)
        title = f"Differences from {self.runs[0].name}, 95% intervals, {counted(self.tasks, 'task')}"
        figure.suptitle(title, fontsize=10, parse_math=False)
        return figure

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "baseline": self.runs[0].name,
            "caption": self.caption,
            "tasks": self.tasks,
            "runs": {
                run.name: {"finished": run.finished, "failed": run.failed, "setting": run.setting}
                for run in self.runs
            },
            "differences": [
                {**row._asdict(), "difference": row.difference._asdict()} for row in self.differences
            ],
            "turns": [{**row._asdict(), "credit": row.credit._asdict()} for row in self.turns],
        }

    def write(self, folder: str | Path) -> list[Path]:
        """Write `comparison.md`, `comparison.json`, `forest.png` and `.svg`, and `turns.png` and `.svg`.

        The last two only where episodes have several turns; see `write_page`.

        Raises:
            OSError: a file cannot be written; with its path.
        """
        pictures: Pictures = {"forest": ("Forest plot of the differences", self.draw)}
        if self.turns:
            pictures["turns"] = ("Credit by turn", partial(draw_turns, self.turns))
        return write_page(folder, "comparison", str(self), self.to_json(), pictures)


@checked
@dataclass(frozen=True)
class CompareOptions:
    """What is compared."""

    metrics: Sequence[str] | None = None
    """Names of metrics; by default those that all runs have, and of a suite's parts their score."""
    common: bool = False
    """Compare the tasks that every run finished and leave out the others."""
    allow: Sequence[str] = ()
    """What may differ besides the policy: env, env_args, n_tasks, data, methods, scorer, seed, memenvs,
    samples, or one value, as env_args.chunk_size."""


@checked
def compare(runs: Sequence[str | Path], **options: Any) -> PairedComparison:
    """Compare runs of `evaluate` with the first one, paired by task.

    A task's value is the mean over its finished episodes, as in `summarise`, so a run's mean is that of its
    summary. The intervals are those of `paired_interval`.

    Args:
        runs: two or more folders that `evaluate` wrote with `out`, the baseline first.
        **options: fields of `CompareOptions`: `metrics`, `common`, `allow`.

    Raises:
        ValueError: a run has not ended, runs differ in more than their policy or finished different tasks, or
            an argument does not fit.
        OSError: a folder or a file in it does not exist.
    """
    how = CompareOptions(**options)
    folders = [Path(run) for run in runs]
    if len(set(map(resolved, folders))) < max(2, len(folders)):
        listed = ", ".join(map(str, runs)) or "none"
        raise ValueError(f"a comparison needs two or more different runs, got {listed}")
    compared = read_runs(folders)
    base, *others = compared
    allowed = check_alike(compared, MATCHED, how.allow)
    if failures := [run.name for run in compared if not run.finished]:
        raise ValueError(f"no episode of {failures[0]} finished; play it again")
    shared = [name for name in base.means if all(name in run.means for run in others)]
    for name in how.metrics or ():
        if name not in shared:
            raise ValueError(unknown_name("no metric that every run has", name, shared))
    rows = []
    for name in dict.fromkeys(shared if how.metrics is None else how.metrics):
        tasks = _shared_tasks(compared, name, how.common)
        before = np.array([base.means[name][task] for task in tasks])
        for run in others:
            after = np.array([run.means[name][task] for task in tasks])
            rows.append(paired_difference(name, run.name, before, after))
    finished = [run.measured for run in compared]
    tasks_in_all = len(set.intersection(*finished))
    left_out = len(set.union(*finished)) - tasks_in_all
    arguments = ", ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in base.setting["env_args"].items()
    )
    samples = "/".join(dict.fromkeys(str(run.setting["samples"]) for run in compared))
    without = f" ({left_out:,} left out that not every run finished)" if left_out else ""
    caption = (
        f"Differences from {base.name} on {base.setting['env']}{f' ({arguments})' if arguments else ''}, "
        f"paired by task: average@{samples} over {counted(tasks_in_all, 'task')}{without}. "
        "95% intervals over tasks. Win, tie, loss: tasks where the mean of a metric is higher, equal, lower."
    )
    return PairedComparison(tuple(compared), tuple(rows), tasks_in_all, " ".join([caption, *allowed]))


def paired_difference(metric: str, run: str, before: Array, after: Array) -> MetricDifference:
    """How far a run is from the baseline in a metric.

    Args:
        metric: its name.
        run: name of the run.
        before: (n,) the baseline's mean of each task.
        after: (n,) the run's.
    """
    differs = ~np.isclose(after, before, RTOL, ATOL)  # samples summed in another order
    wins, losses = int(((after > before) & differs).sum()), int(((after < before) & differs).sum())
    interval = paired_interval(before, after, share=metric not in COUNTS)
    ties = len(before) - wins - losses
    return MetricDifference(
        metric, run, float(before.mean()), float(after.mean()), interval, wins, ties, losses
    )


def paired_interval(before: Array, after: Array, *, share: bool = False) -> Interval:
    """Mean of the differences of n tasks, and its 95% interval.

    Differences of tasks are resampled (paired bootstrap; Koehn, EMNLP 2004). The interval is the percentile
    interval (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13).

    Where every value is a share of 0 or 1 and all differences are the same d, every resample gives d too,
    whatever n is. The interval is then Tango's score interval of paired shares (Statistics in Medicine 17,
    1998), whose equation has the solution

        d - h (1 + |d|) to d + h (1 + |d|), clipped to -1 and 1,   h = z^2 / (n + z^2),  z = 1.96

    Args:
        before: (n,) of the baseline.
        after: (n,) of the run.
        share: whether the metric is a share, not one of `memenvs.evaluation.summary.COUNTS`.
    """
    differences = after - before
    interval = bootstrap(differences.tolist(), resamples=RESAMPLES)
    if not share or len(set(differences)) > 1 or not {0.0, 1.0}.issuperset([*before, *after]):
        return interval
    square, mean = NORMAL**2, interval.mean
    reach = square / (len(differences) + square) * (1 + abs(mean))
    return Interval(mean, max(-1.0, mean - reach), min(1.0, mean + reach))


def _shared_tasks(runs: Sequence[EvaluatedRun], metric: str, common: bool) -> list[int]:
    """The tasks that have the metric in every run; unless `common`, no run may lack one that another has."""
    played = [set(run.means[metric]) for run in runs]
    shared = set.intersection(*played)
    for run, tasks in zip(runs, played, strict=True):
        lacking = sorted(set.union(*played) - tasks)
        if lacking and not (common and shared):
            raise ValueError(
                f"{run.name} lacks {metric} of {len(lacking):,} tasks that another run has, such as task "
                f"{lacking[0]}; evaluate all runs on the same tasks, or compare the shared ones by --common"
            )
    return sorted(shared)
