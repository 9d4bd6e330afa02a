"""Each tutorial runs from top to bottom: its files, its Python and its commands, in one folder."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import pytest

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\w+)\.py\n")  # the first line of a block that is a file
TUTORIALS = [ROOT / "docs" / "quickstart.md", *sorted((ROOT / "docs" / "tutorials").glob("*_*.md"))]


def run_commands(block, folder):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    for line in block.splitlines():
        if line.startswith("$ "):
            program, *words = shlex.split(line[2:])
            module = {"memenvs": ["-m", "memenvs"], "python": []}[program]
            command = [sys.executable, *module, *words]
            done = subprocess.run(
                command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    blocks = FENCE.findall(page.read_text(encoding="utf-8"))
    if not any(language == "python" for language, _ in blocks):
        pytest.skip("its code runs in `make test-trainers`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    registered, names = dict(gym.registry), {"__name__": "__main__"}
    try:
        for number, (language, block) in enumerate(blocks):
            if language == "console":
                run_commands(block, tmp_path)
            elif file := FILE.match(block):
                (tmp_path / f"{file[1]}.py").write_text(block, encoding="utf-8")
                monkeypatch.delitem(sys.modules, file[1], raising=False)
            else:
                exec(compile(block, f"{page.stem}, block {number}", "exec"), names)
    finally:
        for name in set(gym.registry) - set(registered):
            del gym.registry[name]


def test_every_tutorial_is_on_their_page():
    index = (ROOT / "docs" / "tutorials" / "index.md").read_text(encoding="utf-8")
    assert [page.stem for page in TUTORIALS[1:] if f"({page.name})" not in index] == []
