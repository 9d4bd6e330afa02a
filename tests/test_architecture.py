"""The environment that the tutorial writes passes the suite's own conformance tests."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXAMPLE = (ROOT / "docs" / "tutorials" / "write_an_environment.md").read_text(encoding="utf-8")


def test_the_environment_of_the_tutorial_passes_the_conformance_tests(tmp_path):
    (code,) = re.findall(r"^```python\n(# hilo\.py\n.*?)^```", EXAMPLE, re.DOTALL | re.MULTILINE)
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
