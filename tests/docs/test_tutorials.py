"""Each tutorial runs from top to bottom: its files, its Python and its commands, in one folder."""

import sys

import gymnasium as gym
import pytest
from pages import DOCS, FILE, TUTORIALS, blocks, run_commands


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    if not any(block.language == "python" for block in blocks(page)):
        pytest.skip("its code runs in `make test-trainers`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    registered, names = dict(gym.registry), {"__name__": "__main__"}
    try:
        for block in blocks(page):
            if block.language == "console":
                run_commands(block.body, tmp_path)
            elif block.language == "python" and (file := FILE.match(block.body)):
                (tmp_path / f"{file[1]}.py").write_text(block.body, encoding="utf-8")
                monkeypatch.delitem(sys.modules, file[1], raising=False)
            elif block.language == "python":
                exec(compile(block.body, block.id, "exec"), names)
    finally:
        for name in set(gym.registry) - set(registered):
            del gym.registry[name]


def test_every_tutorial_is_on_their_page():
    index = (DOCS / "tutorials" / "index.md").read_text(encoding="utf-8")
    assert [page.stem for page in TUTORIALS[1:] if f"({page.name})" not in index] == []
