"""Evaluations and demonstrations by several processes and on Ray: the same, also if one is killed."""

import json
import os
from pathlib import Path

import pytest

from memenvs.baselines import lessons
from memenvs.baselines.args import SFTArgs
from memenvs.core.episode_file import encode
from memenvs.evaluation.run import evaluate

ray = pytest.importorskip("ray", reason='ray is not installed: pip install -e ".[ray]"')
pytestmark = pytest.mark.filterwarnings("default")  # of ray

SUPPORT = Path(__file__).parents[1] / "support"
SEARCH = {"env": "MemSearchQA-v0", "policy": "lexical", "methods": ["SearchRewards"]}
READ = {"env": "MemChunkQA-v0", "policy": "dying_policy:note_the_end"}


@pytest.fixture(scope="module", autouse=True)
def dies_once(tmp_path_factory):
    """The file that says that a worker has died, on a cluster whose workers find the policy."""
    file = tmp_path_factory.mktemp("died") / "died"
    places = (SUPPORT, *map(Path, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    path = os.pathsep.join(map(str, places))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SUPPORT)
        patch.setenv("PYTHONPATH", path)
        workers = {"env_vars": {"PYTHONPATH": path, "DIES_ONCE": str(file)}}
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=workers)
        yield file
        ray.shutdown()


def play(out, run, workers=1):
    """What is written of the episodes of 8 tasks, in the order of the tasks."""
    settings = {"env_args": {"tasks": "world-test"}, "tasks": "0:8", "concurrency": 3, **run}
    summary = evaluate(**settings, workers=workers, out=out)
    assert not summary.failed
    return list(map(json.loads, sorted((out / "episodes.jsonl").read_text().splitlines())))


@pytest.mark.parametrize("workers", [2, "ray"])
def test_any_number_of_workers_plays_the_episodes_of_one_process(tmp_path, workers):
    here, there = play(tmp_path / "here", SEARCH), play(tmp_path / "there", SEARCH, workers)
    assert len(here) == 8
    assert here == there


def test_the_episodes_of_a_worker_that_is_killed_on_ray_are_played_again(tmp_path, dies_once):
    assert play(tmp_path / "ray", READ, "ray") == play(tmp_path / "here", READ)
    assert dies_once.exists()


def test_a_run_whose_process_was_killed_resumes(tmp_path, monkeypatch):
    monkeypatch.setenv("DIES_ONCE", str(tmp_path / "died"))
    with pytest.raises(ValueError, match=r"killed|exit code"):
        play(tmp_path / "out", READ, 2)
    assert play(tmp_path / "out", READ, 2) == play(tmp_path / "here", READ)


def test_ray_plays_the_demonstrations_of_one_process(monkeypatch):
    monkeypatch.setattr(lessons, "JOB", 3)
    game = {"env": "MemSokoban-v0", "teacher": "gold", "episodes": 7}
    here, there = (lessons.demonstrations(SFTArgs(**game, workers=workers), 100) for workers in (1, "ray"))
    assert list(map(encode, here)) == list(map(encode, there))


def test_workers_need_names(tmp_path):
    with pytest.raises(ValueError, match="names of an environment and a policy"):
        evaluate("MemSokoban-v0", lambda observation, info: "", workers=2)


def test_an_object_that_scores_cannot_be_sent_to_workers():
    class Scorer:
        def logprobs(self, requests):
            return []

    with pytest.raises(ValueError, match="scorer"):
        evaluate(**SEARCH, scorer=Scorer(), workers="ray", tasks="0:2")
