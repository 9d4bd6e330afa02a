"""Tables of papers from evaluated runs: `memenvs evaluate table`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from memenvs.core.data import checked
from memenvs.core.errors import counted
from memenvs.core.files import names_apart, path_in_errors, write_text
from memenvs.core.terminal import CommandResult
from memenvs.evaluation.log import RESULTS, EvaluatedRun, check_alike, read_run
from memenvs.evaluation.summary import (
    COUNTS,
    Interval,
    TableFormat,
    bootstrap,
    metric_interval,
    show_number,
    table_text,
)
from memenvs.rollout.names import TEACHERS

ShapeName = Literal[
    "memagent", "mt_grpo", "mt_ppo", "mt_ppo_sokoban", "tamtrl", "infomem", "mempo", "mempo_tokens",
    "mempo_multi_hop", "mempo_single_hop",
]  # fmt: skip


class Part(NamedTuple):
    """A number of a run.

    Attributes:
        run: the name of the run's folder.
        metric: `return` is the outcome, by the metric that the task set is made for; `judge` is the score of
            a `Judge` that replaces the outcome.
        scale: what the metric is multiplied by.
    """

    run: str
    metric: str
    scale: float = 100.0


@dataclass(frozen=True)
class Shape:
    """How a paper lays out its table: a row for each method.

    Attributes:
        unit: the unit of the numbers.
        digits: after the decimal point.
        columns: by title; a column is the mean of its parts. Empty: a column for each run, the shortest
            texts first, and their mean.
        published: the numbers that the paper prints, by a heading and the method. A row lacks the last
            columns where the paper leaves them empty.
    """

    unit: str = "Percent"
    digits: int = 2
    columns: dict[str, tuple[Part, ...]] = field(default_factory=dict)
    published: dict[str, dict[str, list[float]]] = field(default_factory=dict)


SHAPES = msgspec.json.decode(Path(__file__).with_name("tables.json").read_bytes(), type=dict[str, Shape])
"""By name: MemAgent's files, MT-GRPO's Table 2, MT-PPO's Tables 2 and 5, TAMTRL's Tables 1 to 3, InfoMem's
Tables 2 and 3, the local search of MemPO's table of 4.4, and the tables of its appendix A.1: tokens by
objectives, and single questions of several and of one hop."""


@checked
def main_table(
    shape: ShapeName,
    methods: Sequence[str | Path],
    /,
    *,
    metric: str | None = None,
    published: bool = False,
    intervals: bool = False,
    allow: Sequence[str] = (),
    format: TableFormat = "markdown",
    out: str | Path | None = None,
) -> CommandResult:
    """Show evaluated runs as a paper's table, with a row for each method.

    SHAPE is memagent, which has a column for each task set, or infomem, mempo, mempo_tokens, mempo_multi_hop,
    mempo_single_hop, mt_grpo, mt_ppo, mt_ppo_sokoban or tamtrl, which have the columns of their paper. A
    method is a folder that holds a folder of `evaluate run --out` for each task set: runs/tamtrl/eval_200.
    docs/tables.md says more.

    Examples:
      memenvs evaluate table memagent runs/base runs/tamtrl
      memenvs evaluate table memagent runs/base runs/tamtrl --metric f1
      memenvs evaluate table tamtrl runs/mine --published
      memenvs evaluate table memagent runs/base runs/tamtrl --intervals --format latex

    Args:
        shape: name of the table.
        methods: folders, each with a run for each task set.
        metric: show this metric of each run, in percent unless it counts, instead of the shape's columns;
            judge is the score of a Judge that replaces the outcome.
        published: show the paper's rows above, if the shape's columns are shown.
        intervals: show the 95% interval of each number.
        allow: what may differ between runs of one task set: data.retriever, for ablations of the search, or
            samples.
        format: latex gives a tabular with the rules of booktabs.
        out: also write the table to this file.

    Raises:
        ValueError: a folder has no run, there is nothing to show, a return includes what reward methods paid,
            or runs of one task set have different tasks, data, or samples of a task.
    """
    chosen, folders = SHAPES[shape], [Path(method) for method in methods]
    rows = {name: _runs(folder) for name, folder in zip(names_apart(folders), folders, strict=True)}
    runs = [run for by_name in rows.values() for run in by_name.items()]
    run_names = list(dict.fromkeys(part.run for parts in chosen.columns.values() for part in parts))
    if metric is not None or not run_names:
        chosen = _a_column_for_each(runs, metric or "return")
    allowed = _check_columns(runs, allow)
    values = {
        name: [_value(by_name, parts) for parts in chosen.columns.values()] for name, by_name in rows.items()
    }
    filled = {k for row in values.values() for k, value in enumerate(row) if value is not None}
    if metric in COUNTS:
        chosen = replace(chosen, unit="Counts")
    if not filled:
        first = runs[0][1]
        raise ValueError(
            f"no run fills a column; {first.name} has {', '.join(sorted(first.means))}, and the columns of "
            f"{shape} are of {', '.join(run_names) or 'any run'} by {metric or 'the metrics of the paper'}"
        )
    titles = {k: title for k, title in enumerate(chosen.columns) if published or k in filled}
    lines = _published_lines(chosen, len(titles)) if published else []
    columns, data = list(chosen.columns.values()), dict[str, Any]()
    for name, row in values.items():
        means = [row[k] for k in titles]
        data[name] = {
            title: mean and mean._asdict() for title, mean in zip(titles.values(), means, strict=True)
        }
        texts = ["" if mean is None else mean.text(digits=chosen.digits, span=intervals) for mean in means]
        for place, k in enumerate(titles):
            if len(columns[k]) == 1 and (run := rows[name].get(columns[k][0].run)) and run.failed:
                texts[place] = f"{texts[place]} ({run.failed:,} failed)".strip()
        lines.append([name, *texts])
    head = ["Methods", *titles.values()]
    columns_shown = {title: chosen.columns[title] for title in titles.values()}
    notes = [_caption([run for _, run in runs], columns_shown, chosen.unit), *allowed]
    if intervals:
        notes.append("In brackets: 95% intervals over tasks.")
    page = table_text(head, lines, [" ".join(notes)], format)
    if out:
        with path_in_errors(out):
            write_text(Path(out), page)
    return CommandResult(page, lambda: {"caption": notes[0], "rows": data})


def _published_lines(shape: Shape, columns: int) -> list[list[str]]:
    """The rows that the paper prints, each model's under a line with its name."""
    lines = []
    for model, printed in shape.published.items():
        if model:
            lines.append([f"*{model}*", *[""] * columns])
        for name, numbers in printed.items():
            cells = [show_number(number, digits=shape.digits) for number in numbers]
            lines.append([f"{name} (paper)", *cells, *[""] * (columns - len(cells))])
    return lines


def _runs(folder: Path) -> dict[str, EvaluatedRun]:
    """The runs of a method, by the names of their folders."""
    places = sorted(path.parent for path in folder.glob(f"*/{RESULTS}"))
    if not places:
        raise ValueError(
            f"{folder} holds no run; give a folder with an --out folder of `evaluate run` for each task set"
        )
    return {place.name: read_run(place, f"{folder.name}/{place.name}") for place in places}


def _a_column_for_each(runs: Iterable[tuple[str, EvaluatedRun]], metric: str) -> Shape:
    """A column for each task set, the shortest texts first, and their mean."""

    def length(run: EvaluatedRun) -> float:
        tokens = run.means.get("prompt_tokens", {0: 0.0})
        return sum(tokens.values()) / len(tokens)

    names = dict.fromkeys(name for name, _ in sorted(runs, key=lambda pair: (length(pair[1]), pair[0])))
    parts = {name: Part(name, metric, 1.0 if metric in COUNTS else 100.0) for name in names}
    return Shape(columns={**{name: (part,) for name, part in parts.items()}, "Average": (*parts.values(),)})


def _check_columns(runs: Iterable[tuple[str, EvaluatedRun]], allow: Sequence[str]) -> list[str]:
    """The sentences of `check_alike` on the runs of each task set, which have the same tasks."""
    by_name: dict[str, list[EvaluatedRun]] = {}
    for name, run in runs:
        by_name.setdefault(name, []).append(run)
    sentences = []
    for first, *others in by_name.values():
        sentences += check_alike([first, *others], ("data", "samples"), allow)
        if different := [run.name for run in others if run.tasks.keys() != first.tasks.keys()]:
            raise ValueError(f"{different[0]} and {first.name} have different tasks; evaluate both alike")
    return sentences


def _value(runs: Mapping[str, EvaluatedRun], parts: Sequence[Part]) -> Interval | None:
    """The mean of parts; None if a run, or its metric, is missing."""
    samples = []
    for part in parts:
        metric = "return" if part.metric == "judge" else part.metric
        if (run := runs.get(part.run)) is None or metric not in run.means:
            return None
        methods = run.setting.get("methods") or []
        settings = methods[0][1] if len(methods) == 1 and methods[0][0] == "Judge" else {}
        is_judged = (settings.get("level"), settings.get("outcome")) == ("outcome", "replace")
        if part.metric == "judge" and not is_judged:
            raise ValueError(
                f"this column of {run.name} is a judge's score; evaluate it with --methods Judge url=URL "
                "model=MODEL level=outcome rubric=equivalence outcome=replace, or give --metric"
            )
        if part.metric == "return" and methods:
            raise ValueError(
                f"the return of {run.name} includes what its reward methods paid; "
                "evaluate it without --methods, or give --metric"
            )
        samples.append([*run.means[metric].values()])
    if len(parts) == 1:
        return Interval(*(parts[0].scale * end for end in metric_interval(parts[0].metric, samples[0])))
    return bootstrap(
        *([part.scale * value for value in values] for part, values in zip(parts, samples, strict=True))
    )


def _caption(runs: Sequence[EvaluatedRun], columns: Mapping[str, Sequence[Part]], unit: str) -> str:
    """What was measured, and what failed, in sentences."""
    by_metric: dict[str, list[str]] = {}
    listed: set[Part] = set()
    for title, parts in columns.items():
        for metric in dict.fromkeys(part.metric for part in parts if part not in listed):
            by_metric.setdefault(metric, []).append(title)
        listed.update(parts)
    metrics = "; ".join(f"{name}: {', '.join(titles)}" for name, titles in by_metric.items())
    samples = "/".join(dict.fromkeys(str(run.setting["samples"]) for run in runs))
    lines = [f"{unit}, average@{samples} ({metrics})."]
    if teachers := [run.name for run in runs if run.setting["policy"] in TEACHERS]:
        lines.append(f"The policy sees privileged information in {', '.join(teachers)}.")
    if failed := [f"{counted(run.failed, 'episode')} of {run.name}" for run in runs if run.failed]:
        lines.append(f"Failed, and in no mean: {', '.join(failed)}.")
    return " ".join(lines)
