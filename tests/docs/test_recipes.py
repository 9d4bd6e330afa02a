"""Snippets that need a module which `make test` does not install, each run by the target that installs it."""

from importlib.util import find_spec

import pytest
from pages import PAGES, blocks, run_python

RECIPES = [block for page in PAGES for block in blocks(page) if block.language == "python" and block.needs]


@pytest.mark.filterwarnings("default")  # of the trainers
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda block: block.id)
def test_a_snippet_runs_where_what_it_needs_is_installed(recipe, tmp_path, monkeypatch):
    if find_spec(recipe.needs) is None:
        pytest.skip(f"{recipe.needs} is not installed")
    monkeypatch.chdir(tmp_path)
    run_python(recipe, {"__name__": "__main__"})
