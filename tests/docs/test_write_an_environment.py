"""The environments that the tutorial writes pass the suite's conformance tests."""

import subprocess
import sys

import pytest
from pages import DOCS, FILE, blocks

EXAMPLE = DOCS / "tutorials" / "write_an_environment.md"


@pytest.mark.parametrize(("env_id", "skips"), [("HiLo-v0", True), ("ScoredHiLo-v0", False)])
def test_an_environment_of_the_tutorial_passes_the_conformance_tests(env_id, skips, tmp_path):
    for block in blocks(EXAMPLE):
        if file := FILE.match(block.body):
            (tmp_path / f"{file[1]}.py").write_text(block.body, encoding="utf-8")
    (tmp_path / "test_hilo.py").write_text(
        "import scored_hilo, pytest\n"
        "from memenvs.testing import *\n"
        f'pytestmark = pytest.mark.parametrize("env_id", ["{env_id}"])\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_hilo.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert ("skipped" in done.stdout) == skips
