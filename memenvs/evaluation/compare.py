"""Comparison of evaluated policies, task by task: `compare`, and `python -m memenvs evaluate compare`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from memenvs.cli import Parser, closest_first
from memenvs.core.data import Seed, checked, convert
from memenvs.core.files import names_apart, read_json, resolved, whole_file, write_json, write_text
from memenvs.core.optional import require
from memenvs.credit import Array
from memenvs.evaluation.log import EPISODES, RESULTS, SETTING, TABLE, Pair, pair_of, without_texts
from memenvs.evaluation.run import read_tasks
from memenvs.evaluation.summary import (
    NORMAL,
    SHARES,
    Interval,
    bootstrap,
    markdown_table,
    show_number,
    task_means,
)
from memenvs.rollout.records import Episode, read_records

EPILOG = """\
examples:
  python -m memenvs evaluate compare runs/lexical runs/qwen3-4b
  python -m memenvs evaluate compare runs/base runs/grpo runs/mt_ppo --metrics em f1 --out runs/comparison
  python -m memenvs evaluate compare runs/whole runs/memory --allow env_args.memory_mode

A run is a folder that `evaluate run --out` wrote, or a file in it. docs/evaluate.md says what is compared.
"""

MATCHED = ("env", "env_args", "n_tasks", "data", "methods", "scorer", "seed", "memenvs", "samples")
"""What runs must have in common: all of an evaluation's setting but the policy, and the samples of a task."""

_AGAIN = "run the evaluation again by the same command: what ended is not played again"
_UNSET = "nothing"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Of the lines of a plot, told apart by the colour-blind (Okabe and Ito, 2008)."""
_MARKERS = "osD^vPX"
_ROW, _GAP, _AXIS = 0.21, 0.13, 0.5  # inches of a plot: a row, between metrics, a panel's axis


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
        resampled: whether the interval is the bootstrap's, else Tango's; see `paired_interval`.
    """

    metric: str
    run: str
    baseline: float
    mean: float
    difference: Interval
    wins: int
    ties: int
    losses: int
    resampled: bool


class EvaluatedRun(NamedTuple):
    """What a comparison knows of a run.

    Attributes:
        name: in tables.
        folder: of the run.
        setting: of the evaluation, and `samples` of a task.
        tasks: ids of those that were played, by number.
        means: by metric and number of the task, failed episodes left out.
        finished: episodes that ended.
        failed: episodes without an end.
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
        """The tasks of which an episode finished."""
        return set().union(*self.means.values())


@dataclass(frozen=True)
class PairedComparison:
    """Runs compared with a baseline, paired by task.

    Attributes:
        runs: the baseline first.
        differences: by metric, and in it by run.
        tasks: that every run finished.
        left_out: tasks that only some of them finished.
        allowed: what else than the policy differs, a sentence each.
        resamples: of the bootstrap.
        seed: likewise.
    """

    runs: tuple[EvaluatedRun, ...]
    differences: tuple[MetricDifference, ...]
    tasks: int
    left_out: int
    allowed: tuple[str, ...]
    resamples: int
    seed: int

    @property
    def caption(self) -> str:
        """What a table or a picture of it shows, in sentences."""
        base = self.runs[0]
        arguments = ", ".join(
            f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            for name, value in base.setting["env_args"].items()
        )
        samples = "/".join(dict.fromkeys(str(run.setting["samples"]) for run in self.runs))
        left_out = f" ({self.left_out:,} left out that not every run finished)" if self.left_out else ""
        sentences = [
            f"Differences from {base.name} on {base.setting['env']}{f' ({arguments})' if arguments else ''}, "
            f"paired by task: average@{samples} over {self.tasks:,} tasks{left_out}.",
            f"95% percentile intervals of {self.resamples:,} bootstrap resamples of tasks, seed {self.seed}.",
            "Win, tie, loss: tasks where the mean of a metric is higher, equal, lower.",
        ]
        if not all(row.resampled for row in self.differences):
            sentences.insert(2, "*: the same on every task, Tango's score interval.")
        return " ".join([*sentences, *self.allowed])

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        runs = {
            run.name: {"folder": str(run.folder), "finished": run.finished, "failed": run.failed}
            | {"setting": run.setting}
            for run in self.runs
        }
        return {
            "baseline": self.runs[0].name,
            "runs": runs,
            "tasks": self.tasks,
            "tasks_left_out": self.left_out,
            "allowed": list(self.allowed),
            "resamples": self.resamples,
            "seed": self.seed,
            "differences": [
                {**row._asdict(), "difference": row.difference._asdict()} for row in self.differences
            ],
        }

    def __str__(self) -> str:
        """A Markdown table, under its caption and above the runs."""
        rows: list[list[str]] = []
        for row in self.differences:
            if not rows or row.run == self.differences[0].run:
                rows.append([row.metric, self.runs[0].name, show_number(row.baseline), "", "", ""])
            interval = row.difference.span() + ("" if row.resampled else " *")
            counts = f"{row.wins:,}/{row.ties:,}/{row.losses:,}"
            change = show_number(row.difference.mean, "+")
            rows.append(["", row.run, show_number(row.mean), change, interval, counts])
        columns = ["metric", "run", "mean", "difference", "95% interval", "win/tie/loss"]
        lines = [self.caption, "", *markdown_table(columns, rows), ""]
        for run in self.runs:
            model = f" ({run.setting['model']})" if run.setting.get("model") else ""
            counts = f"{run.finished:,} episodes finished, {run.failed:,} failed"
            lines.append(f"- {run.name}: policy {run.setting['policy']}{model}; {counts}")
        return "\n".join(lines) + "\n"

    def draw(self) -> Any:
        """A forest plot: of each metric and run the difference, its interval as a bar, and a line at zero.

        Shares have one axis, every other metric one of its own.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ImportError: matplotlib is not installed.
        """
        figure_class = require("matplotlib.figure", "plots").Figure
        metrics = list(dict.fromkeys(row.metric for row in self.differences))
        shares = [name for name in metrics if name in SHARES]
        panels = [*([shares] if shares else []), *([name] for name in metrics if name not in SHARES)]
        others = [run.name for run in self.runs[1:]]
        block = len(others) * _ROW + _GAP
        heights = [len(panel) * block for panel in panels]
        size = (7.0, sum(heights) + _AXIS * len(panels) + 0.5)
        figure = figure_class(figsize=size, dpi=200, layout="constrained")
        axes = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
        for axis, panel in zip(axes, panels, strict=True):
            self._draw_panel(axis, panel, others)
        of = f"{self.runs[0].name}, 95% intervals, {self.tasks:,} tasks"
        if len(others) == 1:
            figure.suptitle(f"{others[0]} minus {of}", fontsize=10, parse_math=False)
            return figure
        points = axes[0].lines[2 : 2 * len(others) + 1 : 2]  # behind the line at zero, a bar and a point each
        legend = figure.legend(
            points,
            map(str, range(len(others))),
            title=f"difference from {of}",
            loc="outside upper center",
            ncols=min(4, len(others)),
            fontsize=9,
            title_fontsize=10,
            frameon=False,
        )
        legend.get_title().set_parse_math(False)
        for text, name in zip(legend.get_texts(), others, strict=True):  # as a label, "_x" would be left out
            text.set(text=name, parse_math=False)
        return figure

    def _draw_panel(self, axis: Any, metrics: Sequence[str], others: Sequence[str]) -> None:
        """The rows of metrics that share an axis, from the top down."""
        block = len(others) * _ROW + _GAP
        axis.axvline(0, color="0.4", linewidth=0.8, zorder=0)
        for row in (row for row in self.differences if row.metric in metrics):
            place, k = metrics.index(row.metric), others.index(row.run)
            y = place * block + k * _ROW
            mean, low, high = row.difference
            colour = COLOURS[k % len(COLOURS)]
            axis.plot([low, high], [y, y], color=colour, linewidth=1.6, solid_capstyle="butt")
            axis.plot([mean], [y], _MARKERS[k % len(_MARKERS)], color=colour, markersize=4.5)
            text = f"{show_number(mean, '+')}  [{show_number(low)}, {show_number(high)}]"
            axis.text(1.02, y, text, transform=axis.get_yaxis_transform(), va="center", fontsize=8)
        middle = (len(others) - 1) * _ROW / 2
        axis.set_yticks([k * block + middle for k in range(len(metrics))], metrics, fontsize=9)
        axis.set_ylim(len(metrics) * block - _GAP / 2 - _ROW / 2, -_GAP / 2 - _ROW / 2)
        axis.margins(x=0.08)
        if all(row.difference == (0, 0, 0) for row in self.differences if row.metric in metrics):
            axis.set_xlim(-1, 1)
        axis.tick_params(axis="y", length=0)
        axis.tick_params(axis="x", labelsize=8)
        axis.spines[["left", "right", "top"]].set_visible(False)
        axis.grid(axis="x", alpha=0.25)

    def write(self, folder: str | Path) -> list[Path]:
        """Write `comparison.md`, `comparison.json`, `forest.png` and `forest.svg`, each whole.

        Returns:
            Their paths.

        Raises:
            ImportError: matplotlib is not installed; nothing is written then.
            OSError: a file cannot be written; with its path.
        """
        figure, folder = self.draw(), Path(folder)
        paths = [folder / name for name in ("comparison.md", "comparison.json", "forest.png", "forest.svg")]
        write_text(paths[0], f"{self}\n![Forest plot of the differences](forest.png)\n")
        write_json(paths[1], self.to_json())
        for path in paths[2:]:
            save_figure(figure, path)
        return paths


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib, whole, as what its name ends in: `.png` or `.svg`.

    The same figure is the same file: it has no date.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: it cannot be written; with the path.
    """
    kind = path.suffix.lower()[1:]
    stamp = {"png": "Software", "svg": "Date"}[kind]
    with require("matplotlib", "plots").rc_context({"svg.hashsalt": "memenvs"}), whole_file(path) as work:
        figure.savefig(work, format=kind, metadata={stamp: None})


@checked
def compare(
    runs: Sequence[str | Path],
    *,
    baseline: str | Path | None = None,
    metrics: Sequence[str] | None = None,
    common: bool = False,
    allow: Sequence[str] = (),
    resamples: Annotated[int, Meta(ge=100)] = 10_000,
    seed: Seed = 0,
) -> PairedComparison:
    """Compare runs of `evaluate` with a baseline, paired by task.

    A task's value is the mean over its episodes that finished, as in `summarise`: a run's mean is that of its
    summary. Differences of tasks are resampled (paired bootstrap; Koehn, EMNLP 2004), and their interval is
    the percentile one (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13), but for
    shares that differ alike on every task; see `paired_interval`.

    Args:
        runs: two or more folders that `evaluate` wrote with `out`, or files in them.
        baseline: the one of them that the others are compared with; None: the first.
        metrics: names; None: all that every run has.
        common: compare the tasks that every run finished, where some finished others too.
        allow: what may differ beside the policy: names of `MATCHED`, or one value as `"env_args.chunk_size"`.
        resamples: of the bootstrap, at least 100.
        seed: of the bootstrap, 0 to 2**32 - 1.

    Raises:
        ValueError: runs that have not ended, differ in more than their policy, or finished other tasks; an
            argument that does not fit.
        OSError: a folder or a file in it is not there.
    """
    folders = [_folder(path) for path in runs]
    if len(set(map(resolved, folders))) < max(2, len(folders)):
        listed = ", ".join(map(str, runs)) or "none"
        raise ValueError(f"a comparison needs two runs or more, each given once; got {listed}")
    names = names_apart(folders)
    known = [read_run(path, name) for path, name in zip(folders, names, strict=True)]
    if baseline is not None:
        first = _chosen(baseline, folders, names)
        known.insert(0, known.pop(first))
    allowed = check_matched(known, allow)
    chosen = _metrics(known, metrics)
    shared = set.intersection(*(run.measured for run in known))
    every = set.union(*(run.measured for run in known))
    if not common:
        for name in chosen:
            _check_tasks(known, name)
    rows = []
    for name in chosen:
        tasks = sorted(set.intersection(*(set(run.means[name]) for run in known)))
        if not tasks:
            raise ValueError(f"no task has {name} in every run; leave it out by --metrics")
        before = np.array([known[0].means[name][task] for task in tasks])
        for run in known[1:]:
            after = np.array([run.means[name][task] for task in tasks])
            rows.append(_difference(name, run.name, before, after, resamples, seed))
    return PairedComparison(
        tuple(known),
        tuple(rows),
        tasks=len(shared),
        left_out=len(every - shared),
        allowed=tuple(allowed),
        resamples=resamples,
        seed=seed,
    )


def paired_interval(
    before: Array, after: Array, *, share: bool = False, resamples: int = 10_000, seed: int = 0
) -> tuple[Interval, bool]:
    """Mean of the differences of n tasks, its 95% interval, and whether the interval is the bootstrap's.

    Where every value is a share of 0 or 1 and all differences are the same d, so are those of all resamples,
    whatever n is. Then it is Tango's score interval of paired shares (Statistics in Medicine 17, 1998), whose
    equation has there the solution

        d - h (1 + |d|) to d + h (1 + |d|), cut at -1 and 1,   h = z^2 / (n + z^2),  z = 1.96

    Args:
        before: (n,) of the baseline.
        after: (n,) of the run.
        share: whether the metric is one of `memenvs.evaluation.summary.SHARES`.
        resamples: of the bootstrap.
        seed: likewise.

    Raises:
        ValueError: no values.
    """
    differences = after - before
    found = bootstrap(differences.tolist(), resamples=resamples, seed=seed)
    if not share or len(set(differences)) > 1 or not {0.0, 1.0}.issuperset([*before, *after]):
        return found, True
    square = NORMAL**2
    reach = square / (len(differences) + square) * (1 + abs(found.mean))
    return Interval(found.mean, max(-1.0, found.mean - reach), min(1.0, found.mean + reach)), False


class _Setting(msgspec.Struct):
    env: str
    policy: Any
    n_tasks: int
    env_args: dict[str, Any]
    data: dict[str, Any]


class _Results(msgspec.Struct):
    setting: _Setting
    samples: int
    task: str
    finished: int
    failed: int


def read_run(folder: Path, name: str) -> EvaluatedRun:
    """A run from its folder: the episodes that its results are made of.

    Raises:
        ValueError: it has not ended, its results are not those of its episodes, or a file holds something
            else.
        OSError: a file is not there.
    """
    if not (folder / RESULTS).exists():
        raise FileNotFoundError(
            f"{folder} holds no {RESULTS}; give a folder of `evaluate run --out` whose run has ended"
        )
    results = read_json(folder / RESULTS, _AGAIN)
    known = convert(results, _Results, f"{folder / RESULTS}: results", _AGAIN)
    setting = {**results["setting"], "samples": known.samples}
    numbers = read_tasks(known.task, known.setting.n_tasks)
    counts = known.finished, known.failed
    pairs = {Pair(task, sample) for task in numbers for sample in range(setting["samples"])}
    episodes: dict[Pair, Episode] = {}
    for _, episode in read_records(folder / EPISODES):
        if (pair := pair_of(episode)) in pairs:
            episodes[pair] = without_texts(episode)
    finished = [episode for _, episode in sorted(episodes.items()) if not episode.error]
    if pairs != set(episodes) or counts != (len(finished), len(pairs) - len(finished)):
        raise ValueError(
            f"{folder / RESULTS} counts {counts[0]} episodes finished and {counts[1]} failed, {EPISODES} "
            f"holds {len(finished)} and {len(episodes) - len(finished)} of them; {_AGAIN}"
        )
    means = task_means(finished)
    for metric, by_task in means.items():
        if unknown := [task for task, mean in by_task.items() if not math.isfinite(mean)]:
            raise ValueError(
                f"{metric} of task {unknown[0]} in {folder} is {by_task[unknown[0]]}, not a finite number; "
                "correct the environment's metric and evaluate in another folder"
            )
    ids = {pair.task: episode.task for pair, episode in sorted(episodes.items()) if episode.task}
    return EvaluatedRun(name, folder, setting, ids, means, *counts)


def check_matched(runs: Sequence[EvaluatedRun], allow: Sequence[str] = ()) -> list[str]:
    """Refuse runs that differ from the first in more than their policy.

    Args:
        runs: to be compared.
        allow: what may differ; see `compare`.

    Returns:
        A sentence on each difference that was allowed.

    Raises:
        ValueError: what differs, with both values; or `allow` names nothing that could.
    """
    values = [_flat(run.setting) for run in runs]
    names = list(dict.fromkeys(name for one in values for name in one))
    valid = list(dict.fromkeys([*MATCHED, *names]))
    for name in allow:
        if name not in valid:
            listed = ", ".join(closest_first(name, valid))
            raise ValueError(f"allow: these runs have no {name!r} to differ in, only {listed}")
    sentences: list[str] = []
    refused: dict[str, str] = {}
    for name in names:
        for run, own in zip(runs[1:], values[1:], strict=True):
            if own.get(name, _UNSET) == values[0].get(name, _UNSET):
                continue
            both = (
                f"{name} is {own.get(name, _UNSET)} in {run.name} and {values[0].get(name, _UNSET)} "
                f"in {runs[0].name}"
            )
            if name in allow or name.partition(".")[0] in allow:
                sentences.append(f"{both}.")
            else:
                refused.setdefault(name, both)
    if refused:
        raise ValueError(
            f"the runs differ in more than the policy: {'; '.join(refused.values())}; compare runs of one "
            f"setting, or allow it by --allow {' '.join(refused)}"
        )
    for run in runs[1:]:
        for task in sorted(run.tasks.keys() & runs[0].tasks.keys()):
            if run.tasks[task] != runs[0].tasks[task]:
                raise ValueError(
                    f"task {task} is {run.tasks[task]!r} in {run.name} and {runs[0].tasks[task]!r} in "
                    f"{runs[0].name}: they cannot be paired; compare runs of one task set"
                )
    return sentences


def _flat(setting: dict[str, Any]) -> dict[str, str]:
    """What must match, as JSON by name; values of an object by `name.key`."""
    flat: dict[str, str] = {}
    for name in MATCHED:
        value = setting.get(name)
        parts = (
            {f"{name}.{key}": one for key, one in value.items()} if isinstance(value, dict) else {name: value}
        )
        flat |= {key: json.dumps(one, ensure_ascii=False, sort_keys=True) for key, one in parts.items()}
    return flat


def _check_tasks(runs: Sequence[EvaluatedRun], metric: str) -> None:
    """Refuse a metric that not every run has of the same tasks."""
    for run in runs:
        for other in runs:
            if only := sorted(other.means[metric].keys() - run.means[metric].keys()):
                why = "every episode of it failed" if only[0] in run.tasks else "it was not played"
                if only[0] in run.measured:
                    why = f"no episode of it has {metric}"
                many = "task" if len(only) == 1 else "tasks"
                raise ValueError(
                    f"{other.name} has {metric} of {len(only):,} {many} that {run.name} has not, such as "
                    f"{only[0]} ({why}); evaluate all runs on the same tasks, or compare the "
                    "common ones by --common"
                )


def _metrics(runs: Sequence[EvaluatedRun], asked: Sequence[str] | None) -> list[str]:
    """The metrics to be compared."""
    for run in runs:
        if not run.means:
            raise ValueError(f"no episode of {run.name} finished: there is nothing to compare; {_AGAIN}")
    shared = [name for name in runs[0].means if all(name in run.means for run in runs)]
    if asked is None and shared:
        return shared
    for name in asked or [""]:
        if name not in shared:
            listed = ", ".join(closest_first(name, shared)) or "none"
            raise ValueError(f"no metric {name!r} that every run has; give --metrics of {listed}")
    return list(dict.fromkeys(asked or ()))


def _difference(
    metric: str, run: str, before: Array, after: Array, resamples: int, seed: int
) -> MetricDifference:
    share = metric in SHARES
    interval, resampled = paired_interval(before, after, share=share, resamples=resamples, seed=seed)
    equal = np.isclose(after, before, rtol=1e-12, atol=1e-12)  # sums of the same samples in another order
    wins, ties, losses = (
        int(np.count_nonzero(one)) for one in ((after > before) & ~equal, equal, (after < before) & ~equal)
    )
    means = float(before.mean()), float(after.mean())
    return MetricDifference(metric, run, *means, interval, wins, ties, losses, resampled)


def _folder(path: str | Path) -> Path:
    """The folder of a run that is named by itself, or by a file in it."""
    named = Path(path)
    if named.name in (SETTING, EPISODES, RESULTS, TABLE) and not named.is_dir():
        return named.parent
    if not named.is_dir():
        raise FileNotFoundError(f"there is no folder {named}; give one that `evaluate run --out` wrote")
    return named


def _chosen(baseline: str | Path, folders: Sequence[Path], names: Sequence[str]) -> int:
    """Which run is the baseline, named by its folder, by a file in it, or as tables do."""
    if str(baseline) in names:
        return names.index(str(baseline))
    for k, folder in enumerate(folders):
        if Path(baseline) in (folder, *(folder / name for name in (SETTING, EPISODES, RESULTS, TABLE))):
            return k
    raise ValueError(f"baseline {str(baseline)!r} is none of the runs; give one of {', '.join(names)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Compare; 2 and one line on standard error where that cannot be."""
    parser = Parser(
        prog="python -m memenvs evaluate compare",
        description="Compare policies task by task: differences with bootstrap intervals, a table, a plot.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="folders of `evaluate run --out`; the first is the baseline")
    add("--baseline", metavar="RUN", help="the one of them that the others are compared with")
    add("--metrics", nargs="+", metavar="NAME", help="such as em f1 (default all that every run has)")
    add("--common", action="store_true", help="compare the tasks that every run finished")
    add(
        "--allow",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help=f"what may differ beside the policy: {', '.join(MATCHED)}, or one value: env_args.chunk_size",
    )
    add("--resamples", type=int, default=10_000, metavar="N", help="of the bootstrap (default 10000)")
    add("--seed", type=int, default=0, help="of the bootstrap (default 0)")
    add("--out", type=Path, metavar="FOLDER", help="write comparison.md, .json and forest.png, .svg there")
    return parser.run(_run, argv)


def _run(args: argparse.Namespace) -> None:
    comparison = compare(
        args.runs,
        baseline=args.baseline,
        metrics=args.metrics,
        common=args.common,
        allow=args.allow,
        resamples=args.resamples,
        seed=args.seed,
    )
    sys.stdout.write(str(comparison))
    sys.stdout.flush()
    if args.out:
        paths = comparison.write(args.out)
        sys.stdout.write(f"\n{args.out}: {', '.join(path.name for path in paths)}\n")


if __name__ == "__main__":
    raise SystemExit(main())
