"""Signals of reward methods in evaluated runs, by step and by value: `memenvs evaluate signals`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.core.data import Count, checked
from memenvs.core.episode_file import EPISODES, read_lines
from memenvs.core.errors import counted, unknown_name
from memenvs.evaluation.compare import MATCHED
from memenvs.evaluation.log import EvaluatedRun, check_alike, pair_of, read_runs
from memenvs.evaluation.plots import line_style, new_figure, plain_axis, write_page
from memenvs.evaluation.summary import markdown_table, show_number


class StepSignal(NamedTuple):
    """The signals at a step of a run's episodes.

    Attributes:
        run: the run's name.
        step: the turn, from 1.
        turns: number of episodes with a signal at this step.
        share: these episodes' share of all episodes of the run.
        mean: mean of their signals.
    """

    run: str
    step: int
    turns: int
    share: float
    mean: float


class RangeSignal(NamedTuple):
    """The signals of a run in a range of values.

    Attributes:
        run: the run's name.
        low: least value of the range.
        high: its end, which belongs to the last range only.
        turns: number of turns with a signal in the range.
        share: these turns' share of all turns of the run with a signal.
        score: mean of the metric over the episodes with such a turn, each once; NaN without any.
    """

    run: str
    low: float
    high: float
    turns: int
    share: float
    score: float


Point = tuple[str, float, float, float]
"""A run's name, a step or the low end of a range, and their share and mean."""


@dataclass(frozen=True)
class SignalFigures:
    """Signals of a reward method in runs, by step and by value.

        by step:   mean over the episodes of the signal at turn j; the episodes that have one, by all episodes
        by value:  the turns with a signal in a range, by all turns with one; mean metric of their episodes

    Attributes:
        method: the name of the signal.
        metric: the metric of the episodes in a range.
        runs: names of the runs.
        by_step: each run's steps in turn.
        by_value: each run's ranges in turn, the same ranges for all.
        caption: what was measured, in sentences.
    """

    method: str
    metric: str
    runs: tuple[str, ...]
    by_step: tuple[StepSignal, ...]
    by_value: tuple[RangeSignal, ...]
    caption: str

    def __str__(self) -> str:
        """Two Markdown tables under the caption, with a share and a mean for each run."""
        steps = {row.step: str(row.step) for row in sorted(self.by_step, key=lambda row: row.step)}
        ranges = {row.low: f"{row.low:.3g} to {row.high:.3g}" for row in self.by_value}
        lines = [self.caption]
        of_steps, of_ranges = self._points()
        for rows, labels, titles in (
            (of_steps, steps, ("step", "mean")),
            (of_ranges, ranges, (self.method, self.metric)),
        ):
            cells = {
                (run, key): ["" if np.isnan(number) else show_number(number) for number in numbers]
                for run, key, *numbers in rows
            }
            columns = [titles[0], *(f"{run}: {name}" for run in self.runs for name in ("share", titles[1]))]
            body = [
                [label, *(cell for run in self.runs for cell in cells.get((run, key), ["", ""]))]
                for key, label in labels.items()
            ]
            lines += ["", *markdown_table(columns, body)]
        return "\n".join([*lines, ""])

    def _points(self) -> tuple[list[Point], list[Point]]:
        """Those of the steps and those of the ranges."""
        return (
            [(row.run, row.step, row.share, row.mean) for row in self.by_step],
            [(row.run, row.low, row.share, row.score) for row in self.by_value],
        )

    def draw(self) -> Any:
        """By step above (MemPO, figure 4), by value below (figure 5): shares as bars, means as lines.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ImportError: matplotlib is not installed.
        """
        figure = new_figure(7.0, 6.4)
        edges = sorted({row.low for row in self.by_value} | {row.high for row in self.by_value})
        places = {edge: place for place, edge in enumerate(edges)}
        of_steps, of_ranges = self._points()
        panels: Any = (
            (of_steps, {row.step: row.step for row in self.by_step}, "episodes", self.method),
            (of_ranges, places, "signals", self.metric),
        )
        above, below = axes = figure.subplots(2)
        width = 0.8 / len(self.runs)  # of a bar
        for axis, (rows, place, unit, mean) in zip(axes, panels, strict=True):
            right, lines = axis.twinx(), []
            for k, run in enumerate(self.runs):
                style = line_style(k)
                points = [(place[key], *numbers) for name, key, *numbers in rows if name == run]
                x, shares, means = np.array(points).T
                shift = (k - (len(self.runs) - 1) / 2) * width
                axis.bar(x + shift, shares, width, color=style["color"], alpha=0.35, linewidth=0)
                lines += right.plot(x, means, marker="o", markersize=3.5, **style)
            axis.set_ylim(bottom=0)
            axis.set_ylabel(f"bars: share of the {unit}", fontsize=9)
            plain_axis(axis, "y")
            right.set_ylabel(f"lines: mean {mean}", fontsize=9)
            right.tick_params(labelsize=8)
            right.spines["top"].set_visible(False)
        above.set_xlabel("step", fontsize=9)
        above.xaxis.get_major_locator().set_params(integer=True)
        below.set_xlabel(self.method, fontsize=9)
        below.set_xticks(np.arange(len(edges)) - 0.5, [f"{edge:.2g}" for edge in edges])
        figure.legend(lines, self.runs, loc="outside upper center", fontsize=9, frameon=False)
        return figure

    def to_json(self) -> dict[str, Any]:
        """Plain data; a range without turns has no score."""
        return {
            "method": self.method,
            "metric": self.metric,
            "caption": self.caption,
            "by_step": [row._asdict() for row in self.by_step],
            "by_value": [
                {**row._asdict(), "score": None if np.isnan(row.score) else row.score}
                for row in self.by_value
            ],
        }

    def write(self, folder: str | Path) -> list[Path]:
        """Write `signals.md`, `signals.json`, `signals.png` and `signals.svg`, as `write_page` does.

        Raises:
            OSError: a file cannot be written; with its path.
        """
        pictures = {"signals": ("Signals by step and by value", self.draw)}
        return write_page(folder, "signals", str(self), self.to_json(), pictures)


@checked
def signal_figures(
    method: str,
    runs: Sequence[str | Path],
    /,
    *,
    metric: str = "em",
    ranges: Count = 10,
    allow: Sequence[str] = (),
    out: str | Path | None = None,
) -> SignalFigures:
    """Show what a reward method measured in runs, by step and by value, and how well their episodes did.

    METHOD is one that the runs were evaluated with. With MemPO bias=none these are figures 4 and 5 of the
    MemPO paper (5.4), P(y* given mem) by step and by value. A turn counts where the method measured
    something: for MemPO, where a memory was written.

    Examples:
      memenvs evaluate signals MemPO runs/grpo runs/mempo --out runs/figures
      memenvs evaluate signals TAMTRL runs/credit --metric success

    Args:
        method: the method, as MemPO.
        runs: folders that `evaluate run` wrote with --out and this method.
        metric: a metric of the episodes.
        ranges: number of ranges of equal width, from 0 to 1 if no signal is outside, otherwise from the least
            to the largest signal of all runs.
        allow: what may differ between runs besides the policy, as for `compare`.
        out: folder for signals.md, signals.json and, with matplotlib, signals.png and signals.svg.

    Raises:
        ValueError: a run has no signal of this method or no such metric, or runs differ in more than their
            policy.
        OSError: a folder or a file in it does not exist.
    """
    if not runs:
        raise ValueError("no run is given; give a folder of `evaluate run --out` with --methods")
    read = read_runs(runs)
    allowed = check_alike(read, MATCHED, allow)
    measured = {run.name: _measure(run, method, metric) for run in read}
    values = np.concatenate([signals[:, 2] for _, signals in measured.values()])
    low, high = float(values.min()), float(values.max())
    if 0 <= low and high <= 1:
        low, high = 0.0, 1.0
    elif low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, ranges + 1)
    by_step, by_value = list[StepSignal](), list[RangeSignal]()
    for name, (scores, signals) in measured.items():
        of_episode, steps, of_run = signals.T
        for step in np.unique(steps):
            there = of_run[steps == step]
            share = len(there) / len(scores)
            by_step.append(StepSignal(name, int(step), len(there), share, float(there.mean())))
        in_range = np.minimum(np.searchsorted(edges, of_run, "right") - 1, ranges - 1)
        for k in range(ranges):
            episodes = np.unique(of_episode[in_range == k]).astype(np.int64)
            turns = int((in_range == k).sum())
            score = float(scores[episodes].mean()) if turns else np.nan
            ends = float(edges[k]), float(edges[k + 1])
            by_value.append(RangeSignal(name, *ends, turns, turns / len(of_run), score))
    caption = (
        f"Signals of {method} in {', '.join(measured)}: {counted(len(values), 'turn')} of "
        f"{counted(sum(len(scores) for scores, _ in measured.values()), 'episode')}. Shares by step are "
        "of a run's episodes, shares by value of its turns with a signal."
    )
    left_out = [f"Failed episodes of {run.name}, left out: {run.failed}." for run in read if run.failed]
    whole = " ".join([caption, *left_out, *allowed])
    figures = SignalFigures(method, metric, tuple(measured), tuple(by_step), tuple(by_value), whole)
    if out:
        figures.write(out)
    return figures


def _measure(run: EvaluatedRun, method: str, metric: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The metric (E,) of a run's finished episodes, and episode, step and value (N, 3) of each signal."""
    scores: list[float] = []
    signals: list[tuple[int, int, float]] = []
    names: set[str] = set()
    for _, episode in read_lines(run.folder / EPISODES):
        task, sample = pair_of(episode)
        if episode.error or task not in run.measured or sample >= run.setting["samples"]:
            continue
        if metric not in episode.metrics:
            raise ValueError(unknown_name(f"{run.name} has no metric", metric, episode.metrics))
        for name, turns in episode.measured.items():
            if turns:
                names.add(name)
            if name.lower().replace("_", "") == method.lower().replace("_", ""):
                values = episode.measured_signals[name]
                signals += [(len(scores), k + 1, value) for k, value in zip(turns, values, strict=True)]
        scores.append(episode.metrics[metric])
    if not signals:
        has = f"it has those of {', '.join(sorted(names))}" if names else "it has none"
        raise ValueError(
            f"{run.name} has no signals of {method}; {has}. Evaluate it with --methods, as in "
            "--methods MemPO bias=none"
        )
    return np.array(scores), np.array(signals)
