"""Curves of training runs from their logs; runs that differ only in their seed are a line with a band.

`memenvs view RUN RUN --curves --out curves.png`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta

from memenvs.baselines.args import RESUMABLE
from memenvs.core.data import Step, checked, convert, decode
from memenvs.core.episode import Floats
from memenvs.core.errors import unknown_name
from memenvs.core.files import ARGS, LOG, names_apart, read_json, whole_lines
from memenvs.evaluation.plots import BAND, line_style, new_figure, plain_axis, save_figure

METRICS = (
    *("return", "success", "eval_return", "eval_success", "informative", "evidence_kept"),
    *("loss", "policy_loss", "value_loss", "entropy", "approx_kl", "kl_ref"),
)
"""The metrics that are plotted by default, followed by every method's signal."""

SUFFIXES = (".png", ".svg")
_ALIKE = (RESUMABLE | {"seed"}) - {"dtype", "eval_episodes", "eval_env_args"}
"""Arguments in which the runs of a line may differ: they do not change what is computed."""

_COLUMNS, _PANEL = 2, (3.9, 2.7)  # panels of a row; inches of a panel


class TrainingRun(NamedTuple):
    """A training run as its folder holds it.

    Attributes:
        name: the part of the folder's path that tells it from the others.
        args: its arguments; empty where they were not written.
        rows: the numbers of each step, by name.
    """

    name: str
    args: dict[str, Any]
    rows: dict[int, dict[str, float]]


class CurveFiles(NamedTuple):
    """What `write_curves` wrote.

    Attributes:
        files: of the picture.
        lines: the names of each line's runs, by the line's label.
        metrics: of the panels, in order.
        cut: the last step that all runs of a line have, by its label, where some have more.
    """

    files: list[Path]
    lines: dict[str, list[str]]
    metrics: list[str]
    cut: dict[str, int]


@checked
def write_curves(
    paths: Sequence[str | Path],
    out: str | Path = "curves",
    metrics: Sequence[str] | None = None,
    smooth: Annotated[float, Meta(ge=0, lt=1)] = 0.0,
) -> CurveFiles:
    """Draw the logs of training runs, one panel for each metric.

    Runs whose arguments differ only in their seed are one line, the mean, with a band from the lowest to the
    highest seed. The legend names the arguments in which lines differ.

    Args:
        paths: folders of runs, or folders in which every `log.jsonl` is read.
        out: a file `….png` or `….svg`; without either ending both are written.
        metrics: names in the logs; None: `METRICS` and the methods' signals.
        smooth: weight of the earlier values in an exponential moving average of each run.

    Raises:
        FileNotFoundError: a path does not exist, or has no log in it.
        ValueError: a line is not of a log, no run has logged a metric, or `out` has another ending.
        ImportError: matplotlib is not installed.
        OSError: the picture cannot be written; with its path.
    """
    out = Path(out)
    if out.suffix and out.suffix.lower() not in SUFFIXES:
        raise ValueError(f"--out of curves must end in .png or .svg, or in neither for both, got {out}")
    files = [out] if out.suffix else [out.with_suffix(suffix) for suffix in SUFFIXES]
    runs = read_runs(paths)
    lines = group_by_seed(runs)
    names = _choose_metrics(runs, metrics)
    figure = _plot(lines, names, smooth)
    for file in files:
        save_figure(figure, file)
    ends = {label: sorted(max(run.rows) for run in line) for label, line in lines.items()}
    cut = {label: steps[0] for label, steps in ends.items() if steps[0] < steps[-1]}
    return CurveFiles(files, {label: [run.name for run in line] for label, line in lines.items()}, names, cut)


def read_runs(paths: Sequence[str | Path]) -> list[TrainingRun]:
    """The runs in folders, each once; see `write_curves`."""
    files: list[Path] = []
    for path in map(Path, paths):
        inside = sorted(path.rglob(LOG)) if path.is_dir() else [path]
        if not inside or inside[0].name != LOG:
            raise FileNotFoundError(f"{path} holds no {LOG}; a learner writes one to its --out")
        files += [file for file in inside if file not in files]
    runs = []
    for name, file in zip(names_apart([file.parent for file in files]), files, strict=True):
        args = file.with_name(ARGS)
        arguments = read_json(args, "move it away to draw the run by its name") if args.exists() else {}
        runs.append(TrainingRun(name, arguments, _read_log(file)))
    if not any(run.rows for run in runs):
        raise ValueError(f"no step has ended yet in {', '.join(map(str, files))}")
    return [run for run in runs if run.rows]


def group_by_seed(runs: Sequence[TrainingRun]) -> dict[str, list[TrainingRun]]:
    """The runs of each line, by its label in the legend; a run without arguments is its own line."""
    lines: dict[str, list[TrainingRun]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for run in runs:
        setting = _flat_args(run.args) if run.args else {"run": run.name}
        key = json.dumps(setting, sort_keys=True)
        settings[key] = setting
        lines.setdefault(key, []).append(run)
    if len(lines) == 1:
        ((key, line),) = lines.items()
        return {str(settings[key].get("learner", line[0].name)): line}
    return dict(zip(_labels(list(settings.values())), lines.values(), strict=True))


def curve(runs: Sequence[TrainingRun], metric: str, smooth: float = 0.0) -> tuple[Floats, Floats]:
    """The steps (T,) at which all runs of a line logged a metric, and its values (runs, T), smoothed."""
    rows = []
    for run in runs:
        logged = {step: row[metric] for step, row in run.rows.items() if np.isfinite(row.get(metric, np.nan))}
        if logged:
            rows.append(dict(zip(logged, moving_average(list(logged.values()), smooth), strict=True)))
    steps = sorted(set.intersection(*map(set, rows))) if rows else []
    values = np.array([[row[step] for step in steps] for row in rows], np.float64)
    return np.array(steps, np.float64), values.reshape(len(rows), len(steps))


def moving_average(values: Sequence[float], smooth: float) -> list[float]:
    """Exponential moving average without its bias to 0 at the start (Adam's, Kingma and Ba, 2015).

    >>> moving_average([1.0, 4.0], 0.5)
    [1.0, 3.0]
    """
    total, weight, averages = 0.0, 0.0, []
    for value in values:
        total, weight = smooth * total + (1 - smooth) * value, smooth * weight + (1 - smooth)
        averages.append(total / weight)
    return averages


def _read_log(file: Path) -> dict[int, dict[str, float]]:
    """The rows of a log by step, without an incomplete last line."""
    rows = {}
    for place, line in whole_lines(file):
        row = decode(line, dict[str, float], place, "a line of a log holds numbers by name")
        row.pop("time", None)
        rows[int(convert(row.pop("step", None), Step, f"{place}: step"))] = row
    return rows


def _flat_args(args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that tell lines apart; those of objects have a name of their own."""
    flat: dict[str, Any] = {}
    for name, value in args.items():
        if isinstance(value, dict):
            flat |= {
                f"{name}.{inner}" if name != "env_args" else inner: argument
                for inner, argument in value.items()
            }
        elif name not in _ALIKE:
            flat[name] = value
    return flat


def _labels(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """The arguments that differ between lines: if possible, only those that all lines have."""
    every = list(dict.fromkeys(name for line in lines for name in line))
    for names in ([name for name in every if all(name in line for line in lines)], every):
        differ = [name for name in names if len({json.dumps(line.get(name)) for line in lines}) > 1]
        labels = [", ".join(_label(name, line[name]) for name in differ if name in line) for line in lines]
        labels = [label or "neither" for label in labels]
        if len(set(labels)) == len(lines):
            return labels
    return [f"{label} ({k})" for k, label in enumerate(labels, 1)]


def _label(name: str, value: Any) -> str:
    if name in ("learner", "run"):
        return str(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{name}={text if len(text) <= 40 else '…' + text[-39:]}"


def _choose_metrics(runs: Sequence[TrainingRun], metrics: Sequence[str] | None) -> list[str]:
    """The metrics to plot."""
    logged = sorted({name for run in runs for row in run.rows.values() for name in row})
    for name in metrics or ():
        if name not in logged:
            raise ValueError(unknown_name("no run has logged", name, logged))
    signals = (name for name in logged if name.startswith("signals/") and not name.endswith("_std"))
    default = [name for name in (*METRICS, *signals) if name in logged] or logged[:1]
    return default if metrics is None else list(dict.fromkeys(metrics))


def _plot(lines: Mapping[str, Sequence[TrainingRun]], metrics: Sequence[str], smooth: float) -> Any:
    """The figure, a `matplotlib.figure.Figure`."""
    columns = min(_COLUMNS, len(metrics))
    rows = -(-len(metrics) // columns)
    legend_texts = {
        label: textwrap.fill(f"{label} ({len(line)} seeds)" if len(line) > 1 else label, 90)
        for label, line in lines.items()
    }
    legend = 0.25 * sum(text.count("\n") + 1 for text in legend_texts.values()) if len(lines) > 1 else 0.0
    figure = new_figure(max(_PANEL[0] * columns, 6.0), _PANEL[1] * rows + legend + 0.6)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    handles: dict[str, Any] = {}
    for axis, metric in zip(axes, metrics, strict=False):
        handles = _draw_panel(axis, metric, lines, smooth) | handles
    for axis in axes[len(metrics) :]:
        axis.set_axis_off()
    how = [BAND] if any(len(line) > 1 for line in lines.values()) else []
    if smooth:
        how.append(f"smoothed by a moving average of weight {smooth:g}")
    figure.supxlabel("\n".join(filter(None, ["training step", "; ".join(how)])), fontsize=9)
    if len(lines) == 1:
        figure.suptitle(next(iter(legend_texts.values())), fontsize=10)
    else:
        entries = {legend_texts[label]: handles[label] for label in lines if label in handles}
        where = {"loc": "outside upper center", "fontsize": 9, "frameon": False}
        figure.legend([*entries.values()], [*entries], **where)
    return figure


def _draw_panel(
    axis: Any, metric: str, lines: Mapping[str, Sequence[TrainingRun]], smooth: float
) -> dict[str, Any]:
    """Draw the lines of a metric; the handles of those that logged it, by label."""
    handles = {}
    for k, (label, line) in enumerate(lines.items()):
        steps, values = curve(line, metric, smooth)
        if not len(steps):
            continue
        style = line_style(k)
        marker = "o" if len(steps) <= 20 else None
        (handles[label],) = axis.plot(steps, values.mean(0), marker=marker, markersize=3, **style)
        if len(values) > 1:
            band = {"color": style["color"], "alpha": 0.18, "linewidth": 0}
            axis.fill_between(steps, values.min(0), values.max(0), **band)
    axis.set_title(metric, fontsize=10)
    axis.xaxis.get_major_locator().set_params(integer=True)  # steps
    plain_axis(axis)
    return handles
