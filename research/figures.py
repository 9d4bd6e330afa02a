"""Redraw the pictures of records in `research/results`, and those of `docs` that are made from them.

python -m research.figures
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from memenvs.core.files import read_json
from memenvs.evaluation.plots import line_style, new_figure, plain_axis, save_figure
from research.credit_bench import report
from research.reproduce import runs

IMAGES = Path(__file__).parents[1] / "docs" / "images"
FRONT = IMAGES / "turn_credit.png"
FRONT_RECORD = "tutorial.json"
CURVES = {
    "results_tools": (
        "Calling a tool",
        "tool_use",
        "eval_em",
        {"MT-GRPO": "turn credit", "GRPO-OR": "outcome alone"},
    ),
    "results_sokoban": (
        "Sokoban",
        "sokoban_1",
        "eval_success",
        {"MT-PPO": "PPO, turn rewards", "PPO-OR": "PPO, outcome alone", "GRPO-MR": "GRPO, summed rewards"},
    ),
    "results_reading": (
        "Reading with a memory",
        "reading_methods",
        "eval_success",
        {"TAMTRL, change": "TAMTRL, paid for changes", "outcome only": "outcome alone", "TAMTRL": "TAMTRL"},
    ),
}
"""Pictures of `docs` over training: title, record, a number of it, methods with labels."""
LABELS = {"eval_em": "exact match", "eval_success": "success"}


def draw_all(records: Path, out: Path) -> list[Path]:
    """Draw a picture into a folder for each record of another that has one; return their paths."""
    pictures = []
    for file in sorted(records.glob("*.json")):
        record = read_json(file, "make it again by its command in research/reproductions.md")
        picture = out / f"{file.stem}.png"
        if "cells" in record:
            save_figure(report.draw(report.read_cells(record)), picture)
        elif "curves" in record:
            runs.draw(picture, record)
        else:  # a record with a table only
            continue
        pictures.append(picture)
    return pictures


def draw_front(record: Mapping[str, Any], picture: Path) -> None:
    """Draw the success of the tutorial's reader with turn credit and with the outcome alone.

    The text is large enough for a phone, where the picture is 360 pixels wide.
    """
    figure = new_figure(5.2, 4.9)
    axis = figure.subplots()
    labels = {
        "TAMTRL": "credit for each turn\n(TAMTRL)",
        "outcome alone": "the outcome alone",
    }
    for place, (method, label) in enumerate(labels.items()):
        curves = record["curves"][method]["eval_success"]
        steps, values = curves[0][0], 100 * np.array([value for _, value in curves])
        style = line_style(place) | {"linewidth": 2.4}
        _line(axis, steps, (values.mean(0), values.min(0), values.max(0)), style)
        above, below = (
            (steps[-2], values.max(0)[-2] + 1, "bottom"),
            (steps[-1], values.min(0)[-3:].min() - 1, "top"),
        )
        x, y, side = (above, below)[place]
        axis.text(x, y, label, color=style["color"], fontsize=12, weight="bold", ha="right", va=side)
        end = f"{values.mean(0)[-1]:.0f}%"
        axis.text(
            1.015 * steps[-1],
            values.mean(0)[-1],
            end,
            color=style["color"],
            fontsize=12,
            weight="bold",
            va="center",
        )
    axis.set_xlim(right=1.11 * steps[-1])
    axis.set_ylim(0, 100)
    axis.set_xlabel("training step", fontsize=11)
    axis.set_ylabel("unseen questions answered right (%)", fontsize=11)
    axis.set_title(
        "Paid for each turn, a model learns to answer\nmore questions from its memory",
        fontsize=12.5,
        loc="left",
    )
    plain_axis(axis)
    axis.tick_params(labelsize=11)
    seeds = len(record["seeds"])
    figure.supxlabel(f"lines: mean of {seeds} seeds; bands: lowest to highest seed", fontsize=10.5)
    save_figure(figure, picture)


def draw_curves(title: str, record: Mapping[str, Any], metric: str, methods: Mapping[str, str]) -> Any:
    """A small picture that is legible on a phone: each method's mean as a line, its seeds' range as a band.

    Args:
        title: what was learned.
        record: of `runs.finish`.
        metric: a number of its evaluations.
        methods: the label of each method that is shown.
    """
    figure, axis = _small(LABELS[metric])
    for k, (method, label) in enumerate(methods.items()):
        curves = record["curves"][method][metric]
        steps, values = curves[0][0], np.array([value for _, value in curves])
        _line(axis, steps, (values.mean(0), values.min(0), values.max(0)), line_style(k), label)
    axis.set_xlabel("training step")
    axis.set_ylim(bottom=0)
    _legend(figure, title)
    return figure


def draw_turns(title: str, record: dict[str, Any], world: str, methods: Mapping[str, str]) -> Any:
    """A small picture of the bench: steps to the goal by the number of turns, with 95% intervals.

    Args:
        title: what was learned.
        record: of the bench.
        world: name of the world.
        methods: the label of each method that is shown.
    """
    cells = report.read_cells(record)
    figure, axis = _small("training steps to the goal")
    for k, (method, label) in enumerate(methods.items()):
        by_turns = {turns: cell for (of, turns, name), cell in cells.items() if (of, name) == (world, method)}
        style, turns = line_style(k), sorted(by_turns)
        means, lows, highs = zip(*(by_turns[n].steps for n in turns), strict=True)
        _line(axis, turns, (means, lows, highs), style, label)
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


def _line(
    axis: Any, x: Any, middle_low_high: Any, style: Mapping[str, Any], label: str | None = None
) -> None:
    """Draw a line and its band."""
    middle, low, high = middle_low_high
    axis.plot(x, middle, label=label, **style)
    axis.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


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
        name: draw_curves(title, read_json(records / f"{file}.json"), metric, methods)
        for name, (title, file, metric, methods) in CURVES.items()
    }
    bench = read_json(records / "credit_bench.json")
    methods = {"tamtrl": "TAMTRL", "outcome": "outcome alone"}
    figures["results_turns"] = draw_turns("Carrying a fact over turns", bench, "carrying", methods)
    for name, figure in figures.items():
        save_figure(figure, out / f"{name}.png")
    return [out / f"{name}.png" for name in figures]


if __name__ == "__main__":
    draw_front(read_json(runs.RESULTS / FRONT_RECORD), FRONT)
    for path in [FRONT, *draw_results(runs.RESULTS, IMAGES), *draw_all(runs.RESULTS, runs.RESULTS)]:
        sys.stdout.write(f"{path}\n")
