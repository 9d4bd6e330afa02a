"""How every plot looks: colours, dashes, axes, and files that are equal for equal figures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from memenvs.core.files import whole_file, write_json, write_text
from memenvs.core.optional import install_line, require
from memenvs.core.terminal import show

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""From the palette of Okabe and Ito, which colour-blind readers can tell apart."""

MEANINGS = {
    "credit": ("#0072b2", "#56b4e9"),
    "loss": ("#b34f00", "#f0803c"),
    "evidence": ("#f0e442", "#f0e442"),
    "kept": ("#00755a", "#2fbf94"),
}
"""What colours mean in the viewer and in films, on a light and on a dark ground.

They are of the same palette, darker or lighter where text in them would be hard to read.
"""

DASHES = ("solid", "dashed", "dashdot", "dotted")
BAND = "lines: mean of the seeds; bands: from the lowest to the highest seed"


Pictures = dict[str, tuple[str, Callable[[], Any]]]
"""By the name of a figure's files its title, and what draws it."""


def new_figure(width: float, height: float) -> Any:
    """An empty `matplotlib.figure.Figure`; its size in inches, to be shown at about 100 pixels an inch.

    Raises:
        ImportError: matplotlib is not installed.
    """
    return require("matplotlib.figure", "plots").Figure((width, height), dpi=200, layout="constrained")


def line_style(k: int) -> dict[str, Any]:
    """Colour and dashes of line k; twelve differ, and neighbours differ in both."""
    return {"color": COLOURS[k % len(COLOURS)], "linestyle": DASHES[k % len(DASHES)], "linewidth": 1.4}


def plain_axis(axis: Any, grid: str = "both") -> None:
    """Give an axis a light grid (`x`, `y` or `both`), small labels and no frame on its right and top."""
    axis.tick_params(labelsize=8)
    axis.spines[["right", "top"]].set_visible(False)
    axis.grid(axis=grid, alpha=0.25)


def save_figure(figure: Any, path: Path) -> None:
    """Write a figure as `.png` or `.svg`, by the path's suffix.

    The file is written whole and holds no date, so that the same figure gives the same file.

    Raises:
        OSError: it cannot be written; with the path.
    """
    kind = path.suffix.lower()[1:]
    stamp = {"png": "Software", "svg": "Date"}[kind]
    looks = {"svg.hashsalt": "memenvs", "axes.unicode_minus": False}  # the minus of tables
    with require("matplotlib", "plots").rc_context(looks), whole_file(path) as work:
        figure.savefig(work, format=kind, metadata={stamp: None})


def write_page(
    folder: str | Path, name: str, text: str, numbers: Mapping[str, Any], pictures: Pictures
) -> list[Path]:
    """Write a text and figures as a page, the numbers behind them, and the figures as `.png` and `.svg`.

    Without matplotlib there are only the first two. What was written is shown on standard error.

    Args:
        folder: where to write.
        name: name of the files `NAME.md` and `NAME.json`.
        text: the page without the figure.
        numbers: for the JSON file.
        pictures: by the name of a figure's files its title on the page, and what draws it.

    Returns:
        The paths of what was written.

    Raises:
        OSError: a file cannot be written; with its path.
    """
    place = Path(folder)
    page, values = place / f"{name}.md", place / f"{name}.json"
    try:
        figures = {drawing: draw() for drawing, (_, draw) in pictures.items()}
        text += "".join(f"\n![{title}]({drawing}.png)\n" for drawing, (title, _) in pictures.items())
    except ImportError:
        figures = {}
    write_text(page, text)
    write_json(values, dict(numbers))
    files = [page, values]
    for drawing, figure in figures.items():
        for path in (place / f"{drawing}.png", place / f"{drawing}.svg"):
            save_figure(figure, path)
            files.append(path)
    show(f"{place}: {', '.join(path.name for path in files)}\n", sys.stderr)
    if not figures:
        fix = f"`{install_line('plots')}`"
        show(f"no plot was drawn, because matplotlib is missing: {fix}\n", sys.stderr)
    return files
