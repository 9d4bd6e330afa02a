"""Redraw the pictures of records in `research/results`, and those of `docs` that are made from them.

python -m research.figures
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memenvs.core.files import read_json
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
LABELS = {"eval_em": "exact match", "eval_success": "success"}


def draw_all(records: Path, out: Path) -> list[Path]:
    """Draw a picture into a folder for each record of another that has one; return their paths."""
    pictures = []
    for file in sorted(records.glob("*.json")):
        record = read_json(file, "make it again by its command in research/reproductions.md")
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
    figures["results_turn_values"] = turn_values.draw(read_json(records / f"{turn_values.RECORD}.json"))
    for name, figure in figures.items():
        save_figure(figure, out / f"{name}.png")
    return [out / f"{name}.png" for name in figures]


if __name__ == "__main__":
    draw_front(read_json(harness.RESULTS / FRONT_RECORD), FRONT)
    for path in [FRONT, *draw_results(harness.RESULTS, IMAGES), *draw_all(harness.RESULTS, harness.RESULTS)]:
        sys.stdout.write(f"{path}\n")
