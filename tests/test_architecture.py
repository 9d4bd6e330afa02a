"""docs/architecture.md says what is so: the rooms and their order."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def layers():
    """The layers of memenvs in pyproject.toml, top first."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r'^containers = \["memenvs"\].*?^layers = (\[.*?^\])', text, re.DOTALL | re.MULTILINE)
    return [line.split(" | ") for line in ast.literal_eval(listed[1])]


def test_the_rows_of_the_drawing_are_the_layers_that_are_checked():
    rows = []
    for number, name in re.findall(r"^\| *(\d*) *\| `(\w+)` \|", PAGE, re.MULTILINE):
        if number:
            rows.append([])
        rows[-1].append(name)
    assert rows == layers()
