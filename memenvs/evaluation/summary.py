"""The average@n of every metric over evaluated episodes, with confidence intervals."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from memenvs.core.episode import Episode
from memenvs.core.errors import counted, one_line
from memenvs.evaluation.log import pair_of, task_means

NORMAL = 1.959964  # standard deviations around the mean that hold 95% of a normal distribution
_COSTS = {
    "seconds": "{:,.1f} s",
    "prompt_tokens": "{:,} tokens read",
    "reply_tokens": "{:,} tokens written",
    "price": "cost {:,.2f}",
}
_DRAWN = 4_000_000  # values of resamples in memory at once

COUNTS = frozenset(
    {
        *("turns", "steps", "searches", "optimal_length", "memory_overflow", "truncated_replies"),
        *("prompt_tokens", "prompt_tokens_peak", "model_prompt_tokens", "reply_tokens", "model_tokens"),
        *("model_tokens_peak", "em_sum", "f1_sum", "judge_unscored", "prm_unscored"),
    }
)
"""Metrics that count something; any other one is a share where it is 0 or 1 in every task."""


class Interval(NamedTuple):
    """A mean and its 95% interval.

    >>> print(Interval(0.15, 0.052, 0.36))
    0.150 [0.052, 0.360]
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return self.text()

    def text(self, sign: Literal["", "+"] = "", digits: int | None = None, *, span: bool = True) -> str:
        """The mean, and with `span` the ends; see `show_number`."""
        return show_number(self.mean, sign, digits) + (f" {self.span(digits)}" if span else "")

    def span(self, digits: int | None = None) -> str:
        """The ends alone, as `[0.052, 0.360]`."""
        return f"[{show_number(self.low, digits=digits)}, {show_number(self.high, digits=digits)}]"


class MetricSummary(NamedTuple):
    """A metric over an evaluation.

    Attributes:
        interval: the mean over tasks of the mean over a task's episodes, and its 95% interval.
        tasks: number of tasks with the metric.
        episodes: number of episodes with the metric.
    """

    interval: Interval
    tasks: int
    episodes: int


@dataclass(frozen=True)
class Summary:
    """An evaluation in numbers.

    Attributes:
        title: what was evaluated.
        metrics: metrics by name.
        tasks: number of tasks.
        samples: n, the episodes of each task.
        finished: number of episodes that ended.
        failed: number of episodes that failed, which are in no mean.
        reasons: how often each error occurred, the most frequent first.
        cost: what the run took: `seconds`, `prompt_tokens`, `reply_tokens` and their `price`. Tokens are None
            where they were not counted, the price also where none was given.
    """

    title: str
    metrics: dict[str, MetricSummary]
    tasks: int
    samples: int
    finished: int
    failed: int
    reasons: dict[str, int]
    cost: Mapping[str, float | None] = field(default_factory=dict)

    def numbers(self) -> dict[str, float]:
        """The means and the cost, as trackers get them."""
        means = {name: row.interval.mean for name, row in self.metrics.items()}
        cost = {f"cost/{name}": value for name, value in self.cost.items() if value is not None}
        return {**means, "failed": self.failed, **cost}

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        metrics = {
            name: {**row.interval._asdict(), "tasks": row.tasks, "episodes": row.episodes}
            for name, row in self.metrics.items()
        }
        return {
            "tasks": self.tasks,
            "samples": self.samples,
            "finished": self.finished,
            "failed": self.failed,
            "failures": self.reasons,
            "metrics": metrics,
        }

    def __str__(self) -> str:
        """A Markdown table, a metric a row, under its title."""
        n = self.samples
        lines = [
            f"{one_line(self.title)}: average@{n} over {counted(self.tasks, 'task')}; "
            f"{counted(self.finished, 'episode')} finished, {self.failed:,} failed",
            "",
        ]
        rows = [
            [name, show_number(interval.mean), interval.span(), f"{episodes:,}"]
            for name, (interval, _, episodes) in self.metrics.items()
        ]
        lines += markdown_table(["metric", f"average@{n}", "95% interval", "episodes"], rows)
        paid = self.metrics["return"].episodes if "return" in self.metrics else 0
        unscored = [row.interval.mean for name, row in self.metrics.items() if name.endswith("_unscored")]
        if paid < self.finished and any(unscored):
            lines += [
                "",
                f"The return is over {paid:,} of {self.finished:,} episodes: the others lack a score.",
            ]
        if self.reasons:
            lines += [
                "",
                "Failed:",
                *(f"- {counted(times, 'time')}: {why}" for why, times in self.reasons.items()),
            ]
        if self.cost.get("prompt_tokens") is not None:
            costs = [
                text.format(value) for name, text in _COSTS.items() if (value := self.cost[name]) is not None
            ]
            lines += ["", f"{', '.join(costs)}."]
        return "\n".join(lines) + "\n"


def summarise(
    episodes: Iterable[Episode],
    samples: int,
    *,
    title: str = "",
    seconds: float | None = None,
    price: tuple[float, float] | None = None,
) -> Summary:
    """The average@n of every metric.

    Tasks are resampled, not episodes: episodes of one task are alike, and treating them as independent would
    make the interval too narrow. Where a share is 0 or 1 in every task, the interval is Wilson's over the
    tasks, because all resamples of zeros are zero.

    Args:
        episodes: episodes in any order; failed ones are counted.
        samples: n.
        title: what was evaluated.
        seconds: the time of playing; None: the summary has no cost.
        price: the prices of a million tokens read, and of a million written.
    """
    played = sorted(episodes, key=lambda episode: (episode.number or 0, episode.member))
    finished = [episode for episode in played if not episode.error]
    rows = {}
    pairs = ((pair_of(episode).task, episode.metrics) for episode in finished)
    for name, by_task in task_means(pairs).items():
        means = [*by_task.values()]
        rows[name] = MetricSummary(
            metric_interval(name, means), len(means), sum(name in episode.metrics for episode in finished)
        )
    reasons = Counter(episode.error for episode in played if episode.error)
    return Summary(
        title,
        rows,
        tasks=len({episode.number for episode in played}),
        samples=samples,
        finished=len(finished),
        failed=len(played) - len(finished),
        reasons=dict(reasons.most_common(10)),
        cost={} if seconds is None else _cost(finished, seconds, price),
    )


def _cost(
    finished: Sequence[Episode], seconds: float, price: tuple[float, float] | None
) -> dict[str, float | None]:
    """What a run took; its tokens are None where they were not counted."""

    def count(name: str) -> int | None:
        counted = [episode.metrics[name] for episode in finished if name in episode.metrics]
        return int(sum(counted)) if finished and len(counted) == len(finished) else None

    read, written = count("model_prompt_tokens"), count("reply_tokens")
    paid = None
    if price is not None and read is not None and written is not None:
        paid = (price[0] * read + price[1] * written) / 1e6
    return {"seconds": seconds, "prompt_tokens": read, "reply_tokens": written, "price": paid}


def bootstrap(*samples: Sequence[float], resamples: int = 2000, seed: int = 0) -> Interval:
    """Mean of the means of samples, and its 95% percentile-bootstrap interval, the same for the same seed.

    Each sample has at least one value and is resampled on its own.
    """
    rng, total = np.random.default_rng(seed), np.zeros(resamples)
    for values in samples:
        array = np.asarray(values, np.float64)
        rows = max(1, _DRAWN // len(array))
        sizes = [min(rows, resamples - start) for start in range(0, resamples, rows)]
        total += np.concatenate([rng.choice(array, (size, len(array))).mean(axis=1) for size in sizes])
    low, high = np.quantile(total / len(samples), [0.025, 0.975])
    mean = sum(float(np.mean(np.asarray(values, np.float64))) for values in samples) / len(samples)
    return Interval(mean, float(low), float(high))


def wilson(values: Sequence[float]) -> Interval:
    """Mean of values, at least one and each 0 or 1, and Wilson's 95% score interval.

    Its width is not 0 where all are equal: for n zeros it ends at 3.84 / (n + 3.84), which is 0.243 for 12.
    """
    n, mean, square = len(values), float(np.mean(values)), NORMAL**2 / len(values)
    centre = (mean + square / 2) / (1 + square)
    reach = NORMAL * np.sqrt(mean * (1 - mean) / n + square / (4 * n)) / (1 + square)
    return Interval(mean, max(0.0, float(centre - reach)), min(1.0, float(centre + reach)))


def metric_interval(metric: str, values: Sequence[float]) -> Interval:
    """Mean of a metric over tasks, at least one, and its 95% interval.

    It is `wilson` where the metric is 0 or 1 in every task and does not count (see `COUNTS`), otherwise
    `bootstrap`.
    """
    is_binary = metric not in COUNTS and {0.0, 1.0}.issuperset(values)
    return wilson(values) if is_binary else bootstrap(values)


def show_number(value: float, sign: Literal["", "+"] = "", digits: int | None = None) -> str:
    """A number with this many decimals, by default three, or one from 100 on; zero has no minus.

    >>> show_number(-0.00001, "+"), show_number(-2783.84)
    ('+0.000', '-2,783.8')
    """
    if digits is None:
        digits = 3 if abs(value) < 100 else 1
    return f"{round(value, digits) + 0.0:{sign},.{digits}f}"


TableFormat = Literal["markdown", "latex"]


def table_text(
    columns: Sequence[str], rows: Iterable[Sequence[str]], notes: Sequence[str], form: TableFormat
) -> str:
    """A table with its notes below.

    It is Markdown, or for LaTeX a `tabular` with the rules of booktabs; a cell in asterisks is in italics.
    """
    notes = [*map(one_line, notes)]
    if form == "markdown":
        lines = markdown_table(columns, rows)
    else:
        cells = (" & ".join(map(_latex_cell, line)) + r" \\" for line in (columns, *rows))
        begin = rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"
        lines = [begin, r"\toprule", next(cells), r"\midrule", *cells, r"\bottomrule", r"\end{tabular}"]
        notes = [escape_latex(note) for note in notes]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _latex_cell(text: str) -> str:
    text = one_line(text)
    italic = re.fullmatch(r"\*(.+)\*", text)
    return rf"\textit{{{escape_latex(italic[1])}}}" if italic else escape_latex(text)


def escape_latex(text: str) -> str:
    r"""Plain text as LaTeX prints it.

    >>> print(escape_latex("50% of eval_200"))
    50\% of eval\_200
    """
    commands = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(commands.get(sign, "\\" + sign if sign in "&%$#_{}" else sign) for sign in text)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return [
        f"| {' | '.join(one_line(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    ]
