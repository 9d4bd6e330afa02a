"""Redraw the pictures of `research/reproductions.md`, each from its record in `research/results`.

python -m research.figures
"""

from __future__ import annotations

import sys
from pathlib import Path

from memenvs.core.files import read_json
from memenvs.evaluation.plots import save_figure
from research.credit_bench import report
from research.reproduce import runs


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


if __name__ == "__main__":
    for path in draw_all(runs.RESULTS, runs.RESULTS):
        sys.stdout.write(f"{path}\n")
