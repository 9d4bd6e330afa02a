"""Builds on Ray: the same bytes, even if workers are killed."""

import functools
import os
import sys

import pytest

from memenvs.commands.build import main
from memenvs.core.processes import map_jobs

ray = pytest.importorskip("ray", reason='ray is not installed: pip install -e ".[ray]"')
pytestmark = pytest.mark.filterwarnings("default")  # of ray


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_a_task_set_has_the_same_bytes(tmp_path):
    given = ["niah", "--variant", "single_2", "--tokens", "400", "--num-tasks", "600"]
    assert main([*given, "--out", str(tmp_path / "here")]) == 0
    assert main([*given, "--workers", "ray", "--out", str(tmp_path / "ray")]) == 0
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert len(names) == 3
    for name in names:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()


def killed_once(folder, job):
    """Kill the worker of the first attempt at job 3."""
    if job == 3 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os._exit(1)
    return job * job


def test_the_job_of_a_killed_worker_is_done_again(tmp_path):
    assert [*map_jobs(functools.partial(killed_once, tmp_path), range(40), "ray")] == [
        n * n for n in range(40)
    ]
    assert (tmp_path / "killed").exists()


def killed_always(job):
    os._exit(1)


def test_a_job_that_always_kills_its_worker_is_one_line():
    with pytest.raises(ValueError, match="Ray workers were killed"):
        list(map_jobs(killed_always, range(2), "ray"))


def failing(job):
    raise KeyError(job)


def test_an_error_of_a_job_is_raised_as_it_is():
    with pytest.raises(KeyError, match="0"):
        list(map_jobs(failing, range(2), "ray"))


def test_a_caller_that_stops_early_leaves_no_jobs():
    made = map_jobs(abs, range(10**9), "ray")
    assert [next(made) for _ in range(3)] == [0, 1, 2]
    made.close()
