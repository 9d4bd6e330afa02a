"""The recipes of the docs run as written, each where its trainer is installed."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "trainers").glob("*.md"))
FENCE = re.compile(r"^```py (\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)  # ```py MODULE: needs that module
RECIPES = [
    pytest.param(match.group(1), match.group(2), id=f"{page.stem}-{match.group(1)}-{number}")
    for page in PAGES
    for number, match in enumerate(FENCE.finditer(page.read_text()))
]


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.filterwarnings("default")  # of the trainers
@pytest.mark.parametrize(("module", "code"), RECIPES)
def test_a_recipe_runs(module, code, tmp_path, monkeypatch):
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "recipe", "exec"), {"__name__": "__main__"})
