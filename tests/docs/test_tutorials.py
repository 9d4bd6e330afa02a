"""A tutorial runs from top to bottom: its files, its Python and its commands, in one folder.

So do the README and the pages that a newcomer reads first.
"""

import sys

import gymnasium as gym
import pytest
from pages import DOCS, FILE, TUTORIALS, WHOLE, blocks, run_console, run_python


@pytest.mark.parametrize("page", WHOLE, ids=lambda page: page.stem)
def test_a_tutorial_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    if not any(block.language == "python" for block in blocks(page)):
        pytest.skip("its code runs in `make test-trainers`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    registered, names = dict(gym.registry), {"__name__": "__main__"}
    try:
        for block in blocks(page):
            if block.language == "console":
                run_console(block, tmp_path)
            elif block.language == "python" and (file := FILE.match(block.body)):
                (tmp_path / f"{file[1]}.py").write_text(block.body, encoding="utf-8")
                monkeypatch.delitem(sys.modules, file[1], raising=False)
            elif block.language == "python":
                run_python(block, names)
    finally:
        for name in set(gym.registry) - set(registered):
            del gym.registry[name]


def test_every_tutorial_is_on_their_page():
    index = (DOCS / "tutorials" / "index.md").read_text(encoding="utf-8")
    assert [page.stem for page in TUTORIALS if f"({page.name})" not in index] == []
