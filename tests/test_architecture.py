"""What docs/architecture.md says is so: the folders, the files on each way, and the example environment."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from memenvs import TextVectorEnv
from memenvs.wrappers import VectorRewardWrapper

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


class Files:
    """The product's files whose functions run inside the block, in the order in which they are first called.

    Args:
        apart: functions that are left out, with all that they call.
    """

    def __init__(self, *apart):
        self._apart = {function.__code__ for function in apart}
        self._left_out = None
        self.names = []

    def __enter__(self):
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)

    def _note(self, frame, event, _):
        if self._left_out is not None:
            if event == "return" and frame is self._left_out:
                self._left_out = None
        elif event == "call" and frame.f_code in self._apart:
            self._left_out = frame
        elif event == "call" and frame.f_code.co_filename[0] != "<":
            name = os.path.relpath(os.path.realpath(frame.f_code.co_filename), ROOT)
            if name.startswith(("memenvs/", "wrappers/", "baselines/", "data/")) and name not in self.names:
                self.names.append(name)


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


@pytest.mark.parametrize("env_id", ["MemChunkQA-v0", "MemSearchQA-v0"])
def test_a_question_becomes_an_observation_through_at_most_8_files(env_id):
    """From `reset` of an environment that is made: the task's columns in Arrow to the text."""
    env = gym.make(env_id, tasks="world-test")
    env.reset(seed=0)
    with Files() as way:
        env.reset(seed=1)
    assert "memenvs/tasks/taskset.py" in way.names
    assert len(way.names) <= 8, way.names


SEARCH = ["<think></think><search>the mayor</search>"] * 2


@pytest.mark.parametrize(
    ("env_id", "method", "replies"),
    [("MemChunkQA-v0", "TAMTRL", []), ("MemSearchQA-v0", "SearchRewards", [SEARCH])],
)
def test_a_reply_gets_its_reward_through_at_most_14_files(env_id, method, replies):
    """From `VectorRewardWrapper.step` to its return, the scorer included, at every turn of a group of two.

    The retriever's files are not counted: it may be a server as well.
    """
    inner = TextVectorEnv(env_id, 2, autoreset_mode="Disabled", tasks="world-test")
    venv = VectorRewardWrapper(inner, [method], "lexical", group_size=2)
    venv.reset(seed=0)
    retriever = getattr(inner.envs[0].unwrapped, "retriever", None)
    searching = [type(retriever).search, type(retriever).passages] if retriever else []
    over = np.zeros(2, dtype=bool)
    while not over.all():
        actions = replies.pop(0) if replies else [env.unwrapped.gold_reply() for env in inner.envs]
        with Files(*searching) as way:
            _, _, terminated, truncated, infos = venv.step(actions)
        assert {"wrappers/reward_wrapper.py", "memenvs/core/env.py"} <= set(way.names)
        assert len(way.names) <= 14, way.names
        over = terminated | truncated
    assert infos["metrics"]["success"].tolist() == [1.0, 1.0]
