"""What a user needs to test an environment of their own, as its page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from call_or_guess import CallOrGuess

from memenvs import TextEnv
from memenvs.core.env import EpisodeState

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """A folder of the page's files; blocks without a name are run by tests/docs/test_readme.py."""
    for body in re.findall(r"^```py(?:thon)?\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        if named := re.match(r"# (\w+\.py)\n", body):
            (tmp_path / named[1]).write_text(body, encoding="utf-8")
    return tmp_path


def run(folder, *arguments):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


def test_the_environment_of_the_page_passes_the_tests_it_is_told_to_run(folder):
    done = run(folder, "pytest", "-q", "-p", "no:cacheprovider", "test_recall.py")
    assert done.returncode == 0, done.stdout


def test_an_environment_that_breaks_the_contract_fails_them_with_the_values_shown(folder):
    path = folder / "recall.py"
    path.write_text(path.read_text().replace("return str(self.state.number)", 'return "7"'))
    done = run(folder, "pytest", "-q", "-p", "no:cacheprovider", "test_recall.py", "-k", "gold")
    assert done.returncode == 1
    assert "assert {0.0} == {1.0}" in done.stdout


def test_a_module_before_the_id_is_imported_by_the_commands(folder):
    options = ["--env", "recall:Recall-v0", "--env-args", "turns=2", "--policy", "gold", "--task", "0:3"]
    done = run(folder, "memenvs", "evaluate", "run", *options, "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "success" in done.stdout


def test_an_environment_that_lacks_methods_cannot_be_made_and_the_error_names_them():
    class Half(TextEnv):
        def _begin(self, task):
            return EpisodeState(task)

        def _observe(self):
            return ""

    with pytest.raises(TypeError) as refused:
        Half(1, 10)
    said = str(refused.value)
    assert said.startswith("Can't instantiate abstract class Half")
    assert {"_metrics", "_play", "gold_reply"} <= set(re.findall(r"\w+", said))
    assert "\n" not in said


def test_an_environment_that_appends_and_has_no_feedback_is_refused_at_its_first_step():
    with pytest.raises(NotImplementedError, match=r"^Own has context 'append': write _feedback\(\)"):
        step_of(_feedback=TextEnv._feedback)


def test_an_environment_needs_neither_a_task_id_nor_privileged_fields():
    env = CallOrGuess()
    _, info = env.reset(options={"task": 7})
    assert (info["task"], info["privileged"]) == ("7", {})


def step_of(**members):
    """The first step of an environment with members of its own."""
    env = type("Own", (CallOrGuess,), members)()
    env.reset(seed=0)
    return env.step("call")
