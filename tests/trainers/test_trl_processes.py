"""Two processes train one model with TRL, though their episodes differ in length."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="TRL is not installed; `make test-trainers` installs it")
SCRIPT = Path(__file__).with_name("trl_process.py")


@pytest.fixture(scope="module")
def told(tiny_model, tmp_path_factory):
    """What each of two processes wrote."""
    out = tmp_path_factory.mktemp("out")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(SCRIPT), str(tiny_model), str(out)],
        env={**os.environ, "TRL_EXPERIMENTAL_SILENCE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    return [json.loads((out / f"{rank}.json").read_text()) for rank in (0, 1)]


def test_every_process_has_as_many_rows_as_the_longest(told):
    assert told[0]["rows"] == [[True, True, True]] * 2
    assert told[1]["rows"] == [[True, True, False]] * 2


def test_a_group_stays_in_its_process(told):
    assert [process["seeds"] for process in told] == [[2, 2], [3, 3]]
    assert [process["groups"] for process in told] == [[0, 0], [1, 1]]


def test_advantages_are_normalised_over_the_episodes_of_all_processes(told):
    # The first group's sums of normalised components are a and -a, the second's 0 and 0: std a sqrt(2 / 3).
    # Over its own episodes alone the first process would get 0.7071.
    (first, *second), none = told[0]["advantages"][:3], told[1]["advantages"]
    assert abs(first[0]) == pytest.approx(1.2247, abs=1e-3)
    assert second == [[-first[0]]] * 2
    assert none == [[0.0]] * 4


def test_the_processes_end_with_the_same_weights(told):
    assert told[0]["sum"] == told[1]["sum"]
    assert min(process["moved"] for process in told) > 1e-4
