"""Curves of training runs from their logs; runs that differ in their seed alone are a line with a band."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memenvs.baselines.flags import RESUMABLE
from memenvs.cli import closest_first
from memenvs.core.checks import Range, check_numbers
from memenvs.core.files import names_apart, read_json
from memenvs.core.optional import require
from memenvs.evaluation.compare import COLOURS, save_figure
from memenvs.rollout.records import Floats

LOG, ARGS = "log.jsonl", "args.json"
METRICS = (
    *("return", "success", "em", "eval_return", "eval_success", "eval_em", "informative", "evidence_kept"),
    *("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "kl_ref"),
)
"""What is drawn where nothing is named, of those that are logged, and behind them every method's signal."""

SUFFIXES = (".png", ".svg")
_ALIKE = (RESUMABLE | {"seed"}) - {"dtype", "eval_episodes", "eval_env_args"}
"""Arguments in which the seeds of a line may differ: what computes the same, or saves it."""

_DASHES = ("solid", "dashed", "dashdot", "dotted")  # so that equal lines are both seen
_COLUMNS, _PANEL = 3, (4.0, 2.9)  # panels of a row; inches of one


class TrainingRun(NamedTuple):
    """A training run as its folder holds it.

    Attributes:
        name: the folder's, as far as it takes to tell it from the others.
        args: its arguments; empty where they were not written.
        rows: of each step its numbers, by name.
    """

    name: str
    args: dict[str, Any]
    rows: dict[int, dict[str, float]]

    def values(self, metric: str) -> dict[int, float]:
        """A metric by step, where it was logged as a number."""
        found = {step: row[metric] for step, row in self.rows.items() if metric in row}
        return {step: value for step, value in found.items() if np.isfinite(value)}

    @property
    def metrics(self) -> set[str]:
        """Names of all that was logged."""
        return {name for row in self.rows.values() for name in row}


class Curve(NamedTuple):
    """A metric of the seeds of one line.

    Attributes:
        steps: (T,) that every seed has logged.
        values: (seeds, T).
    """

    steps: Floats
    values: Floats


class CurveFiles(NamedTuple):
    """What `write_curves` wrote.

    Attributes:
        files: of the picture.
        lines: of the legend, with the runs of each.
        metrics: of the panels, in order.
        cut: of each line whose seeds are not all as long, the steps that all of them have.
    """

    files: list[Path]
    lines: dict[str, list[str]]
    metrics: list[str]
    cut: dict[str, int]


def write_curves(
    paths: Sequence[str | Path],
    out: str | Path = "curves",
    metrics: Sequence[str] | None = None,
    smooth: float = 0.0,
) -> CurveFiles:
    """Draw the logs of training runs, a panel a metric.

    Runs whose arguments differ in their seed alone are one line, the mean, with a band from the lowest to the
    highest seed. The legend names the arguments in which lines differ.

    Args:
        paths: folders of runs, or folders in which every `log.jsonl` is read.
        out: a file `….png` or `….svg`; without either ending both are written.
        metrics: names in the logs; None: `METRICS` and the methods' signals.
        smooth: weight in [0, 1) of what was before in an exponential moving average, of each run by itself.

    Raises:
        FileNotFoundError: there is no such path, or no log in it.
        ValueError: a line is not of a log, no run has logged a metric, or `out` ends otherwise.
        ImportError: matplotlib is not installed.
        OSError: the picture cannot be written; with its path.
    """
    check_numbers(Range(0, below=1), smooth=smooth)
    out = Path(out)
    if out.suffix and out.suffix.lower() not in SUFFIXES:
        raise ValueError(f"--out of curves must end in .png or .svg, or in neither for both, got {out}")
    files = [out] if out.suffix else [out.with_suffix(suffix) for suffix in SUFFIXES]
    runs = read_runs(paths)
    lines = group_by_seed(runs)
    names = _choose(runs, metrics)
    figure = _draw(lines, names, smooth)
    for file in files:
        save_figure(figure, file)
    cut = {label: _common(of) for label, of in lines.items() if len({max(run.rows) for run in of}) > 1}
    return CurveFiles(files, {label: [run.name for run in of] for label, of in lines.items()}, names, cut)


def read_runs(paths: Sequence[str | Path]) -> list[TrainingRun]:
    """The runs in folders, each once; see `write_curves`."""
    found: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileNotFoundError(f"there is no {path}; give the folder of a training run")
        inside = sorted(path.rglob(LOG)) if path.is_dir() else [path]
        if not inside or inside[0].name != LOG:
            raise FileNotFoundError(f"{path} holds no {LOG}; a learner writes one to its --out")
        found += [file for file in inside if file not in found]
    read = [
        (name, file, _read_log(file))
        for name, file in zip(names_apart([file.parent for file in found]), found, strict=True)
    ]
    if not (runs := [TrainingRun(name, _read_args(file.parent), rows) for name, file, rows in read if rows]):
        raise ValueError(f"no step has ended yet in {', '.join(map(str, found))}")
    return runs


def group_by_seed(runs: Sequence[TrainingRun]) -> dict[str, list[TrainingRun]]:
    """The runs of each line, by what the legend calls it.

    A run without arguments is a line of its own.
    """
    flats = [_flat(run.args) if run.args else {"run": run.name} for run in runs]
    keys = [json.dumps(flat, sort_keys=True) for flat in flats]
    first = {key: flat for key, flat in zip(keys, flats, strict=True)}
    labels = _labels(list(first.values()), runs[0].name if len(runs) == 1 else f"{len(runs)} runs")
    named = dict(zip(first, labels, strict=True))
    lines: dict[str, list[TrainingRun]] = {}
    for key, run in zip(keys, runs, strict=True):
        lines.setdefault(named[key], []).append(run)
    return lines


def curve(runs: Sequence[TrainingRun], metric: str, smooth: float = 0.0) -> Curve:
    """A metric of some runs, at the steps at which all of them logged it.

    Args:
        runs: of one line.
        metric: its name.
        smooth: see `write_curves`.
    """
    logged = [run.values(metric) for run in runs]
    logged = [values for values in logged if values]
    steps = sorted(set.intersection(*map(set, logged))) if logged else []
    rows = [moving_average(list(values.values()), smooth) for values in logged]
    by_step = [dict(zip(values, row, strict=True)) for values, row in zip(logged, rows, strict=True)]
    values = np.array([[row[step] for step in steps] for row in by_step], np.float64)
    return Curve(np.array(steps, np.float64), values.reshape(len(logged), len(steps)))


def moving_average(values: Sequence[float], smooth: float) -> list[float]:
    """Exponential moving average without its bias to 0 at the start (Adam's, Kingma and Ba, 2015).

    >>> moving_average([1.0, 4.0], 0.5)
    [1.0, 3.0]
    """
    total, weight, found = 0.0, 0.0, []
    for value in values:
        total, weight = smooth * total + (1 - smooth) * value, smooth * weight + (1 - smooth)
        found.append(total / weight)
    return found


def _read_log(file: Path) -> dict[int, dict[str, float]]:
    """The rows of a log by step; a last line without an end is being written and left out."""
    rows = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n")[:-1], start=1):
        try:
            row = json.loads(line)
            rows[int(row["step"])] = {n: float(v) for n, v in row.items() if n not in ("step", "time")}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{file}:{number} is no line of a log ({error!r}); remove it") from error
    return rows


def _read_args(folder: Path) -> dict[str, Any]:
    file = folder / ARGS
    return read_json(file, "move it away to draw the run by its name") if file.exists() else {}


def _flat(args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that make a line another one; those of an environment and its like by their own names.

    The number of steps does so where the learning rate depends on it (`RunArgs.resumable`).
    """
    flat: dict[str, Any] = {}
    rises = [args.get("lr_warmup", 0), args.get("critic_lr_warmup", 0)]
    alike = _ALIKE if args.get("lr_end", 1) < 1 or any(0 < rise < 1 for rise in rises) else {*_ALIKE, "steps"}
    for name, value in args.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}" if name != "env_args" else inner: one for inner, one in value.items()}
        elif name not in alike:
            flat[name] = value
    return flat


def _labels(lines: Sequence[Mapping[str, Any]], alone: str) -> list[str]:
    """What tells lines apart: the arguments that differ, of those that all have or else that some have."""
    if len(lines) == 1:
        return [str(lines[0].get("learner", alone))]
    every = list(dict.fromkeys(name for line in lines for name in line))
    common = [name for name in every if all(name in line for line in lines)]
    for names in (common, every):
        differ = [name for name in names if len({json.dumps(line.get(name)) for line in lines}) > 1]
        labels = [", ".join(_told(name, line[name]) for name in differ if name in line) for line in lines]
        if len(set(labels)) == len(lines) and all(labels):
            return labels
    labels = [label or "neither" for label in labels]
    return [label if labels.count(label) == 1 else f"{label} ({k})" for k, label in enumerate(labels, 1)]


def _told(name: str, value: Any) -> str:
    if name in ("learner", "run"):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{name}={text if len(text) <= 40 else '…' + text[-39:]}"


def _choose(runs: Sequence[TrainingRun], metrics: Sequence[str] | None) -> list[str]:
    """The metrics that are drawn.

    Raises:
        ValueError: no run has logged one of them, or any at all.
    """
    logged = sorted(set().union(*(run.metrics for run in runs)))
    if metrics is None:
        signals = (name for name in logged if name.startswith("signals/") and not name.endswith("_std"))
        names = [name for name in (*METRICS, *signals) if name in logged]
        return [name for name in names if not _again(runs, name)] or logged[:1]
    for name in metrics:
        if name not in logged:
            close = ", ".join(closest_first(name, logged)[:12])
            raise ValueError(f"no run has logged {name!r}; of the {len(logged)} that are logged: {close}")
    return list(dict.fromkeys(metrics))


def _again(runs: Iterable[TrainingRun], name: str) -> bool:
    """Whether it is the exact match that is the success of these tasks: one panel is enough."""
    if name not in ("em", "eval_em"):
        return False
    return all(run.values(name) == run.values(name.replace("em", "success")) for run in runs)


def _common(runs: Sequence[TrainingRun]) -> int:
    return min(max(run.rows) for run in runs)


def _draw(lines: Mapping[str, Sequence[TrainingRun]], metrics: Sequence[str], smooth: float) -> Any:
    """The figure, a `matplotlib.figure.Figure`."""
    figure_class = require("matplotlib.figure", "plots").Figure
    columns = min(_COLUMNS, len(metrics))
    rows = -(-len(metrics) // columns)
    told = {
        label: textwrap.fill(f"{label} ({len(of)} seeds)" if len(of) > 1 else label, 90)
        for label, of in lines.items()
    }
    legend = 0.25 * sum(text.count("\n") + 1 for text in told.values()) if len(lines) > 1 else 0.0
    size = (max(_PANEL[0] * columns, 6.0), _PANEL[1] * rows + legend + 0.6)
    figure = figure_class(figsize=size, dpi=150, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for axis, metric in zip(axes, metrics, strict=False):
        for k, (label, of) in enumerate(lines.items()):
            steps, values = curve(of, metric, smooth)
            if not len(steps):
                continue
            style = {
                "color": COLOURS[k % len(COLOURS)],
                "linestyle": _DASHES[k % len(_DASHES)],
            }
            marker = "o" if len(steps) <= 20 else None
            (line,) = axis.plot(steps, values.mean(0), marker=marker, markersize=3, linewidth=1.4, **style)
            handles.setdefault(label, line)
            if len(values) > 1:
                low, high = values.min(0), values.max(0)
                axis.fill_between(steps, low, high, color=style["color"], alpha=0.18, linewidth=0)
        axis.set_title(metric, fontsize=10)
        axis.tick_params(labelsize=8)
        axis.spines[["right", "top"]].set_visible(False)
        axis.grid(alpha=0.25)
    for axis in axes[len(metrics) :]:
        axis.set_axis_off()
    seeds = any(len(of) > 1 for of in lines.values())
    how = ["lines: mean of the seeds; bands: from the lowest to the highest seed"] if seeds else []
    how += [f"smoothed by a moving average of weight {smooth:g}"] if smooth else []
    figure.supxlabel("\n".join(["training step", *(["; ".join(how)] if how else [])]), fontsize=9)
    if len(lines) > 1:
        order = [label for label in lines if label in handles]
        figure.legend(
            [handles[label] for label in order],
            [told[label] for label in order],
            loc="outside upper center",
            fontsize=9,
            frameon=False,
        )
    else:
        figure.suptitle(next(iter(told.values())), fontsize=10)
    return figure
