"""docs/architecture.md says what is so: the folders and their order, and the example of an environment."""

import ast
import os
import re
import subprocess
import sys
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


def test_the_environment_of_the_page_passes_the_conformance_tests(tmp_path):
    (code,) = re.findall(r"^```python\n(# hilo\.py\n.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "hilo.py").write_text(code, encoding="utf-8")
    (tmp_path / "test_hilo.py").write_text(
        "import hilo, pytest\n"
        "from memenvs.testing import *\n"
        'pytestmark = pytest.mark.parametrize("env_id", ["HiLo-v0"])\n'
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
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 50
