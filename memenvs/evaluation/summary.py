"""Records come in; the average@n of every metric with its interval goes out, as JSON and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from memenvs.evaluation.log import Record
from memenvs.evaluation.statistics import Interval, bootstrap, share_interval

SHARES = frozenset(
    {
        *("success", "em", "f1", "sub_em", "format", "format_share", "called", "retrieved", "deadlocked"),
        *("effective_player", "effective_box", "return"),
    }
)
"""Metrics that are shares, from 0 to 1; a return counts as one where every task's is 0 or 1."""


class Row(NamedTuple):
    """A metric over an evaluation.

    Attributes:
        interval: the mean over tasks of the mean over a task's episodes, and its 95% interval.
        tasks: that have the metric.
        episodes: likewise.
    """

    interval: Interval
    tasks: int
    episodes: int


@dataclass(frozen=True)
class Summary:
    """An evaluation in numbers.

    Attributes:
        rows: by metric.
        tasks: that were played.
        samples: n, episodes a task that were asked for.
        finished: episodes that ended.
        failed: episodes without an end, which are in no mean.
        reasons: of the failures, with how often, most frequent first.
    """

    rows: dict[str, Row]
    tasks: int
    samples: int
    finished: int
    failed: int
    reasons: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        metrics = {
            name: {**row.interval._asdict(), "tasks": row.tasks, "episodes": row.episodes}
            for name, row in self.rows.items()
        }
        return {
            "tasks": self.tasks,
            "samples": self.samples,
            "finished": self.finished,
            "failed": self.failed,
            "failures": self.reasons,
            "metrics": metrics,
        }

    def to_markdown(self, title: str) -> str:
        """A table, a metric a row, under a line that says what it is of."""
        n = self.samples
        head = (
            f"{title}: average@{n} over {self.tasks:,} tasks; "
            f"{self.finished:,} episodes finished, {self.failed:,} failed"
        )
        lines = [
            head,
            "",
            f"| metric | average@{n} | 95% interval | episodes |",
            "| --- " * 4 + "|",
        ]
        for name, (found, _, episodes) in self.rows.items():
            mean, low, high = map(_shown, found)
            lines.append(f"| {name} | {mean} | {low} to {high} | {episodes:,} |")
        if self.reasons:
            lines += ["", "Failed:", *(f"- {times} times: {why}" for why, times in self.reasons.items())]
        return "\n".join(lines) + "\n"


def summarise(records: Iterable[Record], samples: int, seed: int = 0) -> Summary:
    """The average@n of every metric.

    Tasks are resampled, not episodes: those of one task are alike, and taken for independent they would make
    the interval too narrow. Where a share is 0 or 1 in every task the interval is Wilson's over the tasks,
    because resamples of zeros alone are all zero, whatever their number.

    Args:
        records: in any order; failed ones are counted.
        samples: n.
        seed: of the bootstrap.
    """
    played = sorted(records, key=lambda record: record.pair)
    finished = [record for record in played if not record.error]
    values: dict[str, dict[int, list[float]]] = {}
    for record in finished:
        for name, value in record.metrics.items():
            values.setdefault(name, {}).setdefault(record.task, []).append(value)
    rows = {}
    for name, by_task in values.items():
        means = [float(np.mean(given)) for given in by_task.values()]
        interval = (share_interval if name in SHARES else bootstrap)(means, seed=seed)
        rows[name] = Row(interval, len(means), sum(map(len, by_task.values())))
    reasons = Counter(record.error for record in played if record.error)
    return Summary(
        rows,
        tasks=len({record.task for record in played}),
        samples=samples,
        finished=len(finished),
        failed=len(played) - len(finished),
        reasons=dict(reasons.most_common(10)),
    )


def _shown(value: float) -> str:
    """Three decimals, or one of what is counted in hundreds."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:,.1f}"
