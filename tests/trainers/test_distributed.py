"""Environments in real Ray actors: the same episodes with any number of workers, even after one dies."""

import sys
from pathlib import Path

import pytest
from gymnasium.utils.env_checker import data_equivalence
from json_stub import JSONStub
from transcripts import plain

ray = pytest.importorskip("ray", reason='ray is not installed: pip install -e ".[ray]"')
pytestmark = pytest.mark.filterwarnings("default")  # of ray's own

from memenvs.core.vector import TextVectorEnv  # noqa: E402
from memenvs.distributed import RayTextVectorEnv, WorkerDied  # noqa: E402
from memenvs.models import ScriptedPolicy  # noqa: E402
from memenvs.rollout.engine import collect  # noqa: E402
from memenvs.wrappers import VectorRewardWrapper  # noqa: E402

FAMILIES = {
    "reading": ("MemChunkQA-v0", {"tasks": "world-test"}),
    "search": ("MemSearchQA-v0", {"tasks": "world-test"}),
    "sokoban": ("MemSokoban-v0", {}),
}
REPLIES = ["<think>a</think><search>town {}</search>", "<think></think><answer>Up</answer>", "noise {}", ""]


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.fixture
def made():
    """Makes environments that end with the test."""
    opened = []

    def make(*args, **kwargs):
        opened.append(RayTextVectorEnv(*args, **kwargs))
        return opened[-1]

    yield make
    for venv in opened:
        venv.close()


def replies(step, count):
    return [REPLIES[(step + i) % len(REPLIES)].format(f"{step} {i}") for i in range(count)]


def transcript(venv, steps, between=lambda step: None):
    """All that comes out of some steps; what has ended is reset without a seed."""
    out = [plain(venv.reset(seed=5))]
    for step in range(steps):
        between(step)
        played = venv.step(replies(step, venv.num_envs))
        out.append(plain(played))
        over = played[2] | played[3]
        if over.any():
            out.append(plain(venv.reset(options={"reset_mask": over})))
    return out


@pytest.mark.parametrize(("family", "workers"), [("reading", 1), ("search", 2), ("sokoban", 3)])
def test_any_number_of_workers_plays_what_one_process_plays(made, family, workers):
    env_id, kwargs = FAMILIES[family]
    local = TextVectorEnv(env_id, 4, autoreset_mode="Disabled", **kwargs)
    assert data_equivalence(transcript(made(env_id, 4, workers, **kwargs), 7), transcript(local, 7))


def retrieve(path, fields):
    """Answers every query with passages that repeat it."""
    answers = [
        [
            {"document": {"id": f"{query} {n}", "contents": f"Title\n{query} {n}"}, "score": 1.0 / (n + 1)}
            for n in range(fields["topk"])
        ]
        for query in fields["queries"]
    ]
    return 200, {"result": answers}


def test_retrieval_over_http_is_the_same_in_workers(made):
    with JSONStub(retrieve) as server:
        kwargs = {"tasks": "world-test", "retriever": server.url}
        local = TextVectorEnv("MemSearchQA-v0", 4, autoreset_mode="Disabled", **kwargs)
        known = transcript(local, 7)
        assert "town 0 0 0" in str(known)  # a passage came back
        assert data_equivalence(transcript(made("MemSearchQA-v0", 4, 3, **kwargs), 7), known)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_autoreset_is_that_of_one_process(made, mode):
    local = TextVectorEnv("MemSokoban-v0", 3, autoreset_mode=mode)
    ours = made("MemSokoban-v0", 3, 2, autoreset_mode=mode)
    for venv in (local, ours):
        venv.reset(seed=5)
    for step in range(8):
        assert data_equivalence(plain(local.step(replies(step, 3))), plain(ours.step(replies(step, 3))))


def test_a_worker_killed_between_two_turns_loses_nothing(made):
    env_id, kwargs = FAMILIES["search"]
    venv = made(env_id, 4, 2, **kwargs)

    def kill(step):
        if step in (1, 4):
            ray.kill(venv._pool.actors[step % 2])

    local = TextVectorEnv(env_id, 4, autoreset_mode="Disabled", **kwargs)
    assert data_equivalence(transcript(venv, 7, kill), transcript(local, 7))
    assert venv.replaced == 2


def test_a_worker_that_dies_in_the_middle_of_a_turn_loses_nothing(made, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)
    path = {"env_vars": {"PYTHONPATH": ":".join(sys.path)}}
    kwargs = {"tasks": "world-test"}
    venv = made("dying_env:Dying-v0", 4, 2, ray_options={"runtime_env": path}, **kwargs)
    fatal = f"DIE {tmp_path / 'died'}"
    outs = []
    for one in (venv, TextVectorEnv("dying_env:Dying-v0", 4, autoreset_mode="Disabled", **kwargs)):
        outs.append([plain(one.reset(seed=5)), plain(one.step(["a"] * 4))])
        outs[-1] += [plain(one.step(["b", "c", fatal, "d"])), plain(one.step(["e"] * 4))]
    assert data_equivalence(*outs)
    assert venv.replaced == 1


@pytest.fixture
def dying(made, monkeypatch):
    """Makes environments that take their worker along when they are told to."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    path = {"env_vars": {"PYTHONPATH": ":".join(sys.path)}}
    options = {"ray_options": {"runtime_env": path}, "tasks": "world-test"}
    return lambda *args, **settings: made("dying_env:Dying-v0", *args, **options, **settings)


def test_a_worker_that_dies_again_and_again_is_an_error(dying):
    venv = dying(2, 1, tries=2)
    venv.reset(seed=5)
    with pytest.raises(WorkerDied, match="the worker of environment 0 died 2 times at one job"):
        venv.step(["ALWAYS", "a"])
    assert venv.replaced == 2


def test_an_environment_that_kills_its_worker_ends_its_own_episode_alone(dying):
    venv = dying(3, 1, errors="truncate", tries=2)
    local = TextVectorEnv("MemChunkQA-v0", 3, autoreset_mode="Disabled", tasks="world-test")
    for one in (venv, local):
        one.reset(seed=5)
    observations, *_, truncated, _ = venv.step(["a", "ALWAYS", "b"])
    known, *_ = local.step(["a", "x", "b"])
    assert truncated.tolist() == [False, True, False]
    assert "died 2 times" in venv.infos_list[1]["error"]
    assert (observations[0], observations[2]) == (known[0], known[2])
    begun, _ = venv.reset(seed=[1, 7, 2], options={"reset_mask": truncated})
    fresh, _ = TextVectorEnv("MemChunkQA-v0", 1, tasks="world-test").reset(seed=[7])
    assert begun[1] == fresh[0]
    assert not venv.step(["c", "d", "e"])[3].any()


@pytest.mark.parametrize("error", ["OutOfMemoryError", "ObjectLostError"])
def test_what_else_takes_a_worker_away_replaces_it_too(made, error, monkeypatch):
    kind = getattr(ray.exceptions, error)
    lost = kind("a", None, "") if error == "ObjectLostError" else kind("evicted")
    venv = made("MemSokoban-v0", 2, workers=1, autoreset_mode="Disabled")
    known, failures = transcript(TextVectorEnv("MemSokoban-v0", 2, autoreset_mode="Disabled"), 2), [lost]
    get = ray.get

    def fail_once(promise):
        if failures:
            raise failures.pop()
        return get(promise)

    monkeypatch.setattr(ray, "get", fail_once)
    assert data_equivalence(transcript(venv, 2), known)


def test_reward_methods_of_groups_wrap_it(made):
    methods, scorer = ["TAMTRL", "InfoMem"], "lexical"
    episodes = []
    for venv in (
        made("MemChunkQA-v0", 4, 2, tasks="world-test"),
        TextVectorEnv("MemChunkQA-v0", 4, autoreset_mode="Disabled", tasks="world-test"),
    ):
        hosted = VectorRewardWrapper(venv, methods, scorer, group_size=2)
        policy = ScriptedPolicy(lambda prompt: prompt[-40:])
        episodes.append(collect(hosted, policy, [1, 2, 3], 2))
    ours, theirs = ([(e.task, e.turn_rewards, e.metrics, e.end) for e in played] for played in episodes)
    assert ours == theirs
    assert len(ours) == 6


def test_states_can_be_put_back(made):
    venv = made("MemSearchQA-v0", 2, 2, tasks="world-test")
    observations, _ = venv.reset(seed=5)
    states = venv.get_states()
    first = plain(venv.step(replies(0, 2)))
    venv.set_states(states, observations)
    assert data_equivalence(plain(venv.step(replies(0, 2))), first)


def test_an_environment_that_raises_ends_its_own_episode_alone(made):
    venv = made("MemSearchQA-v0", 2, 1, errors="truncate", retriever="http://127.0.0.1:9", tasks="world-test")
    venv.reset(seed=5)
    *_, truncated, _ = venv.step(["<search>a</search>", "nothing"])
    assert truncated.tolist() == [True, False]
    assert "127.0.0.1:9" in venv.infos_list[0]["error"]


def test_a_wrong_option_is_the_callers_error_also_where_errors_truncate(made):
    venv = made("MemSokoban-v0", 2, 1, errors="truncate")
    with pytest.raises(ValueError, match=r"options\['task'\] must be a number"):
        venv.reset(options={"task": 10**9})


def test_a_wrong_argument_is_reported_as_in_one_process():
    with pytest.raises(ValueError, match="cut_at must be one of"):
        RayTextVectorEnv("MemChunkQA-v0", 2, 1, cut_at="word")
