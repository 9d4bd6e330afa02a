"""Tables of papers from evaluated runs: `python -m memenvs evaluate table`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from memenvs.cli import Parser
from memenvs.core.checks import check_choice
from memenvs.core.files import names_apart, path_in_errors, resolved, write_text
from memenvs.evaluation.compare import EvaluatedRun, read_run
from memenvs.evaluation.log import RESULTS
from memenvs.evaluation.summary import markdown_table

EPILOG = """\
examples:
  python -m memenvs evaluate table memagent runs/base runs/tamtrl
  python -m memenvs evaluate table memagent runs/base runs/tamtrl --metric f1
  python -m memenvs evaluate table tamtrl runs/mine --published

A method is a folder that holds a folder of `evaluate run --out` for each task set: runs/tamtrl/eval_200.
docs/evaluate.md says what the columns are.
"""


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
        columns: none: a column for each run that there is, shortest texts first, and their mean.
        unit: of the numbers.
        digits: after the decimal point.
        published: the paper's own rows, by a heading and the method; the paper may have none of the last
            columns.
    """

    columns: Sequence[Column] = ()
    unit: str = "Percent"
    digits: int = 2
    published: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)


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

SHAPES = {
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
        published={
            "": {
                "Qwen2.5-7B-Base": (0.0559, 0.0934, 0.1562, 0.0469),
                "Qwen2.5-7B-Instruct": (0.1626, 0.2814, 0.1982, 0.1559),
                "Qwen2.5-7B-Base + GRPO-OR": (0, 0, 0.04, 0),
                "Qwen2.5-7B-Base + GRPO-MR": (0.2, 0.3724, 0.1994, 0.3346),
                "Qwen2.5-7B-Base + MT-GRPO": (0.2, 0.3926, 0.1996, 0.5010),
            }
        },
    ),
    "mt_ppo": Shape(
        [
            *_averaged(_columns(_MT_PPO, "em"), "Avg."),
            *_averaged(_columns(_MT_PPO, "format", " format"), "Avg. format"),
        ],
        digits=1,
        published={
            "": {
                "Qwen2.5-7B-Base": (
                    *(17.7, 31.9, 18.1, 16.0, 16.7, 4.0, 17.4),
                    *(11.8, 11.8, 10.5, 9.8, 8.4, 8.2, 10.1),
                ),
                "Qwen2.5-7B-Instruct": (
                    *(32.0, 56.3, 34.9, 29.2, 27.7, 11.8, 32.0),
                    *(18.3, 26.7, 6.7, 10.9, 3.7, 7.1, 12.2),
                ),
                "GRPO-OR (Search-R1)": (
                    *(39.1, 56.0, 38.8, 33.1, 30.6, 12.9, 35.1),
                    *(70.6, 68.5, 59.7, 51.3, 37.6, 32.8, 53.4),
                ),
                "GRPO-MR (Search-R1)": (45.3, 62.8, 45.0, 41.6, 37.5, 16.4, 41.4),
                "PPO-OR (Search-R1)": (
                    *(48.3, 63.9, 45.6, 43.5, 38.2, 19.9, 43.2),
                    *(90.9, 95.4, 95.2, 91.6, 80.6, 83.4, 89.5),
                ),
                "PPO-MR (Search-R1)": (47.2, 62.9, 45.2, 43.6, 40.2, 18.0, 42.9),
                "GRPO (OTC)": (44.4, 59.7, 43.1, 36.6, 31.1, 13.0, 38.0),
                "PPO (OTC)": (44.6, 62.3, 42.5, 38.3, 36.3, 15.2, 39.9),
                "PPO (StepSearch)": (
                    *(35.5, 57.0, 38.5, 35.1, 39.6, 17.9, 37.3),
                    *(52.1, 61.4, 66.8, 56.0, 39.6, 57.1, 55.5),
                ),
                "MT-PPO": (
                    *(49.0, 64.7, 45.9, 45.3, 42.4, 20.9, 44.7),
                    *(99.9, 99.7, 99.9, 99.8, 99.9, 99.9, 99.9),
                ),
            }
        },
    ),
    "mt_ppo_sokoban": Shape(
        [
            *_columns({"sokoban": "Success Rate"}, "success"),
            *_columns({"sokoban": "Effective Action Rate"}, "effective_player"),
        ],
        published={
            "": {
                "GRPO-OR": (7.81, 26.04),
                "GRPO-MR": (25.78, 67.71),
                "PPO-OR": (38.28, 69.53),
                "PPO-MR": (50.78, 84.51),
                "MT-PPO": (65.63, 98.70),
            }
        },
    ),
    "tamtrl": Shape(
        _averaged(
            [
                Column(title, (Part(run, "return" if run == "niah" else "em"),))
                for run, title in _TAMTRL.items()
            ],
            "Average",
        ),
        published={
            "Qwen3-0.6B": {
                "Base": (0.00, 0.65, 11.65, 0.63, 0.12, 0.00, 0.50, 1.94),
                "SFT": (34.38, 44.80, 97.60, 37.75, 18.13, 4.00, 10.37, 35.29),
                "STaR": (12.11, 22.15, 82.70, 24.50, 5.12, 1.88, 11.00, 22.78),
                "Vanilla-KD": (27.73, 38.15, 89.40, 35.75, 18.75, 2.62, 11.25, 31.95),
                "MemAgent": (38.87, 47.05, 95.04, 40.13, 23.62, 4.13, 12.00, 37.26),
                "LLM-judge": (39.06, 47.00, 95.35, 38.12, 20.13, 4.13, 13.25, 36.72),
                "PRM": (41.02, 48.75, 85.20, 46.63, 20.37, 4.75, 13.75, 37.21),
                "TAMTRL": (42.09, 52.25, 95.04, 43.00, 24.75, 4.37, 13.50, 39.29),
            },
            "Qwen3-1.7B": {
                "Base": (11.33, 12.15, 79.00, 6.37, 5.12, 1.62, 2.37, 16.85),
                "SFT": (40.82, 51.30, 96.15, 48.50, 24.50, 4.00, 13.75, 39.86),
                "STaR": (25.20, 35.65, 70.10, 37.13, 16.12, 2.75, 11.50, 28.35),
                "Vanilla-KD": (29.49, 44.40, 80.15, 41.50, 21.00, 3.75, 9.25, 32.79),
                "MemAgent": (42.97, 51.60, 95.30, 43.75, 31.37, 5.00, 11.63, 40.23),
                "LLM-judge": (41.21, 52.05, 93.30, 44.87, 27.13, 5.25, 12.38, 39.46),
                "PRM": (42.19, 54.90, 97.20, 49.63, 26.88, 4.75, 12.75, 41.19),
                "TAMTRL": (47.66, 55.45, 98.25, 53.25, 29.00, 5.50, 13.38, 43.21),
            },
        },
    ),
    "infomem": Shape(
        [
            *_columns({"corpusqa": "CorpusQA", "longmemeval": "LongMemEval", "mrcr-8needle": "MRCR-8needle"}),
            *_columns({"ruler-synthetic-qa": "RULER synthetic QA"}, "f1"),
        ],
        digits=3,
        published={
            "": {
                "Qwen2.5-1.5B-Instruct": (14.590, 5.600, 0.260, 13.308),
                "with Outcome-only GRPO": (16.413, 10.000, 0.063, 34.735),
                "with InfoMem": (19.453, 12.800, 0.279, 36.848),
                "with ReMemR1": (1.520, 6.200, 0.092, 28.919),
            }
        },
    ),
    "mempo": Shape(
        _mempo_columns(),
        unit="Percent; TT and PT in 10,000 tokens",
        published={
            "": {
                "Qwen2.5 (ReAct)": (
                    *(33.73, 25.60, 10.59, 7.00, 5.37, 4.00, 5.92, 4.25, 2.63, 1.96),
                    *(11.65, 8.56, 3.64, 0.61),
                ),
                "ReSearch": (
                    *(47.40, 36.00, 24.13, 16.70, 20.84, 15.93, 10.80, 7.70, 5.08, 3.56),
                    *(21.65, 15.98, 3.29, 0.71),
                ),
                "DeepResearcher": (
                    *(30.94, 24.70, 24.52, 18.10, 13.88, 10.73, 9.12, 6.85, 5.07, 3.52),
                    *(16.71, 12.78, 4.29, 0.77),
                ),
                "A-MEM": (
                    *(33.24, 25.20, 13.71, 10.10, 9.80, 7.07, 6.86, 5.10, 5.56, 3.60),
                    *(13.83, 10.21, 2.62, 0.38),
                ),
                "MEM1": (
                    *(47.74, 37.10, 26.51, 18.90, 18.81, 14.07, 19.04, 13.55, 19.61, 13.36),
                    *(26.34, 19.40, 1.38, 0.20),
                ),
                "GRPO (w/o <mem>)": (
                    *(54.57, 42.95, 38.31, 28.60, 29.78, 22.60, 18.97, 13.65, 11.01, 7.84),
                    *(30.53, 23.13, 4.39, 0.81),
                ),
                "MemPO": (
                    *(56.47, 46.15, 42.75, 31.90, 34.32, 26.93, 30.48, 23.70, 24.15, 18.16),
                    *(37.63, 29.37, 1.18, 0.18),
                ),
            }
        },
    ),
}
"""By name: MemAgent's files, MT-GRPO's Table 2, MT-PPO's Tables 2 and 5, TAMTRL's Table 1, InfoMem's Table 2,
and the local search of MemPO's table of 4.4, each with the paper's numbers."""


def main_table(
    shape: str, methods: Sequence[str | Path], *, metric: str | None = None, published: bool = False
) -> str:
    """A Markdown table: a row for each method.

    Args:
        shape: a name of `SHAPES`.
        methods: folders, each with a run for each task set.
        metric: show this metric of each run, in percent, instead of the shape's columns.
        published: show the paper's rows above.

    Raises:
        ValueError: no such shape, the paper's rows beside another metric than theirs, a folder without a run
            or with one of no column, no number to show, a return that reward methods paid, or runs of one
            task set over different tasks, data, or samples of a task.
        FileNotFoundError: no such folder.
    """
    check_choice("table", shape, SHAPES)
    chosen = SHAPES[shape]
    folders = [Path(method) for method in methods]
    rows = {name: _runs(folder) for name, folder in zip(_names(folders), folders, strict=True)}
    played = {run for runs in rows.values() for run in runs}
    known = list(dict.fromkeys(part.run for column in chosen.columns for part in column.parts))
    if known and (unknown := sorted(played - {*known})):
        raise ValueError(
            f"the {shape} table has no column for {unknown[0]!r}; name the folders of runs {', '.join(known)}"
        )
    if published and not chosen.published:
        raise ValueError(f"--published: no paper's numbers are known for the {shape} table")
    if published and metric is not None:
        raise ValueError(f"--published: the paper's rows are not of metric {metric!r}; leave --metric out")
    columns = chosen.columns
    if metric is not None or not columns:
        names = {run: run for run in _shortest_first(rows)}
        chosen, columns = Shape(), _averaged(_columns(names, metric or "return"), "Average")
    for run in played:
        _check_alike([runs[run] for runs in rows.values() if run in runs])
    values = {name: [_value(runs, column) for column in columns] for name, runs in rows.items()}
    filled = {k for row in values.values() for k, value in enumerate(row) if value is not None}
    if not filled:
        first = next(iter(next(iter(rows.values())).values()))
        wanted = f"the metric {metric!r}" if metric else "what a column of this table needs"
        raise ValueError(f"no run has {wanted}; {first.name} has {', '.join(sorted(first.means))}")
    shown = [k for k in range(len(columns)) if published or k in filled]
    head = ["Methods", *(columns[k].title for k in shown)]
    lines = []
    for model, papers in chosen.published.items() if published else ():
        lines += [[f"*{model}*", *[""] * len(columns)]] if model else []
        for method, numbers in papers.items():
            padded = [*numbers, *[None] * (len(columns) - len(numbers))]
            lines.append(_row(f"{method} (paper)", padded, chosen))
    lines += [_row(name, [row[k] for k in shown], chosen) for name, row in values.items()]
    caption = _caption(rows, [columns[k] for k in shown], chosen.unit)
    return "\n".join([*markdown_table(head, lines), "", caption]) + "\n"


def _names(folders: Sequence[Path]) -> list[str]:
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}; give one that holds a method's runs")
    if len({resolved(folder) for folder in folders}) < len(folders):
        raise ValueError("a folder is given twice; give each method once")
    return names_apart(folders)


def _runs(folder: Path) -> dict[str, EvaluatedRun]:
    """The runs of a method, by the names of their folders."""
    places = sorted(path.parent for path in folder.glob(f"*/{RESULTS}"))
    if not places:
        raise ValueError(
            f"{folder} holds no run; give a folder of folders that `evaluate run --out` wrote, one a task set"
        )
    return {place.name: read_run(place, f"{folder.name}/{place.name}") for place in places}


def _shortest_first(rows: Mapping[str, Mapping[str, EvaluatedRun]]) -> list[str]:
    """The names of all runs, by the text that their tasks have, then by name."""
    runs = {name: run for found in rows.values() for name, run in found.items()}

    def read(name: str) -> float:
        return _mean(runs[name], "prompt_tokens") if "prompt_tokens" in runs[name].means else 0.0

    return sorted(runs, key=lambda name: (read(name), name))


def _check_alike(runs: Sequence[EvaluatedRun]) -> None:
    """Refuse runs of one task set that were not played over the same tasks, as often."""
    for run in runs[1:]:
        first = runs[0]
        for what, one, other in (
            ("data", first.setting["data"], run.setting["data"]),
            ("samples of a task", first.setting["samples"], run.setting["samples"]),
            ("tasks", sorted(first.tasks), sorted(run.tasks)),
        ):
            if one != other:
                raise ValueError(
                    f"{run.name} and {first.name} differ in their {what}; evaluate both over the same"
                )


def _mean(run: EvaluatedRun, metric: str) -> float:
    """The mean over tasks; tasks of failed episodes are in none."""
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


def _row(name: str, values: Sequence[float | None], shape: Shape) -> list[str]:
    return [name, *("" if value is None else f"{value:.{shape.digits}f}" for value in values)]


def _caption(rows: Mapping[str, Mapping[str, EvaluatedRun]], shown: Sequence[Column], unit: str) -> str:
    """What was measured, and what is missing, in sentences."""
    by_metric: dict[str, list[str]] = {}
    listed: set[Part] = set()
    for column in shown:
        for metric in dict.fromkeys(part.metric for part in column.parts if part not in listed):
            by_metric.setdefault(metric, []).append(column.title)
        listed.update(column.parts)
    said = "; ".join(f"{name}: {', '.join(titles)}" for name, titles in by_metric.items())
    runs = [run for found in rows.values() for run in found.values()]
    samples = "/".join(dict.fromkeys(str(run.setting["samples"]) for run in runs))
    lines = [f"{unit}, average@{samples} ({said})."]
    if failed := [f"{run.failed:,} episodes of {run.name}" for run in runs if run.failed]:
        lines.append(f"Failed, and in no mean: {', '.join(failed)}.")
    return " ".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table; 2 and one line on standard error where that cannot be."""
    parser = Parser(
        prog="python -m memenvs evaluate table",
        description="Print evaluated runs as a table of a paper, with a row for each method.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("shape", choices=SHAPES, help="memagent: a column for each task set; or a paper's own columns")
    add("methods", nargs="+", metavar="METHOD", help="folders that hold a method's runs, one a task set")
    add("--metric", help="show this metric of each run instead of the shape's columns, as em, f1, sub_em")
    add("--published", action="store_true", help="show the paper's own rows above")
    add("--out", type=Path, metavar="FILE", help="write the table there too (Markdown)")
    return parser.run(_run, argv)


def _run(args: argparse.Namespace) -> None:
    table = main_table(args.shape, args.methods, metric=args.metric, published=args.published)
    sys.stdout.write(table)
    if args.out:
        with path_in_errors(args.out):
            write_text(args.out, table)


if __name__ == "__main__":
    raise SystemExit(main())
