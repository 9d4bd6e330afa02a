"""Tables of papers from evaluated runs: `memenvs evaluate table`."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from memenvs.core.data import checked
from memenvs.core.files import names_apart, read_json
from memenvs.evaluation.compare import EvaluatedRun, read_run
from memenvs.evaluation.log import RESULTS
from memenvs.evaluation.summary import (
    SHARES,
    average_interval,
    bootstrap,
    escape_latex,
    latex_table,
    markdown_table,
    share_interval,
)

ShapeName = Literal["memagent", "mt_grpo", "mt_ppo", "mt_ppo_sokoban", "tamtrl", "infomem", "mempo"]


class Part(NamedTuple):
    """A number of a run.

    Attributes:
        run: the name of the run's folder.
        metric: `return` is the outcome, by the metric that the task set is made for.
        scale: what the metric is multiplied by.
    """

    run: str
    metric: str = "return"
    scale: float = 100.0


class Column(NamedTuple):
    """A column of a table: the mean of its parts, empty where a run or its metric is missing."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Shape:
    """How a paper lays out its table: a row for each method.

    Attributes:
        columns: of the table; none: a column for each run, the shortest texts first, and their mean.
        unit: of the numbers.
        digits: after the decimal point.
    """

    columns: Sequence[Column] = ()
    unit: str = "Percent"
    digits: int = 2


def _columns(titles: Mapping[str, str], metric: str = "return", suffix: str = "") -> list[Column]:
    """A column for each run, by its folder's name."""
    return [Column(title + suffix, (Part(run, metric),)) for run, title in titles.items()]


def _averaged(columns: Sequence[Column], title: str) -> list[Column]:
    """The columns, followed by their mean."""
    return [*columns, Column(title, tuple(part for column in columns for part in column.parts))]


def _mempo_columns() -> list[Column]:
    """F1 and EM for each number of objectives, then the means of F1, EM, TT and PT."""
    counts = (2, 4, 6, 8, 10)

    def column(title: str, metric: str, counts: Sequence[int], scale: float | None = None) -> Column:
        return Column(title, tuple(Part(f"multi{n}", metric, scale or 100 / n) for n in counts))

    scores = {"F1": "f1_sum", "EM": "em_sum"}
    return [
        *(column(f"{n}-objective {name}", metric, [n]) for n in counts for name, metric in scores.items()),
        *(column(f"Avg {name}", metric, counts) for name, metric in scores.items()),
        column("Avg TT", "model_tokens", counts, 1e-4),
        column("Avg PT", "model_tokens_peak", counts, 1e-4),
    ]


_MT_PPO = {
    **{"nq": "NQ", "triviaqa": "TriviaQA", "popqa": "PopQA"},
    **{"hotpotqa": "HotpotQA", "2wiki": "2wiki", "musique": "Musique"},
}
_TAMTRL = {
    **{"hotpotqa": "HotpotQA", "ruler-qa": "RULER-QA", "niah": "NIAH", "2wikimqa": "2Wikimqa"},
    **{"musique": "Musique", "narrativeqa": "Narrativeqa", "qasper": "Qasper"},
}

SHAPES: dict[ShapeName, Shape] = {
    "memagent": Shape(),
    "mt_grpo": Shape(
        [
            Column("Tool Execution", (Part("triviaqa", "called", 0.2),)),
            Column("Search Answer", (Part("triviaqa", "retrieved", 0.5),)),
            Column("XML Format", (Part("triviaqa", "xml_format", 0.2),)),
            Column("Exact Match", (Part("triviaqa", "em", 1.0),)),
        ],
        unit="Rewards",
        digits=4,
    ),
    "mt_ppo": Shape(
        [
            *_averaged(_columns(_MT_PPO, "em"), "Avg."),
            *_averaged(_columns(_MT_PPO, "format", " format"), "Avg. format"),
        ],
        digits=1,
    ),
    "mt_ppo_sokoban": Shape(
        [
            *_columns({"sokoban": "Success Rate"}, "success"),
            *_columns({"sokoban": "Effective Action Rate"}, "effective_player"),
        ]
    ),
    "tamtrl": Shape(
        _averaged(
            [
                Column(title, (Part(run, "return" if run == "niah" else "em"),))
                for run, title in _TAMTRL.items()
            ],
            "Average",
        )
    ),
    "infomem": Shape(
        [
            *_columns({"corpusqa": "CorpusQA", "longmemeval": "LongMemEval", "mrcr-8needle": "MRCR-8needle"}),
            *_columns({"ruler-synthetic-qa": "RULER synthetic QA"}, "f1"),
        ],
        digits=3,
    ),
    "mempo": Shape(_mempo_columns(), unit="Percent; TT and PT in 10,000 tokens"),
}
"""By name: MemAgent's files, MT-GRPO's Table 2, MT-PPO's Tables 2 and 5, TAMTRL's Table 1, InfoMem's Table 2,
and the local search of MemPO's table of 4.4."""


@functools.cache
def published_rows(shape: str) -> dict[str, dict[str, list[float]]]:
    """The numbers that the paper prints, by a heading and the method; empty where it has no such table.

    A row may lack the last columns, where the paper leaves them empty.
    """
    rows: dict[str, Any] = read_json(Path(__file__).with_name("published.json"))
    return dict(rows.get(shape, {}))


@checked
def main_table(
    shape: ShapeName,
    methods: Sequence[str | Path],
    *,
    metric: str | None = None,
    published: bool = False,
    intervals: bool = False,
    format: Literal["markdown", "latex"] = "markdown",
) -> str:
    """A table with a row for each method.

    Args:
        shape: a name of `SHAPES`.
        methods: folders, each with a run for each task set.
        metric: show this metric of each run, in percent, instead of the shape's columns.
        published: show the paper's rows above.
        intervals: show the 95% interval of each number.
        format: latex is a tabular with the rules of booktabs.

    Raises:
        ValueError: the paper has no such rows, a folder has no run or one of no column, there is no number to
            show, a return includes what reward methods paid, or runs of one task set have different tasks,
            data, or samples of a task.
    """
    chosen = SHAPES[shape]
    folders = [Path(method) for method in methods]
    rows = {name: _runs(folder) for name, folder in zip(names_apart(folders), folders, strict=True)}
    runs = [run for found in rows.values() for run in found.items()]
    known = list(dict.fromkeys(part.run for column in chosen.columns for part in column.parts))
    if known and (unknown := sorted({name for name, _ in runs} - {*known})):
        raise ValueError(
            f"the {shape} table has no column for {unknown[0]!r}; name the folders of runs {', '.join(known)}"
        )
    papers = published_rows(shape) if published else {}
    if published and (metric is not None or not papers):
        raise ValueError(f"--published: no numbers are published for these {shape} columns; leave it out")
    columns = chosen.columns
    if metric is not None or not columns:
        names = {name: name for name, _ in sorted(runs, key=lambda one: (_length(one[1]), one[0]))}
        chosen, columns = Shape(), _averaged(_columns(names, metric or "return"), "Average")
    _check_alike(runs)
    values = {name: [_value(found, column) for column in columns] for name, found in rows.items()}
    filled = {k for row in values.values() for k, value in enumerate(row) if value is not None}
    if not filled:
        first = runs[0][1]
        raise ValueError(
            f"no run has {metric or 'what a column needs'}; {first.name} has {', '.join(sorted(first.means))}"
        )
    shown = [k for k in range(len(columns)) if published or k in filled]
    lines = []
    for model, methods_of_paper in papers.items():
        lines += [[f"*{model}*", *[""] * len(columns)]] if model else []
        for name, numbers in methods_of_paper.items():
            padded = [*numbers, *[None] * (len(columns) - len(numbers))]
            lines.append([f"{name} (paper)", *(_cell(number, chosen.digits) for number in padded)])
    for name, row in values.items():
        cells = [_cell(row[k], chosen.digits) for k in shown]
        if intervals:
            spans = [_span(rows[name], columns[k], chosen.digits) for k in shown]
            cells = [cell and f"{cell} {span}" for cell, span in zip(cells, spans, strict=True)]
        lines.append([name, *cells])
    head = ["Methods", *(columns[k].title for k in shown)]
    caption = _caption([run for _, run in runs], [columns[k] for k in shown], chosen.unit)
    if intervals:
        caption += " In brackets: 95% intervals over tasks."
    if format == "latex":
        return "\n".join([*latex_table(head, lines), "", escape_latex(caption)]) + "\n"
    return "\n".join([*markdown_table(head, lines), "", caption]) + "\n"


def _runs(folder: Path) -> dict[str, EvaluatedRun]:
    """The runs of a method, by the names of their folders."""
    places = sorted(path.parent for path in folder.glob(f"*/{RESULTS}"))
    if not places:
        raise ValueError(
            f"{folder} holds no run; give a folder of folders that `evaluate run --out` wrote, one a task set"
        )
    return {place.name: read_run(place, f"{folder.name}/{place.name}") for place in places}


def _length(run: EvaluatedRun) -> float:
    """Tokens of its texts."""
    return _mean(run, "prompt_tokens") if "prompt_tokens" in run.means else 0.0


def _check_alike(runs: Iterable[tuple[str, EvaluatedRun]]) -> None:
    """Refuse runs of one task set that played different tasks, or another number of samples."""
    firsts: dict[str, EvaluatedRun] = {}
    for name, run in runs:
        first = firsts.setdefault(name, run)
        one, other = ((r.setting["data"], r.setting["samples"], sorted(r.tasks)) for r in (first, run))
        if one != other:
            raise ValueError(
                f"{run.name} and {first.name} differ in their data, tasks or samples of a task; evaluate "
                "both on the same tasks"
            )


def _mean(run: EvaluatedRun, metric: str) -> float:
    """The mean over tasks, without failed episodes."""
    if metric == "return" and run.setting.get("methods"):
        raise ValueError(
            f"the return of {run.name} includes what its reward methods paid; "
            "evaluate it without --methods, or give --metric"
        )
    means = run.means[metric]
    return sum(means.values()) / len(means)


def _value(runs: Mapping[str, EvaluatedRun], column: Column) -> float | None:
    """The mean of a column's parts; None if a run, or its metric, is missing."""
    if any(part.run not in runs or part.metric not in runs[part.run].means for part in column.parts):
        return None
    return sum(part.scale * _mean(runs[part.run], part.metric) for part in column.parts) / len(column.parts)


def _span(runs: Mapping[str, EvaluatedRun], column: Column, digits: int) -> str:
    """The 95% interval of a column's value; empty as that is."""
    if _value(runs, column) is None:
        return ""
    samples = [[*runs[part.run].means[part.metric].values()] for part in column.parts]
    scale = column.parts[0].scale
    if len(samples) > 1:
        scaled = [
            [part.scale * one for one in values] for part, values in zip(column.parts, samples, strict=True)
        ]
        found, scale = average_interval(scaled), 1.0
    else:
        found = (share_interval if column.parts[0].metric in SHARES else bootstrap)(samples[0])
    return f"[{scale * found.low:.{digits}f}, {scale * found.high:.{digits}f}]"


def _cell(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _caption(runs: Sequence[EvaluatedRun], shown: Sequence[Column], unit: str) -> str:
    """What was measured, and what failed, in sentences."""
    by_metric: dict[str, list[str]] = {}
    listed: set[Part] = set()
    for column in shown:
        for metric in dict.fromkeys(part.metric for part in column.parts if part not in listed):
            by_metric.setdefault(metric, []).append(column.title)
        listed.update(column.parts)
    metrics = "; ".join(f"{name}: {', '.join(titles)}" for name, titles in by_metric.items())
    samples = "/".join(dict.fromkeys(str(run.setting["samples"]) for run in runs))
    lines = [f"{unit}, average@{samples} ({metrics})."]
    if failed := [f"{run.failed:,} episodes of {run.name}" for run in runs if run.failed]:
        lines.append(f"Failed, and in no mean: {', '.join(failed)}.")
    return " ".join(lines)
