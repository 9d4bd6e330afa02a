"""Episodes of all families over the real OpenEnv: its server on loopback and its client, one session each."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from families import FAMILIES, play

openenv = pytest.importorskip("openenv", reason='openenv is not installed: pip install -e ".[openenv]"')

import uvicorn  # noqa: E402  # comes with openenv
from openenv.cli._validation import validate_running_environment  # noqa: E402
from openenv.validation import Level, run_validation  # noqa: E402
from openenv.validation.types import ProviderCapability  # noqa: E402

import memenvs.adapters.openenv  # noqa: E402
from memenvs.adapters.openenv import MemEnvironment, make_app  # noqa: E402

CASES = [("reading", 1), ("search", 2), ("sokoban", 1)]


@contextlib.contextmanager
def serving(**settings):
    """The address of a server that serves an environment from a thread."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(**settings), log_level="error"))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def addresses():
    """The address of a server of each family."""
    with contextlib.ExitStack() as stack:
        yield {family: stack.enter_context(serving(**made)) for family, made in FAMILIES.items()}


def connect(address):
    return openenv.GenericEnvClient(base_url=address).sync()


@pytest.mark.parametrize(("family", "task"), CASES)
def test_texts_rewards_components_and_turn_rewards_arrive(addresses, family, task):
    with connect(addresses[family]) as client:
        result = client.reset(seed=7, index=task)
        for turn in play(family, task):
            assert result.observation["text"] == turn.observation
            assert not result.done
            result = client.step({"reply": turn.reply})
            assert result.reward == turn.reward
            assert result.observation["metadata"] == turn.public
        assert result.done


@pytest.mark.parametrize(("family", "task"), CASES[1:])
def test_the_next_text_is_this_one_the_reply_and_the_feedback(addresses, family, task):
    with connect(addresses[family]) as client:
        result = client.reset(seed=7, index=task)
        assert result.observation["feedback"] == ""
        for turn in play(family, task):
            before, result = result.observation["text"], client.step({"reply": turn.reply})
            assert result.observation["text"] == before + turn.reply + result.observation["feedback"]


def test_the_turn_rewards_of_a_hindsight_method_come_with_the_last_step(addresses):
    with connect(addresses["reading"]) as client:
        client.reset(seed=7, index=1)
        results = [client.step({"reply": turn.reply}) for turn in play("reading", 1)]
    # TAMTRL pays all at the end; the answer turn takes the outcome, memories that help take 1 by min-max
    assert [result.reward for result in results] == [0, 0, 0, 0, 0, 5]
    assert results[-1].observation["metadata"]["turn_rewards"] == [0, 1, 1, 1, 1, 1]


def test_an_idle_session_ends_and_frees_its_place(monkeypatch):
    monkeypatch.setattr(memenvs.adapters.openenv, "IDLE", 1.0)
    with serving(env="MemSokoban-v0", max_concurrent_envs=1) as address, connect(address) as idle:
        idle.reset(seed=1)
        end, refused = time.monotonic() + 60, 0
        while time.monotonic() < end:  # the server looks every five seconds
            try:
                with connect(address) as other:
                    other.reset(seed=2)
                break
            except RuntimeError:
                refused += 1
                time.sleep(0.5)
        else:
            pytest.fail("the place was not freed")
    assert refused


def test_sessions_play_different_episodes_at_the_same_time(addresses):
    played = [play("sokoban", task) for task in (0, 1)]
    with connect(addresses["sokoban"]) as one, connect(addresses["sokoban"]) as two:
        clients = (one, two)
        for client, task in zip(clients, (0, 1), strict=True):
            client.reset(index=task)
        for number in range(2):
            for client, turns in zip(clients, played, strict=True):
                result = client.step({"reply": turns[number].reply})
                assert result.reward == turns[number].reward
        assert (one.state()["task"], two.state()["task"]) == tuple(p[0].public["task"] for p in played)


def test_state_counts_the_turns_and_keeps_the_episodes_id(addresses):
    with connect(addresses["sokoban"]) as client:
        client.reset(seed=0, episode_id="mine")
        client.step({"reply": ""})
        state = client.state()
    assert (state["episode_id"], state["step_count"]) == ("mine", 1)


@pytest.mark.parametrize("reply", ["", "\ud800", "\x00", "<answer>" * 10_000])
def test_no_reply_ends_a_session(addresses, reply):
    with connect(addresses["search"]) as client:
        client.reset(seed=7)
        assert not client.step({"reply": reply}).done
        assert not client.step({"reply": "<search>more</search>"}).done


def test_a_truncated_episode_says_so(addresses):
    with connect(addresses["sokoban"]) as client:
        client.reset(seed=0)
        results = [client.step({"reply": "no moves"}) for _ in range(3)]  # its limit is three turns
    assert [result.observation["truncated"] for result in results] == [False, False, True]


def test_nothing_privileged_is_sent(addresses):
    with connect(addresses["search"]) as client:
        result = client.reset(seed=7, index=2)
    assert "privileged" not in json.dumps(result.observation)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tasks": 3}, "unknown reset argument 'tasks'"),
        ({"split": "valid", "index": 3}, "there is no split 'valid'; the one split is 'world-test'"),
        ({"index": 10**9}, "a number from 0 to 127"),
    ],
)
def test_a_wrong_reset_is_answered_by_its_reason(addresses, arguments, words):
    with connect(addresses["search"]) as client, pytest.raises(Exception, match=words):
        client.reset(**arguments)


def test_a_wrong_argument_is_told_when_the_server_is_made():
    with pytest.raises(ValueError, match="did you mean chunk_size"):
        make_app("MemChunkQA-v0", env_args={"chunk_sizes": 3})


@contextlib.contextmanager
def command(words, **variables):
    """The address that a command serves at, once it answers; `words` end with the option of the port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, *words.split(), str(port)]
    with subprocess.Popen(words, env={**os.environ, **variables}) as server:
        try:
            first_reset(f"http://127.0.0.1:{port}", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


SERVE = "-m memenvs serve openenv --env MemSokoban-v0 --env-args max_turns=2 --port"


def test_the_command_serves_an_environment_on_loopback():
    with command(SERVE) as address:
        assert "You have 2 turns" in post(f"{address}/reset")["observation"]["text"]


def test_a_web_page_plays_it_by_hand():
    with command(SERVE, ENABLE_WEB_INTERFACE="true") as address:
        assert "You have 2 turns" in post(f"{address}/web/reset")["observation"]["text"]
        with urllib.request.urlopen(f"{address}/web/") as page:
            assert page.status == 200


def first_reset(address, server):
    """The first observation of a server that may still be starting."""
    while server.poll() is None:
        with contextlib.suppress(OSError, RuntimeError), connect(address) as client:
            return client.reset(seed=0)
        time.sleep(0.2)
    raise RuntimeError(f"the server ended with {server.returncode}")


def test_the_task_api_names_the_task_set_and_its_tasks(addresses):
    address = f"{addresses['search']}/MemSearchQA-v0"
    assert get(f"{address}/splits") == [{"name": "world-test", "type": "validation"}]
    assert post(f"{address}/num_tasks", split="world-test") == {"num_tasks": 128}
    task = {"id": "world-test/2", "index": 2}
    assert post(f"{address}/task", split="world-test", index=2) == {"task": task}
    assert len(post(f"{address}/tasks", split="world-test")["tasks"]) == 128
    assert post(f"{address}/task_range", split="world-test", start=2, stop=3) == {"tasks": [task]}
    with pytest.raises(urllib.error.HTTPError, match="400"):
        post(f"{address}/task", split="world-test", index=128)


def test_a_task_of_a_split_is_the_task_of_its_number(addresses):
    with connect(addresses["search"]) as client:
        result = client.reset(seed=7, split="world-test", index=2)
    assert result.observation["text"] == play("search", 2)[0].observation


def test_a_reset_over_plain_http_takes_a_split_and_an_index(addresses):
    body = post(f"{addresses['sokoban']}/reset", split="sokoban_6x6_1box", index=1, seed=7)
    assert body["observation"]["text"] == play("sokoban", 1)[0].observation


def test_the_metadata_are_the_environments_contract(addresses):
    metadata = get(f"{addresses['sokoban']}/metadata")
    assert metadata["name"] == "MemSokoban-v0"
    assert metadata["description"].startswith("Solve a Sokoban level")
    assert "Reward:" in metadata["readme_content"]


@pytest.mark.parametrize(("env", "words"), [("", "set MEMENVS_ENV"), ("MemSokoban-v0 turns=3", "max_turns")])
def test_without_arguments_a_wrong_variable_is_named(monkeypatch, env, words):
    monkeypatch.setenv("MEMENVS_ENV", env)
    with pytest.raises(ValueError, match=words):
        MemEnvironment()


def test_without_arguments_it_is_the_environment_of_the_variable(monkeypatch):
    monkeypatch.setenv("MEMENVS_ENV", "MemSokoban-v0 max_turns=2")
    assert "You have 2 turns" in MemEnvironment().reset(seed=0).text


def test_the_web_page_escapes_what_the_policy_reads():
    drawn = MemEnvironment("MemSokoban-v0").render_web({"text": "<script>"})
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn


# Packages.


ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "memenvs_sokoban"
UVICORN = "-m uvicorn server.app:app --log-level error --port"


class OwnMachine:
    """Runs a package's server as a process of this machine, where OpenEnv's provider makes a container."""

    name, capabilities = "process", frozenset({ProviderCapability.IMAGE_BUILD})
    supported_network_modes = frozenset({"public"})

    def build(self, root, execution):
        assert (root / execution.dockerfile).is_file()
        self.root = root
        return f"sha256:{'0' * 64}"

    def start(self, spec):
        self.stack = contextlib.ExitStack()
        self.base_url = self.stack.enter_context(command(UVICORN, PYTHONPATH=f"{self.root}:{ROOT}"))
        return self

    def inspect(self):
        return {}

    def logs(self, max_bytes=0):
        return ""

    def stop(self):
        self.stack.close()


@pytest.mark.filterwarnings("default::DeprecationWarning")  # of OpenEnv's collector
def test_openenv_validates_the_package_of_the_examples_statically_and_running():
    report = run_validation(PACKAGE, max_level=Level.RUNTIME, provider=OwnMachine())
    wrong = {result.check_id: result.evidence for result in report.results if result.status.value == "fail"}
    passed = {result.check_id for result in report.results if result.status.value == "pass"}
    assert wrong == {}
    assert {"static.manifest", "runtime.startup", "runtime.reward_well_formed"} < passed
    assert {"runtime.observation_schema", "runtime.state_contract"} < passed


def test_openenv_validates_the_server_of_the_package_at_its_address():
    with command(UVICORN, PYTHONPATH=f"{PACKAGE}:{ROOT}") as address:
        report = validate_running_environment(address)
        (split,) = get(f"{address}/MemSokoban-v0/splits")
        tasks = post(f"{address}/MemSokoban-v0/num_tasks", split=split["name"])["num_tasks"]
    assert report["passed"], report["criteria"]
    assert f'declared_task_count: {{"{split["name"]}": {tasks}}}' in (PACKAGE / "openenv.yaml").read_text()


def get(address):
    with urllib.request.urlopen(address) as answer:
        return json.load(answer)


def post(address, **fields):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(address, json.dumps(fields).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def test_it_can_be_used_without_a_server():
    env = MemEnvironment(**FAMILIES["sokoban"])
    assert env.reset(seed=7, index=1).text == play("sokoban", 1)[0].observation
