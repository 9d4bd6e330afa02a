"""The environments that the tutorial writes pass the suite's conformance tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLE = (ROOT / "docs" / "tutorials" / "write_an_environment.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("env_id", "skips"), [("HiLo-v0", True), ("ScoredHiLo-v0", False)])
def test_an_environment_of_the_tutorial_passes_the_conformance_tests(env_id, skips, tmp_path):
    for code in re.findall(r"^```python\n(# \w+\.py\n.*?)^```", EXAMPLE, re.DOTALL | re.MULTILINE):
        (tmp_path / code.split()[1]).write_text(code, encoding="utf-8")
    (tmp_path / "test_hilo.py").write_text(
        "import scored_hilo, pytest\n"
        "from memenvs.testing import *\n"
        f'pytestmark = pytest.mark.parametrize("env_id", ["{env_id}"])\n'
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_hilo.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert ("skipped" in done.stdout) == skips
