"""Signals of reward methods in evaluated runs, by step and by value: `memenvs evaluate signals`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memenvs.core.arguments import closest_first
from memenvs.core.data import Count, checked
from memenvs.core.episode import Floats
from memenvs.core.episode_file import read_lines
from memenvs.core.files import names_apart
from memenvs.evaluation.compare import MATCHED
from memenvs.evaluation.log import EPISODES, EvaluatedRun, check_alike, pair_of, read_run
from memenvs.evaluation.plots import line_style, new_figure, plain_axis, write_page
from memenvs.evaluation.summary import markdown_table, show_number

_BARS = 0.8  # width of all bars at a step or range, of the distance to the next


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


@dataclass(frozen=True)
class SignalFigures:
    """Signals of a reward method in runs, by step and by value.

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
        """Two Markdown tables under the caption."""
        steps = {row.step: str(row.step) for row in sorted(self.by_step, key=lambda row: row.step)}
        ranges = {row.low: f"{row.low:.3g} to {row.high:.3g}" for row in self.by_value}
        at_step = {(row.run, row.step): (row.share, row.mean) for row in self.by_step}
        at_value = {(row.run, row.low): (row.share, row.score) for row in self.by_value}
        tables = ("step", "mean", steps, at_step), (self.method, self.metric, ranges, at_value)
        return "\n".join([self.caption, *("\n".join(["", *self._table(*table)]) for table in tables), ""])

    def _table(
        self, first: str, second: str, labels: dict[Any, str], cells: dict[Any, tuple[float, float]]
    ) -> list[str]:
        """The lines of a table with two columns for each run.

        Args:
            first: title of the first column.
            second: what is beside the share.
            labels: of the rows, by step or range.
            cells: the two numbers by run, and step or range.
        """
        columns = [first, *(f"{run}: {name}" for run in self.runs for name in ("share", second))]
        nothing = np.nan, np.nan
        rows = []
        for key, label in labels.items():
            numbers = [number for run in self.runs for number in cells.get((run, key), nothing)]
            rows.append([label, *("" if np.isnan(number) else show_number(number) for number in numbers)])
        return markdown_table(columns, rows)

    def draw(self) -> Any:
        """By step above (MemPO, figure 4), by value below (figure 5): shares as bars, means as lines.

        Returns:
            A `matplotlib.figure.Figure`.

        Raises:
            ImportError: matplotlib is not installed.
        """
        figure = new_figure(7.0, 6.4)
        above, below = figure.subplots(2)
        lows = sorted({row.low for row in self.by_value})
        edges = [*lows, max(row.high for row in self.by_value)]
        steps = [(row.run, row.step, row.share, row.mean) for row in self.by_step]
        ranges = [(row.run, lows.index(row.low), row.share, row.score) for row in self.by_value]
        lines = self._panel(above, steps, ("bars: share of the episodes", f"lines: mean {self.method}"))
        self._panel(below, ranges, ("bars: share of the signals", f"lines: mean {self.metric}"))
        above.set_xlabel("step", fontsize=9)
        above.xaxis.get_major_locator().set_params(integer=True)
        below.set_xlabel(self.method, fontsize=9)
        below.set_xticks(np.arange(len(edges)) - 0.5, [f"{edge:.2g}" for edge in edges])
        figure.legend(lines, self.runs, loc="outside upper center", fontsize=9, frameon=False)
        return figure

    def _panel(
        self, axis: Any, rows: Sequence[tuple[str, int, float, float]], titles: tuple[str, str]
    ) -> list[Any]:
        """Draw shares as bars and means as lines; the lines of the runs.

        Args:
            axis: an axis of matplotlib, for the shares.
            rows: run, place, share and mean.
            titles: titles of the left and of the right axis.
        """
        right, lines = axis.twinx(), []
        width = _BARS / len(self.runs)
        for k, run in enumerate(self.runs):
            places, shares, means = np.array([row[1:] for row in rows if row[0] == run]).T
            left = places + (k - (len(self.runs) - 1) / 2) * width
            style = line_style(k)
            axis.bar(left, shares, width, color=style["color"], alpha=0.35, linewidth=0)
            lines += right.plot(places, means, marker="o", markersize=3.5, **style)
        axis.set_ylim(bottom=0)
        plain_axis(axis, "y")
        right.tick_params(labelsize=8)
        right.spines["top"].set_visible(False)
        for drawn, title in zip((axis, right), titles, strict=True):
            drawn.set_ylabel(title, fontsize=9)
        return lines

    def write(self, folder: str | Path) -> list[Path]:
        """Write `signals.md`, `signals.json`, `signals.png` and `signals.svg`; only the first two without
        matplotlib.

        Returns:
            The paths of what was written.

        Raises:
            OSError: a file cannot be written; with its path.
        """
        numbers = {
            "method": self.method,
            "metric": self.metric,
            "caption": self.caption,
            "by_step": [row._asdict() for row in self.by_step],
            "by_value": [
                {**row._asdict(), "score": None if np.isnan(row.score) else row.score}
                for row in self.by_value
            ],
        }
        picture = ("signals", "Signals by step and by value", self.draw)
        return write_page(folder, "signals", str(self), numbers, picture)


@checked
def signal_figures(
    method: str,
    runs: Sequence[str | Path],
    *,
    metric: str = "em",
    ranges: Count = 10,
    allow: Sequence[str] = (),
) -> SignalFigures:
    """What a reward method measured in evaluated runs, by step and by value (MemPO 5.4, figures 4 and 5).

        by step:   mean over the episodes of the signal at turn j; the episodes that have one, by all episodes
        by value:  the turns with a signal in a range, by all turns with one; mean metric of their episodes

    A turn counts where the method measured something: for MemPO, where a memory was written. The paper's
    figures show P(y* given mem), which is the signal of `MemPO(bias="none")`.

    Args:
        method: the method, as `MemPO`.
        runs: folders that `evaluate` wrote with `out` and this method.
        metric: a metric of the episodes.
        ranges: number of ranges of equal width, from 0 to 1 if no signal is outside, otherwise from the least
            to the largest signal of all runs.
        allow: what may differ between runs besides the policy, as for `compare`.

    Raises:
        ValueError: a run has no signal of this method or no such metric, or runs differ in more than their
            policy.
        OSError: a folder or a file in it does not exist.
    """
    folders = [Path(run) for run in runs]
    if not folders:
        raise ValueError("no run is given; give a folder of `evaluate run --out` with --methods")
    read = [read_run(path, name) for path, name in zip(folders, names_apart(folders), strict=True)]
    allowed = check_alike(read, MATCHED, allow)
    measured = {
        run.name: _measure(run, folder, method, metric) for run, folder in zip(read, folders, strict=True)
    }
    values = np.concatenate([episode.values for episodes in measured.values() for episode in episodes])
    edges = np.linspace(*_ends(values), ranges + 1, dtype=np.float64)
    names = ", ".join(measured)
    caption = (
        f"Signals of {method} in {names}: {len(values):,} turns of "
        f"{sum(map(len, measured.values())):,} episodes. Shares by step are of a run's episodes, shares by "
        "value of its turns with a signal."
    )
    left_out = [f"Failed episodes of {run.name}, left out: {run.failed}." for run in read if run.failed]
    return SignalFigures(
        method,
        metric,
        tuple(measured),
        tuple(row for run, episodes in measured.items() for row in _by_step(run, episodes)),
        tuple(row for run, episodes in measured.items() for row in _by_value(run, episodes, edges)),
        " ".join([caption, *left_out, *allowed]),
    )


class _Measured(NamedTuple):
    """An episode's metric, and its signals (K,) with their steps (K,)."""

    score: float
    steps: list[int]
    values: list[float]


def _measure(run: EvaluatedRun, folder: Path, method: str, metric: str) -> list[_Measured]:
    """The finished episodes of a run."""
    wanted, known = _plain(method), set[str]()
    episodes = list[_Measured]()
    for _, episode in read_lines(folder / EPISODES):
        pair = pair_of(episode)
        if episode.error or pair.task not in run.measured or pair.sample >= run.setting["samples"]:
            continue
        if metric not in episode.metrics:
            listed = ", ".join(closest_first(metric, episode.metrics))
            raise ValueError(f"{run.name} has no metric {metric!r}; its metrics: {listed}")
        known |= {name for name, turns in episode.measured.items() if turns}
        name = next((name for name in episode.measured if _plain(name) == wanted), "")
        steps = [turn + 1 for turn in episode.measured.get(name, ())]
        values = episode.measured_signals.get(name, [])
        episodes.append(_Measured(episode.metrics[metric], steps, values))
    if not any(episode.steps for episode in episodes):
        has = f"it has those of {', '.join(sorted(known))}" if known else "it has none"
        raise ValueError(
            f"{run.name} has no signals of {method}; {has}. Evaluate it with --methods, as in "
            "--methods MemPO bias=none"
        )
    return episodes


def _by_step(run: str, episodes: Sequence[_Measured]) -> list[StepSignal]:
    at_step: dict[int, list[float]] = {}
    for episode in episodes:
        for step, value in zip(episode.steps, episode.values, strict=True):
            at_step.setdefault(step, []).append(value)
    return [
        StepSignal(run, step, len(values), len(values) / len(episodes), float(np.mean(values)))
        for step, values in sorted(at_step.items())
    ]


def _by_value(run: str, episodes: Sequence[_Measured], edges: Floats) -> list[RangeSignal]:
    counts = np.zeros(len(edges) - 1, np.int64)
    scores: list[list[float]] = [[] for _ in counts]
    for episode in episodes:
        inside, _ = np.histogram(episode.values, edges)
        counts += inside
        for place in inside.nonzero()[0]:
            scores[place].append(episode.score)
    return [
        RangeSignal(
            run,
            float(low),
            float(high),
            int(count),
            float(count / counts.sum()),
            float(np.mean(score)) if score else np.nan,
        )
        for low, high, count, score in zip(edges, edges[1:], counts, scores, strict=False)
    ]


def _ends(values: Floats) -> tuple[float, float]:
    """0 and 1 if no value is outside; otherwise the least and the largest, apart where they are equal."""
    low, high = float(values.min()), float(values.max())
    if 0 <= low and high <= 1:
        return 0.0, 1.0
    return (low, high) if low < high else (low - 0.5, high + 0.5)


def _plain(name: str) -> str:
    return name.lower().replace("_", "")
