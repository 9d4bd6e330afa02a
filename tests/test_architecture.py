"""What docs/architecture.md says is so: the folders, the files on each way, and the example it leads to."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import easy_sokoban
import gymnasium as gym
import numpy as np
import pytest

from memenvs import TextVectorEnv
from memenvs.wrappers import VectorRewardWrapper

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
EXAMPLE = (ROOT / "docs" / "tutorials" / "write_an_environment.md").read_text(encoding="utf-8")


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
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 50


def table(title):
    """The files of a way on the page."""
    (section,) = re.findall(rf"^### {title}\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE)
    return re.findall(r"^\| `(\S+)` \|", section, re.MULTILINE)


def question(env_id):
    """The files between `reset` of an environment that is made and its observation."""
    env = gym.make(env_id, tasks="world-test")
    env.reset(seed=0)
    with Files() as way:
        env.reset(seed=1)
    return way.names


@pytest.mark.parametrize("env_id", ["MemChunkQA-v0", "MemSearchQA-v0"])
def test_a_question_becomes_an_observation_through_at_most_8_files(env_id):
    names = question(env_id)
    assert "memenvs/tasks/taskset.py" in names
    assert len(names) <= 8, names


def test_the_page_has_the_files_from_a_question_to_an_observation():
    assert set(table("From a question to an observation")) == set(question("MemChunkQA-v0"))


def replies(env_id, method, first=()):
    """For each turn of a group of two, played by gold replies, the files between them and their rewards.

    The scorer's file is among them, the retriever's are not: it may be a server as well.

    Args:
        env_id: of a text environment with tasks.
        method: a reward method.
        first: replies to the first turns in place of gold ones.
    """
    inner = TextVectorEnv(env_id, 2, autoreset_mode="Disabled", tasks="world-test")
    venv = VectorRewardWrapper(inner, [method], "lexical", group_size=2)
    venv.reset(seed=0)
    retriever = getattr(inner.envs[0].unwrapped, "retriever", None)
    searching = [type(retriever).search, type(retriever).passages] if retriever else []
    over, found, first = np.zeros(2, dtype=bool), [], list(first)
    while not over.all():
        actions = [first.pop(0)] * 2 if first else [env.unwrapped.gold_reply() for env in inner.envs]
        with Files(*searching) as way:
            _, _, terminated, truncated, infos = venv.step(actions)
        found.append(way.names)
        over = terminated | truncated
    assert infos["metrics"]["success"].tolist() == [1.0, 1.0]
    return found


@pytest.mark.parametrize(
    ("env_id", "method", "first"),
    [
        ("MemChunkQA-v0", "TAMTRL", []),
        ("MemSearchQA-v0", "SearchRewards", ["<think></think><search>the mayor</search>"]),
    ],
)
def test_a_reply_gets_its_reward_through_at_most_14_files(env_id, method, first):
    for names in replies(env_id, method, first):
        assert {"wrappers/reward_wrapper.py", "memenvs/core/env.py"} <= set(names)
        assert len(names) <= 14, names


def test_the_page_has_the_files_from_a_reply_to_its_reward():
    turns = replies("MemChunkQA-v0", "TAMTRL")
    assert set(table("From a reply to its reward")) == {name for names in turns for name in names}


def test_the_page_has_the_files_from_a_turns_reward_to_the_loss(tmp_path, monkeypatch):
    for library in ("torch", "tyro", "tensorboard"):
        pytest.importorskip(library, reason="the learners want the extra train")
    from memenvs.baselines import mt_ppo
    from memenvs.baselines.run import RolloutRun
    from memenvs.models import HFPolicy

    sampling = (HFPolicy.sample, HFPolicy.encode, HFPolicy.encode_feedback)
    way = Files(*sampling, TextVectorEnv.step, TextVectorEnv.reset)

    def traced(function):
        def run(*arguments, **options):
            with way:
                return function(*arguments, **options)

        return run

    monkeypatch.setattr(RolloutRun, "rollouts", traced(RolloutRun.rollouts))
    for name in ("valid", "score", "token_advantages", "to_experiences", "update"):
        monkeypatch.setattr(mt_ppo, name, traced(getattr(mt_ppo, name)))
    env_args = easy_sokoban.save_levels(tmp_path)
    args = mt_ppo.MTPPOArgs(
        model=str(easy_sokoban.save_model(tmp_path / "model", env_args)),
        out=tmp_path / "run",
        env_args=env_args,
        steps=1,
        groups=2,
        num_envs=2,
        max_new_tokens=5,
        critic_warmup=0,
    )
    mt_ppo.train(mt_ppo.prepare(args), args)
    assert set(table("From a turn's reward to the loss")) == set(way.names)
