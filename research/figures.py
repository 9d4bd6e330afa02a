"""Redraw the pictures of records in `research/results`, and those of `docs` that are made from them.

python -m research.figures
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from memenvs.core.arguments import run_command
from memenvs.evaluation.plots import line_style, new_figure, plain_axis, save_figure
from research import harness, turn_values
from research.credit_bench import report

IMAGES = Path(__file__).parents[1] / "docs" / "images"
FRONT = IMAGES / "turn_credit.png"
FRONT_RECORD = "tutorial.json"
CALLING = {"MT-GRPO": "turn credit", "GRPO-OR": "outcome alone"}
SOKOBAN = {"MT-PPO": "PPO, turn rewards", "PPO-OR": "PPO, outcome alone", "GRPO-MR": "GRPO, summed rewards"}
READING = {"TAMTRL, change": "TAMTRL, paid for changes", "outcome only": "outcome alone", "TAMTRL": "TAMTRL"}
CURVES = {
    "results_tools": ("Calling a tool", "tool_use", "eval_em", CALLING),
    "results_sokoban": ("Sokoban", "sokoban_1", "eval_success", SOKOBAN),
    "results_reading": ("Reading with a memory", "reading_methods", "eval_success", READING),
}
"""Pictures of `docs` over training: title, record, a number of it, methods with labels."""
LONG = {"outcome only": "outcome alone", "TAMTRL": "TAMTRL"}
"""Methods of the long runs, with labels."""
TURNS = 4  # of reading that nearly every episode has
WORK = ("sampling", "scoring", "update")  # what takes the seconds of a step
LABELS = {"eval_em": "exact match", "eval_success": "success"}


def draw_all(records: Path, out: Path) -> list[Path]:
    """Draw a picture into a folder for each record of another that has one; return their paths."""
    pictures = []
    for file in sorted(records.glob("*.json")):
        record = harness.read_record(file)
        picture = out / f"{file.stem}.png"
        if "cells" in record:
            save_figure(report.draw(report.read_cells(record)), picture)
        elif "curves" in record and file.name != FRONT_RECORD:
            harness.draw(picture, record)
        else:  # a record with a table only, or that of the front page
            continue
        pictures.append(picture)
    return pictures


def draw_front(record: Mapping[str, Any], picture: Path) -> None:
    """Draw the success of the tutorial's reader with turn credit and with the outcome alone.

    The text is large enough for a phone, where the picture is 360 pixels wide.
    """
    figure = new_figure(5.2, 4.9)
    axis = figure.subplots()
    by_turn = "credit for each turn\n(TAMTRL, taught teacher)"
    labels = {"TAMTRL": by_turn, "outcome alone": "the outcome alone"}
    for place, (method, label) in enumerate(labels.items()):
        steps, shares = harness.seed_range(record["curves"][method]["eval_success"])
        mean, low, high = (100 * share for share in shares)
        style = line_style(place) | {"linewidth": 2.4}
        harness.draw_band(axis, steps, (mean, low, high), style)
        x, y, side = ((steps[-2], high[-2] + 1, "bottom"), (steps[-1], low[-3:].min() - 1, "top"))[place]
        look = {"color": style["color"], "fontsize": 12, "weight": "bold"}
        axis.text(x, y, label, ha="right", va=side, **look)
        axis.text(1.015 * steps[-1], mean[-1], f"{mean[-1]:.0f}%", va="center", **look)
    axis.set_xlim(right=1.11 * steps[-1])
    axis.set_ylim(0, 100)
    axis.set_xlabel("training step", fontsize=11)
    axis.set_ylabel("unseen questions answered right (%)", fontsize=11)
    title = "Questions that a model answers from its memory,\npaid for each turn or for the answer alone"
    axis.set_title(title, fontsize=12.5, loc="left")
    plain_axis(axis)
    axis.tick_params(labelsize=11)
    seeds = len(record["seeds"])
    figure.supxlabel(f"lines: mean of {seeds} seeds; bands: lowest to highest seed", fontsize=10.5)
    save_figure(figure, picture)


def draw_curves(title: str, record: Mapping[str, Any], metric: str, methods: Mapping[str, str]) -> Any:
    """A picture for a phone: each method's mean as a line, its seeds' range as a band."""
    figure, axis = _small(LABELS[metric])
    for k, (method, label) in enumerate(methods.items()):
        steps, shares = harness.seed_range(record["curves"][method][metric])
        harness.draw_band(axis, steps, shares, line_style(k), label)
    axis.set_xlabel("training step")
    axis.set_ylim(bottom=0)
    _legend(figure, title)
    return figure


def draw_turns(title: str, record: dict[str, Any], world: str, methods: Mapping[str, str]) -> Any:
    """A small picture of the bench: steps to the goal by the number of turns, with 95% intervals."""
    cells = report.read_cells(record)
    figure, axis = _small("training steps to the goal")
    for k, (method, label) in enumerate(methods.items()):
        by_turns = {turns: cell for (of, turns, name), cell in cells.items() if (of, name) == (world, method)}
        style, turns = line_style(k), sorted(by_turns)
        means, lows, highs = zip(*(by_turns[n].steps for n in turns), strict=True)
        harness.draw_band(axis, turns, (means, lows, highs), style, label)
        for n in turns:
            whole = by_turns[n].reached == by_turns[n].runs
            inside = style["color"] if whole else "white"
            mark = {"marker": "o" if whole else "^", "markerfacecolor": inside}
            axis.plot(n, by_turns[n].steps.mean, color=style["color"], **mark)
            if not by_turns[n].reached:
                place = {"textcoords": "offset points", "ha": "right", "va": "center"}
                axis.annotate("never", (n, by_turns[n].steps.mean), (-8, 0), **place)
    axis.set_xlabel("turns in an episode")
    axis.set_xticks(turns)
    axis.set_ylim(bottom=0)
    _legend(figure, title)
    return figure


def draw_long(record: Mapping[str, Any]) -> Any:
    """The long runs of a reader by method: the last evaluation of each seed, and what a step costs.

    Args:
        record: `long_reader.json`.
    """
    before = record["methods"]["warmed up"][0]["found"][-1]
    last = {name: [run["found"][-1] for run in record["methods"][name]] for name in LONG}
    turns = {name: [run["unchanged"] for run in record["turns"][name].values()] for name in LONG}
    figure = new_figure(7.6, 4.6)
    grid = figure.subplots(2, 3)
    for axis in grid.flat:
        plain_axis(axis, "y")
    exact, taken, kept, unchanged, tokens, seconds = grid.flat
    for axis, number, title in (
        (exact, "em", "exact match"),
        (tokens, "reply_tokens", "tokens of all replies"),
    ):
        for k, name in enumerate(LONG):
            values = [one[number] for one in last[name]]
            style = line_style(k)
            axis.plot([k] * len(values), values, "o", color=style["color"], markerfacecolor="none")
            axis.hlines(np.mean(values), k - 0.3, k + 0.3, color=style["color"])
        axis.axhline(before[number], color="gray", linestyle="dotted")
        axis.set_title(title, fontsize=9, loc="left")
        axis.set_xlim(-0.6, len(LONG) - 0.4)
        axis.set_ylim(0, 1.1 * max(one[number] for runs in last.values() for one in runs))
    by_turn = {
        taken: (
            "facts shown that are noted",
            {name: [one["taken"] for one in last[name]] for name in LONG},
        ),
        kept: ("noted facts that are kept", {name: [one["kept"] for one in last[name]] for name in LONG}),
        unchanged: (
            "memories that do not change",
            {name: [[None, *run] for run in turns[name]] for name in LONG},
        ),
    }
    for axis, (title, runs) in by_turn.items():
        for k, name in enumerate(LONG):
            style = line_style(k)
            for run in runs[name]:
                axis.plot(
                    range(1, TURNS + 1),
                    np.array(run[:TURNS], float),
                    **style | {"alpha": 0.3, "linewidth": 1},
                )
            mean = np.mean([np.array(run[:TURNS], float) for run in runs[name]], axis=0)
            axis.plot(range(1, TURNS + 1), mean, **style | {"linewidth": 2})
        axis.set_title(title, fontsize=9, loc="left")
        axis.set_xticks(range(1, TURNS + 1))
        axis.set_ylim(0, 1.05)
        axis.set_xlabel("reading turn", fontsize=8)
    bottom = np.zeros(len(LONG))
    for k, work in enumerate(WORK):
        spent = [
            np.mean([run.get(f"seconds_{work}", 0.0) for run in record["costs"][name].values()])
            for name in LONG
        ]
        seconds.bar(range(len(LONG)), spent, 0.6, bottom, color=line_style(k + 2)["color"], label=work)
        bottom += spent
    seconds.set_title("seconds of a step", fontsize=9, loc="left")
    seconds.set_ylim(0, 1.6 * bottom.max())
    seconds.legend(frameon=False, fontsize=8, reverse=True)
    for axis in (exact, tokens, seconds):
        axis.set_xticks(range(len(LONG)), LONG.values())
    return figure


def _small(label: str) -> Any:
    figure = new_figure(3.6, 3.4)
    axis = figure.subplots()
    plain_axis(axis)
    axis.set_ylabel(label)
    return figure, axis


def _legend(figure: Any, title: str) -> None:
    look = {"alignment": "left", "frameon": False, "handlelength": 2.6}
    bold = {"size": 11, "weight": "bold"}
    figure.legend(loc="outside upper left", title=title, title_fontproperties=bold, **look)


def draw_results(records: Path, out: Path) -> list[Path]:
    """Draw the pictures of `docs` but the front page's into a folder; return their paths."""
    figures = {
        name: draw_curves(title, harness.read_record(records / f"{file}.json"), metric, methods)
        for name, (title, file, metric, methods) in CURVES.items()
    }
    bench = harness.read_record(records / "credit_bench.json")
    methods = {"tamtrl": "TAMTRL", "outcome": "outcome alone"}
    figures["results_turns"] = draw_turns("Carrying a fact over turns", bench, "carrying", methods)
    values = harness.read_record(records / f"{turn_values.RECORD}.json")
    figures["results_turn_values"] = turn_values.draw(values)
    figures["results_long_reader"] = draw_long(harness.read_record(records / "long_reader.json"))
    for name, figure in figures.items():
        save_figure(figure, out / f"{name}.png")
    return [out / f"{name}.png" for name in figures]


def redraw() -> None:
    """Draw every picture again from its record in research/results."""
    draw_front(harness.read_record(harness.RESULTS / FRONT_RECORD), FRONT)
    for path in [FRONT, *draw_results(harness.RESULTS, IMAGES), *draw_all(harness.RESULTS, harness.RESULTS)]:
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    sys.exit(run_command(redraw, sys.argv[1:], "python -m research.figures"))
