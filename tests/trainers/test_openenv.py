"""Episodes of all families over the real OpenEnv: its server on loopback, its client, a session each."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time

import pytest
from families import FAMILIES, play

openenv = pytest.importorskip("openenv", reason='openenv is not installed: pip install -e ".[openenv]"')

import uvicorn  # noqa: E402  # comes with openenv

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
        result = client.reset(seed=7, task=task)
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
        result = client.reset(seed=7, task=task)
        assert result.observation["feedback"] == ""
        for turn in play(family, task):
            before, result = result.observation["text"], client.step({"reply": turn.reply})
            assert result.observation["text"] == before + turn.reply + result.observation["feedback"]


def test_the_turn_rewards_of_a_hindsight_method_come_with_the_last_step(addresses):
    with connect(addresses["reading"]) as client:
        client.reset(seed=7, task=1)
        results = [client.step({"reply": turn.reply}) for turn in play("reading", 1)]
    # TAMTRL pays all at the end; the answer turn takes the outcome, memories that help take 1 by min-max
    assert [result.reward for result in results] == [0, 0, 0, 0, 0, 5]
    assert results[-1].observation["metadata"]["turn_rewards"] == [0, 1, 1, 1, 1, 1]


def test_sessions_play_different_episodes_at_the_same_time(addresses):
    played = [play("sokoban", task) for task in (0, 1)]
    with connect(addresses["sokoban"]) as one, connect(addresses["sokoban"]) as two:
        clients = (one, two)
        for client, task in zip(clients, (0, 1), strict=True):
            client.reset(task=task)
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
        result = client.reset(seed=7, task=2)
    assert "privileged" not in json.dumps(result.observation)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tasks": 3}, "unknown reset argument 'tasks'"),
        ({"task": 10**9}, r"options\['task'\] must be a number"),
    ],
)
def test_a_wrong_reset_is_answered_by_its_reason(addresses, arguments, words):
    with connect(addresses["search"]) as client, pytest.raises(Exception, match=words):
        client.reset(**arguments)


def test_a_wrong_argument_is_told_when_the_server_is_made():
    with pytest.raises(ValueError, match="its arguments: chunk_size, tasks"):
        make_app("MemChunkQA-v0", env_args={"chunk_sizes": 3})


def test_the_command_serves_an_environment_on_loopback():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = f"-m memenvs serve openenv --env MemSokoban-v0 --env-args max_turns=2 --port {port}"
    with subprocess.Popen([sys.executable, *command.split()]) as server:
        try:
            result = first_reset(f"http://127.0.0.1:{port}", server)
        finally:
            server.terminate()
    assert "You have 2 turns" in result.observation["text"]


def first_reset(address, server):
    """The first observation of a server that may still be starting."""
    while server.poll() is None:
        with contextlib.suppress(OSError, RuntimeError), connect(address) as client:
            return client.reset(seed=0)
        time.sleep(0.2)
    raise RuntimeError(f"the server ended with {server.returncode}")


def test_it_can_be_used_without_a_server():
    env = MemEnvironment(**FAMILIES["sokoban"])
    assert env.reset(seed=7, task=1).text == play("sokoban", 1)[0].observation
