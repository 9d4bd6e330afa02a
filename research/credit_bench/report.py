"""The bench's results: one JSON, tables in Markdown, and a picture of steps with their intervals."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scipy.stats import spearmanr

from memenvs.core.files import read_json, write_text
from memenvs.evaluation.plots import COLOURS, new_figure, plain_axis, save_figure
from memenvs.evaluation.summary import Interval, bootstrap, markdown_table
from research.credit_bench.methods import METHODS
from research.credit_bench.run import POLICIES, different
from research.credit_bench.worlds import WORLDS

JSON, PICTURE, PAGE = "credit_bench.json", "credit_bench.png", "credit_bench_tables.md"
SHORT = 5  # K of the table of replies
LEAST = 5  # fewest methods for a rank correlation
TREES = ("tree", "tree-noscale", "states-std", "states", "turn", "turn-noscale", "gigpo")
PLACE = ("world", "turns", "method")
TOGETHER = (("chain", "calling"), ("late", "distracting"), ("stopping",), ("carrying", "once"))
"""Worlds that share a table."""


class Cell(NamedTuple):
    """The runs of a method in a world, all seeds.

    Attributes:
        steps: mean over seeds to 90% of the best return; a run that did not reach it counts with all steps.
        seconds: processor time, likewise.
        replies: sampled replies, likewise.
        reached: number of runs that reached it.
        runs: number of runs.
        by_seed: the steps of each run; empty in cells that were recorded without them.
    """

    steps: Interval
    seconds: Interval
    replies: Interval
    reached: int
    runs: int
    by_seed: Sequence[int] = ()

    def show(self, measure: str = "steps") -> str:
        """The mean and its interval; if not all runs reached the goal, a lower bound and how many did."""
        if not self.reached:
            return "never"
        interval: Interval = getattr(self, measure)
        text = interval.text(digits=2 if measure == "seconds" else 0)
        return text if self.reached == self.runs else f"≥ {text} ({self.reached}/{self.runs})"


def read_runs(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The runs and the comparisons with exact advantages in a folder; a ValueError if there are none."""
    runs, checks = (
        [read_json(path, "remove it and run again") for path in sorted((folder / part).glob("*.json"))]
        for part in ("runs", "accuracy")
    )
    if not runs:
        raise ValueError(f"{folder} holds no runs; run without --report first")
    return runs, checks


def cells(runs: Sequence[dict[str, Any]]) -> dict[tuple[str, int, str], Cell]:
    """The cells by world, turns and method."""
    by_cell: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for run in runs:
        by_cell.setdefault((run["world"], run["turns"], run["method"]), []).append(run)
    found = {}
    for key, members in by_cell.items():
        steps = [run["steps"] if run["reached"] is None else run["reached"] for run in members]
        reached = sum(run["reached"] is not None for run in members)
        spent = [bootstrap([run[name] for run in members]) for name in ("seconds", "replies")]
        found[key] = Cell(bootstrap(steps), *spent, reached, len(members), steps)
    return found


def read_cells(record: dict[str, Any]) -> dict[tuple[str, int, str], Cell]:
    """The cells of a record of `write_report`."""
    return {
        (one["world"], one["turns"], one["method"]): Cell(
            *(Interval(**one[name]) for name in ("steps", "seconds", "replies")),
            one["reached"],
            one["runs"],
            one.get("by_seed", ()),
        )
        for one in record["cells"]
    }


def write_report(folder: Path, pages: Path | None = None, *, add: bool = False) -> tuple[list[Path], str]:
    """Write the record, the tables and the picture of a folder, into it or for the page.

    The record has all cells and comparisons, rounded to six digits.

    Args:
        folder: of the bench.
        pages: folder of the page; its `results` has the record and the picture.
        add: keep parts of the page's record that the folder lacks.

    Returns:
        The files' paths, and the table of replies.

    Raises:
        ValueError: there are no runs, or the record to keep has other settings.
        ImportError: matplotlib is not installed; nothing is written then.
    """
    runs, checks = read_runs(folder)
    entries = []
    for key, cell in sorted(cells(runs).items()):
        spans = {name: getattr(cell, name)._asdict() for name in ("steps", "seconds", "replies")}
        counts = {"reached": cell.reached, "runs": cell.runs, "by_seed": cell.by_seed}
        entries.append({**dict(zip(PLACE, key, strict=True)), **spans, **counts})
    record = {"settings": read_json(folder / "settings.json"), "cells": entries, "accuracy": checks}
    record = json.loads(json.dumps(record), parse_float=lambda text: round(float(text), 6))
    records = folder if pages is None else pages / "results"
    if add:
        record = _added(read_json(records / JSON), record)
    found = read_cells(record)
    figure = draw(found)  # which needs matplotlib, so before anything is written
    paths = [records / JSON, records / PICTURE, (pages or folder) / PAGE]
    write_text(paths[0], json.dumps(record) + "\n")
    save_figure(figure, paths[1])
    write_text(paths[2], tables(found, record["accuracy"]))
    return paths, replies_table(found)


def _added(kept: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A record plus the cells and comparisons that only another record has."""
    if kept["settings"] != new["settings"]:
        other = different(kept["settings"], new["settings"])
        raise ValueError(f"the record has other settings for {other}; leave out --add and run everything")
    made: dict[str, Any] = {"settings": new["settings"]}
    for part, names in (("cells", PLACE), ("accuracy", (*PLACE, "policy"))):
        both = {tuple(one[name] for name in names): one for one in (*kept[part], *new[part])}
        made[part] = [both[key] for key in sorted(both)]
    return made


def replies_table(found: dict[tuple[str, int, str], Cell]) -> str:
    """A Markdown table of the replies sampled at K = 5 with trees and with other comparisons."""
    rows = []
    for name in TREES:
        entries = [found.get((world, SHORT, name)) for world in WORLDS]
        rows.append([METHODS[name].title, *(cell.show("replies") if cell else "not run" for cell in entries)])
    return "\n".join(markdown_table([f"replies, K = {SHORT}", *WORLDS], rows))


def tables(found: dict[tuple[str, int, str], Cell], checks: Sequence[dict[str, Any]]) -> str:
    """A page of all tables, with a row for each method and a column for each world and number of turns."""
    measured = {(one["world"], one["turns"], one["method"], one["policy"]): one for one in checks}

    def trained(measure: str) -> Callable[[str, int, str], str]:
        def show(world: str, turns: int, method: str) -> str:
            cell = found.get((world, turns, method))
            return cell.show(measure) if cell else "not run"

        return show

    def cosine(world: str, turns: int, method: str) -> str:
        both = [measured.get((world, turns, method, policy)) for policy in POLICIES]
        return "; ".join(_cosine(one) for one in both)

    def by_turn(measure: str) -> Callable[[str, int, str], str]:
        def show(world: str, turns: int, method: str) -> str:
            one = measured.get((world, turns, method, "halfway"))
            if one is None:
                return "not run"
            return "no scale" if one[measure] is None else ", ".join(f"{value:.2f}" for value in one[measure])

        return show

    def missing(method: str, world: str, turns: int) -> str:
        return METHODS[method].missing(WORLDS[world](turns))

    parts = [
        ("Steps to 90% of the best return", trained("steps")),
        ("Processor seconds to 90% of the best return", trained("seconds")),
        ("Cosine of expected and exact advantages ± standard error, before training; halfway", cosine),
        ("Bias by turn, halfway, in lengths of the exact advantage", by_turn("bias")),
        ("Standard deviation by turn, halfway, in lengths of the exact advantage", by_turn("noise")),
    ]
    columns = [
        (world, turns) for world in WORLDS for turns in sorted({key[1] for key in found if key[0] == world})
    ]
    lines = ["# All tables of the bench for credit", ""]
    for title, show in parts:
        lines += [f"## {title}", ""]
        for worlds in TOGETHER:
            own = [place for place in columns if place[0] in worlds]
            heads = ["method", *(f"{world}, K = {turns}" for world, turns in own)]
            rows = [
                [METHODS[name].title, *("n/a" if missing(name, *p) else show(*p, name) for p in own)]
                for name in METHODS
            ]
            rows = [row for row in rows if {*row[1:]} - {"n/a"}]
            if own:
                lines += [*markdown_table(heads, rows), ""]
    lines += ["## Rank correlation of steps with bias, with standard deviation, before training; halfway", ""]
    lengths = sorted({turns for _, turns in columns})
    ranks = [
        [world, *(_rank_correlations(found, measured, world, turns) for turns in lengths)]
        for world in dict.fromkeys(world for world, _ in columns)
    ]
    lines += [*markdown_table(["world", *(f"K = {turns}" for turns in lengths)], ranks), ""]
    lines += [
        "Means over seeds with 95% bootstrap intervals (none for one seed). Never: no run reached the goal. "
        "≥: this many runs reached it, the others count with all their steps, and the mean is too low. "
        "Noise: the expected advantages are too small against their noise for a cosine. No scale: they point "
        "nowhere or away. Not run: there is no such run, or no policy halfway because the exact gradient "
        "stops before. Rank correlations (Spearman's) are over methods that have a scale, with bias "
        "and standard deviation over all turns. n/a: the method does not apply:",
        "",
        *reasons(columns),
    ]
    return "\n".join(lines) + "\n"


def _cosine(check: dict[str, Any] | None) -> str:
    if check is None:
        return "not run"
    return "noise" if check["cosine"] is None else f"{check['cosine']:.2f} ± {check['error']:.2f}"


def _lengths(check: dict[str, Any]) -> list[float]:
    """Bias and standard deviation over all turns."""
    return [sum(value**2 for value in check[key]) ** 0.5 for key in ("bias", "noise")]


def _rank_correlations(
    found: dict[tuple[str, int, str], Cell],
    measured: dict[tuple[str, int, str, str], dict[str, Any]],
    world: str,
    turns: int,
) -> str:
    """Rank correlations of the steps to the goal with bias and with standard deviation, by each policy."""
    shown = []
    for policy in POLICIES:
        checks = [(method, measured.get((world, turns, method, policy))) for method in METHODS]
        known = [(method, check) for method, check in checks if check and check["bias"] is not None]
        known = [(method, check) for method, check in known if (world, turns, method) in found]
        if len(known) < LEAST:
            shown.append("too few" if known else "not run")
            continue
        steps = [found[world, turns, method].steps.mean for method, _ in known]
        both = zip(*(_lengths(check) for _, check in known), strict=True)
        shown.append(", ".join(f"{spearmanr(steps, values).statistic:.2f}" for values in both))
    return "; ".join(shown)


def reasons(columns: Sequence[tuple[str, int]]) -> list[str]:
    """For each world, a line for each reason why methods do not apply."""
    lines = []
    for world in dict.fromkeys(world for world, _ in columns):
        table = WORLDS[world](2)
        why: dict[str, list[str]] = {}
        for method in METHODS.values():
            if missing := method.missing(table):
                why.setdefault(missing, []).append(method.title)
        lines += [f"- {world}: {'; '.join(titles)}: {reason}" for reason, titles in why.items()]
    return lines


def draw(found: dict[tuple[str, int, str], Cell]) -> Any:
    """A panel for each world: steps of each method with their interval, one colour for each number of turns.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    worlds = [world for world in WORLDS if any(key[0] == world for key in found)]
    lengths = sorted({key[1] for key in found})
    names = [method for method in METHODS if any(key[2] == method for key in found)]
    figure = new_figure(1.15 * len(worlds) + 1.7, 0.3 * len(names) + 1.2)
    axes = figure.subplots(1, len(worlds), squeeze=False, sharey=True)[0]
    handles: dict[str, Any] = {}
    for axis, world in zip(axes, worlds, strict=True):
        for (place, method), (k, turns) in itertools.product(enumerate(names), enumerate(lengths)):
            if (cell := found.get((world, turns, method))) is None:
                continue
            mean, low, high = cell.steps
            y = place + 0.18 * (k - (len(lengths) - 1) / 2)
            axis.plot([low, high], [y, y], color=COLOURS[k], linewidth=1.2)
            whole = cell.reached == cell.runs
            (handle,) = axis.plot(
                [mean], [y], "o" if whole else ">", color=COLOURS[k], markersize=3.2,
                markerfacecolor=COLOURS[k] if whole else "white", linestyle="none",
            )  # fmt: skip
            if whole:
                handles.setdefault(f"{turns} turns", handle)
        axis.set_title(world, fontsize=9)
        axis.set_yticks(range(len(names)), [METHODS[name].title for name in names])
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_xscale("log")
        axis.set_xlim(6, 400)
        axis.set_xticks([10, 30, 100, 300], ["10", "30", "100", "300"])
        axis.minorticks_off()
        plain_axis(axis)
    figure.legend(
        handles.values(), handles.keys(), ncols=4, loc="outside upper center", frameon=False, fontsize=8
    )
    figure.supxlabel(
        "training steps to 90% of the best return: mean of the seeds and its 95% interval\n"
        "hollow triangle: not every run reached it, so the mean is too low; "
        "empty: the method needs what this world lacks, or was not run",
        fontsize=8,
    )
    return figure
