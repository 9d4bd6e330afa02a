"""Redraw the pictures of records in `research/results`, and the one on the front page.

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

FRONT = Path(__file__).parents[1] / "docs" / "images" / "turn_credit.png"
FRONT_RECORD = "reading_methods.json"


def draw_all(records: Path, out: Path) -> list[Path]:
    """Draw a picture into a folder for each record of another that has one; return their paths."""
    made = []
    for file in sorted(records.glob("*.json")):
        record = read_json(file, "make it again by its command in research/reproductions.md")
        picture = out / f"{file.stem}.png"
        if "cells" in record:
            save_figure(report.draw(report.read_cells(record)), picture)
        elif "curves" in record:
            runs.draw(picture, record)
        else:  # a record with a table only
            continue
        made.append(picture)
    return made


def draw_front(record: Mapping[str, Any], picture: Path) -> None:
    """Draw the success of chunked reading with turn credit and with the outcome alone.

    The text is large enough for a phone, where the picture is 360 pixels wide.
    """
    figure = new_figure(5.2, 4.9)
    axis = figure.subplots()
    labels = {
        "TAMTRL, change": "credit for each turn\n(TAMTRL, change=True)",
        "outcome only": "the outcome alone",
    }
    for place, (method, label) in enumerate(labels.items()):
        found = record["curves"][method]["eval_success"]
        steps, values = found[0][0], 100 * np.array([known for _, known in found])
        style = line_style(place) | {"linewidth": 2.4}
        axis.plot(steps, values.mean(0), **style)
        axis.fill_between(steps, values.min(0), values.max(0), color=style["color"], alpha=0.15, linewidth=0)
        middle = len(steps) * 5 // 8
        side, up = (("right", "bottom"), ("left", "top"))[place]
        over = (values.max(0), values.min(0))[place][middle] + (1, -1)[place]
        axis.text(
            steps[middle], over, label, color=style["color"], fontsize=12, weight="bold", ha=side, va=up
        )
        end = f"{values.mean(0)[-1]:.0f}%"
        axis.text(
            steps[-1] + 1.5,
            values.mean(0)[-1],
            end,
            color=style["color"],
            fontsize=12,
            weight="bold",
            va="center",
        )
    axis.set_xlim(right=steps[-1] + 11)
    axis.set_ylim(20, 80)
    axis.set_xlabel("training step", fontsize=11)
    axis.set_ylabel("test questions answered right (%)", fontsize=11)
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


if __name__ == "__main__":
    draw_front(read_json(runs.RESULTS / FRONT_RECORD), FRONT)
    for path in [FRONT, *draw_all(runs.RESULTS, runs.RESULTS)]:
        sys.stdout.write(f"{path}\n")
