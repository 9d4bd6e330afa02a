"""`memenvs evaluate run`: what is averaged, kept, resumed and refused."""

import json
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from chat_stub import ChatStub
from command_line import evaluate as main
from command_line import play
from json_stub import JSONStub

from memenvs import collect
from memenvs.core.episode import Episode, Reply
from memenvs.core.episode_file import read_episodes
from memenvs.core.progress import Progress
from memenvs.evaluation.log import Pair, read_tasks
from memenvs.evaluation.run import evaluate, planned, policy_rng
from memenvs.evaluation.summary import bootstrap, metric_interval, summarise
from memenvs.models import ScriptedPolicy
from memenvs.models.settings import ModelOptions
from memenvs.rollout.policy import TurnPolicy
from memenvs.wrappers import Judge, RewardWrapper

TOOL = ("--env", "MemToolQA-v0", "--env-args", "tasks=world-test")


def run(*arguments, out=None):
    """The command's exit status."""
    return main([*arguments, *(["--out", str(out)] if out else [])])


def lines(out):
    return read_episodes(out / "episodes.jsonl")


def texts(episode):
    return [reply.text for reply in episode.replies]


def results(out):
    return json.loads((out / "results.json").read_text(encoding="utf-8"))


def mean(out, metric):
    return results(out)["metrics"][metric]["mean"]


@pytest.fixture
def chat():
    """Starts endpoints that reply by a function of a request's fields."""
    stubs = []

    def start(reply):
        stubs.append(ChatStub(reply).__enter__())
        return stubs[-1]

    yield start
    for stub in stubs:
        stub.__exit__()


@pytest.fixture
def quick(monkeypatch):
    """No pauses between tries."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


def at(stub):
    """The policy at an endpoint."""
    return "--policy", f"openai:{stub.url}"


def by_seed(fields):
    """A reply that depends on the request's seed."""
    letter = "abcdefgh"[fields["seed"] % 8]
    return 200, f"<reasoning>{letter * (fields['seed'] % 5 + 1)}</reasoning><answer>{letter}</answer>"


def record(task, sample, error="", **metrics):
    return Episode(number=task, member=sample, error=error, metrics=metrics)


# What is averaged.


def test_the_mean_is_over_tasks_of_the_means_over_their_samples():
    # task 0: (1 + 0) / 2; task 1: one sample left, 1; together (0.5 + 1) / 2, not 2 of 3
    played = [record(0, 0, em=1.0), record(0, 1, em=0.0), record(1, 0, em=1.0), record(1, 1, "away")]
    assert summarise(played, 2).metrics["em"].interval.mean == 0.75


def test_the_interval_resamples_tasks_and_not_episodes():
    # two tasks of 50 equal episodes: a resample has 0, 1 or 2 of the second, so the interval is [0, 1]
    played = [record(task, sample, turns=float(task)) for task in (0, 1) for sample in range(50)]
    assert summarise(played, 50).metrics["turns"].interval == bootstrap([0.0, 1.0])
    assert summarise(played, 50).metrics["turns"].interval[1:] == (0.0, 1.0)


def test_zeros_alone_leave_room_above_them():
    # Wilson: z^2 / (n + z^2) = 3.8415 / 15.8415 of 12 tasks, whatever the number of samples of each
    played = [record(task, sample, em=0.0) for task in range(12) for sample in range(3)]
    np.testing.assert_allclose(summarise(played, 3).metrics["em"].interval, [0.0, 0.0, 0.2425], atol=1e-4)


def test_a_count_that_is_the_same_in_every_task_has_no_width():
    played = [record(task, 0, searches=1.0) for task in range(9)]
    assert summarise(played, 1).metrics["searches"].interval == (1.0, 1.0, 1.0)


def test_the_interval_of_some_successes_is_wilsons():
    # p = 3/10, z^2 / n = 0.38415: centre (0.3 + 0.19207) / 1.38415 = 0.35551,
    # reach 1.96 sqrt(0.021 + 0.0096037) / 1.38415 = 0.24771
    played = [record(task, 0, em=float(task < 3)) for task in range(10)]
    interval = summarise(played, 1).metrics["em"].interval
    np.testing.assert_allclose(interval, [0.3, 0.1078, 0.6032], atol=1e-4)


def test_the_interval_of_many_tasks_is_that_of_the_normal_law():
    # half of 40,000 are 1: the mean's deviation is 0.5 / sqrt(40,000) = 0.0025, and 1.96 of it 0.0049
    interval = bootstrap([0.0, 1.0] * 20_000, resamples=400)
    np.testing.assert_allclose(interval, [0.5, 0.5 - 0.0049, 0.5 + 0.0049], rtol=0, atol=0.0007)
    assert metric_interval("f1", [0.5] * 12) == metric_interval("turns", [0.5] * 12) == (0.5, 0.5, 0.5)


def test_failures_are_counted_by_their_reason():
    summary = summarise([record(0, 0, "away"), record(1, 0, "away"), record(2, 0, "full")], 1)
    assert (summary.metrics, summary.failed, summary.reasons) == ({}, 3, {"away": 2, "full": 1})


# What is played.


@pytest.mark.parametrize("env", ["MemSearchQA-v0", "MemSokobanImage-v0"])
def test_every_kind_of_environment_is_played(env, tmp_path):
    assert run("--env", env, "--policy", "random_text", "--task", "0:3", out=tmp_path) == 0
    assert results(tmp_path)["finished"] == 3


def test_an_episode_can_be_played_again_from_its_line(tmp_path):
    arguments = ("--env", "MemChunkQA-v0", "--env-args", "n_documents=20", "chunk_size=500")
    run(*arguments, "--policy", "lexical", "--task", "3:5", "--samples", "2", out=tmp_path)
    env = gym.make("MemChunkQA-v0", n_documents=20, chunk_size=500)
    for line in lines(tmp_path):
        env.reset(seed=line.seed, options={"task": line.number})
        for reply in texts(line):
            *_, info = env.step(reply)
        assert {"return": sum(info["turn_rewards"]), **info["metrics"]} == line.metrics


def test_seeds_differ_between_tasks_samples_and_runs():
    pairs = [(0, Pair(0, 0)), (0, Pair(0, 1)), (0, Pair(1, 0)), (1, Pair(0, 0))]
    assert len({planned(*pair).seed for pair in pairs}) == 4
    assert len({policy_rng(*pair).random() for pair in pairs}) == 4


def test_results_do_not_depend_on_how_many_episodes_are_played_at_once(chat, tmp_path):
    outcomes = []
    for concurrency in ("1", "16"):
        out, many = tmp_path / concurrency, ("--task", "0:8", "--samples", "2", "--concurrency", concurrency)
        run(*TOOL, "--policy", f"openai:{chat(by_seed).url}", *many, out=out)
        kept = sorted(lines(out), key=lambda line: (line.number, line.member))
        outcomes.append((results(out), [(line.seed, texts(line), line.metrics) for line in kept]))
    assert outcomes[0] == outcomes[1]


def test_an_unreachable_retriever_fails_the_episodes_that_search_and_no_others(quick, chat, tmp_path):
    replies = ("<think></think><search>x</search>", "<think></think><answer>x</answer>")
    stub = chat(lambda fields: (200, replies[fields["seed"] % 2]))
    away = chat(lambda fields: (503, "away"))
    env = ("--env", "MemSearchQA-v0", "--env-args", "tasks=world-test", f"retriever={away.url}")
    assert run(*env, *at(stub), "--task", "0:12", out=tmp_path) == 1
    searched = [fields["seed"] % 2 == 0 for fields in stub.bodies]
    errors = [line.error for line in lines(tmp_path) if line.error]
    assert 0 < len(errors) == sum(searched) < 12
    assert all(f"no answer from {away.url}" in error for error in errors)


# What is kept, and how a run resumes.


def test_a_run_may_grow_by_tasks_and_samples(tmp_path):
    run(*TOOL, "--policy", "random_text", "--task", "0:2", out=tmp_path / "grown")
    for out in ("grown", "whole"):
        run(*TOOL, "--policy", "random_text", "--task", "0:4", "--samples", "2", out=tmp_path / out)
    assert len(lines(tmp_path / "grown")) == 8
    assert results(tmp_path / "grown") == results(tmp_path / "whole")


def test_a_torn_last_line_is_dropped_and_played_again(tmp_path):
    run(*TOOL, "--policy", "random_text", "--task", "0:4", out=tmp_path)
    path = tmp_path / "episodes.jsonl"
    whole, wanted = path.read_bytes(), results(tmp_path)
    path.write_bytes(whole[:-20])
    run(*TOOL, "--policy", "random_text", "--task", "0:4", out=tmp_path)
    assert (path.read_bytes(), results(tmp_path)) == (whole, wanted)


def test_a_folder_with_other_files_is_refused_and_left_as_it_is(tmp_path, capsys):
    (tmp_path / "thesis.tex").touch()
    assert main([*TOOL, "--policy", "silent", "--out", str(tmp_path)]) == 2
    assert "holds 'thesis.tex' and no setting.json" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_killed_run_resumes_where_it_stopped(chat, tmp_path):
    enough = threading.Event()

    def reply(fields):
        if len(stub.bodies) > 5 and not enough.is_set():
            time.sleep(0.05)
        return by_seed(fields)

    stub = chat(reply)
    arguments = [*TOOL, *at(stub), "--task", "0:100", "--concurrency", "2"]
    command = [sys.executable, "-m", "memenvs", "evaluate", "run", *arguments, "--out", str(tmp_path)]
    path = tmp_path / "episodes.jsonl"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not (path.exists() and path.read_bytes().count(b"\n") >= 8):
            time.sleep(0.01)
        process.kill()
    kept = path.read_bytes().count(b"\n")
    assert 8 <= kept < 100
    enough.set()
    before = len(stub.bodies)
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    assert len({(line.number, line.member) for line in lines(tmp_path)}) == len(lines(tmp_path)) == 100
    assert len(stub.bodies) - before == 100 - kept


def test_a_run_resumes_with_the_same_model_at_another_address_and_refuses_another_model(
    chat, tmp_path, capsys
):
    old, new = chat(by_seed), chat(by_seed)
    run(*TOOL, "--policy", f"openai:{old.url}", "--task", "0:2", out=tmp_path)
    assert run(*TOOL, "--policy", f"openai:{new.url}", "--task", "0:3", out=tmp_path) == 0
    assert len(new.bodies) * 2 == len(old.bodies)  # one task of three was left
    new.models = ["large"]
    capsys.readouterr()
    assert run(*TOOL, "--policy", f"openai:{new.url}", "--task", "0:4", out=tmp_path) == 2
    assert 'model = "tiny", not "large"' in capsys.readouterr().err


def test_means_and_cost_go_to_trackers_at_the_number_of_episodes(tmp_path, monkeypatch, capsys):
    tracking = pytest.importorskip("accelerate.tracking", reason="the extra train installs it")
    sent, ids = [], []

    class Fake(tracking.GeneralTracker):
        name, requires_logging_directory, tracker = "wandb", False, None

        def __init__(self, run_name, **settings):
            ids.append(settings["id"])

        def log(self, values, step=None):
            sent.append((step, values["success"]))

        def finish(self):
            sent.append("finished")

    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "wandb", Fake)
    monkeypatch.setitem(sys.modules, "wandb", tracking)  # some module: the real one may not be installed
    command = (*TOOL, "--policy", "gold", "--track", "wandb")
    for tasks in ("0:2", "0:3"):
        assert run(*command, "--task", tasks, out=tmp_path) == 0
    assert sent == [(2, 1.0), "finished", (3, 1.0), "finished"]
    assert ids[0] == ids[1]
    assert run(*command) == 2
    assert "give --out" in capsys.readouterr().err


def test_an_interrupted_run_keeps_its_episodes(monkeypatch, tmp_path, capsys):
    answered, calls = TurnPolicy.replies, []

    def interrupted(self, requests):
        calls.append(self)
        if len(calls) == 3:  # the first two episodes have ended after two turns
            raise KeyboardInterrupt
        return answered(self, requests)

    monkeypatch.setattr(TurnPolicy, "replies", interrupted)
    arguments = (*TOOL, "--policy", "gold", "--task", "0:4", "--concurrency", "2")
    assert run(*arguments, out=tmp_path) == 130
    assert len(lines(tmp_path)) == 2
    assert "2 of 4 episodes are done; the same command resumes" in capsys.readouterr().err


def test_progress_moves_with_every_reply(monkeypatch, tmp_path):
    counts, add = [], Progress.add
    monkeypatch.setattr(
        Progress, "add", lambda bar, n=1, **more: counts.append((n, more)) or add(bar, n, **more)
    )
    assert run(*TOOL, "--policy", "gold", "--task", "0:2", "--concurrency", "2", out=tmp_path) == 0
    assert [(n, more["replies"]) for n, more in counts if "replies" in more] == [(0, 2), (2, 4)]


def test_a_quiet_run_says_only_its_results_also_as_json(monkeypatch, capsys):
    monkeypatch.setenv("MEMENVS_QUIET", "")  # which is put back at the end
    assert run(*TOOL, "--policy", "gold", "--task", "0:2", "--quiet", "--json") == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert json.loads(said.out)["metrics"]["success"]["mean"] == 1.0


@pytest.mark.parametrize("named", [[], ["--model", "m"]])
def test_a_server_that_is_not_there_ends_the_run_before_its_first_episode(named, tmp_path, capsys, quick):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
    arguments = (*TOOL, "--policy", f"openai:{address}", "--tries", "1", *named)
    assert run(*arguments, out=tmp_path / "run") == 2
    assert address in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_episodes_that_failed_are_played_again(chat, tmp_path, quick):
    stub = chat(lambda fields: (400, "too long") if fields["seed"] % 2 else by_seed(fields))
    arguments = (*TOOL, *at(stub), "--task", "0:12")
    assert run(*arguments, out=tmp_path) == 1
    failed = results(tmp_path)["failed"]
    assert 0 < failed < 12
    stub.reply = by_seed
    assert run(*arguments, out=tmp_path) == 0
    assert (results(tmp_path)["finished"], len(lines(tmp_path))) == (12, 12)


def test_two_runs_in_one_folder_are_refused(chat, tmp_path, capsys):
    stub = chat(lambda fields: by_seed(fields) if len(stub.bodies) > 1 else meet(fields))
    arguments = (*TOOL, *at(stub), "--task", "0")
    codes = []

    def meet(fields):
        codes.append(run(*arguments, out=tmp_path))
        return by_seed(fields)

    codes.append(run(*arguments, out=tmp_path))
    assert codes == [2, 0]
    assert "another run is writing" in capsys.readouterr().err


# An endpoint.


def test_a_conversation_holds_the_observation_cut_at_the_replies(chat, tmp_path):
    stub = chat(lambda fields: (200, f"reply {len(fields['messages'])}"))
    run("--env", "MemSokoban-v0", *at(stub), "--task", "0", "--conversation")
    messages = stub.bodies[-1]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    env = gym.make("MemSokoban-v0")
    env.reset(options={"task": 0})
    env.step("reply 1")
    observation, *_ = env.step("reply 3")
    assert "".join(message["content"] for message in messages) == observation


def test_a_conversation_starts_over_from_a_summary(chat, tmp_path):
    stub = chat(lambda fields: (200, "<think></think><search>town</search>"))
    settings = ["tasks=world-test", "memory_mode=compact", "compact_at=100", "max_turns=2"]
    command = ["--env", "MemSearchQA-v0", "--env-args", *settings, "--task", "0", "--conversation"]
    assert run(*command, "--policy", f"openai:{stub.url}") == 0
    assert [len(fields["messages"]) for fields in stub.bodies] == [1, 3, 1, 3, 1]
    assert all("<summary>" in stub.bodies[turn]["messages"][0]["content"] for turn in (2, 3, 4))


def test_a_system_prompt_and_examples_go_before_the_observation(chat, tmp_path, capsys):
    stub = chat(by_seed)
    examples = tmp_path / "examples.jsonl"
    examples.write_text('{"user": "2 + 2?", "assistant": "<answer>4</answer>"}\n')
    command = [*TOOL, *at(stub), "--task", "0", "--examples", str(examples)]
    assert run(*command, "--system-prompt", "Be brief.", out=tmp_path / "run") == 0
    *opening, last = stub.bodies[0]["messages"]
    assert opening == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "<answer>4</answer>"},
    ]
    assert last["role"] == "user"
    (tmp_path / "prompt.txt").write_text("Be long.")
    more = ["--system-prompt", str(tmp_path / "prompt.txt")]
    assert run(*command, *more, out=tmp_path / "run") == 2  # another setting
    assert run(*command, *more, out=tmp_path / "long") == 0
    assert stub.bodies[-1]["messages"][0]["content"] == "Be long."
    examples.write_text('{"user": "2 + 2?"}\n')
    capsys.readouterr()
    assert run(*command) == 2
    assert "line 1: the example" in capsys.readouterr().err
    examples.write_bytes(b'{"user": "\xe9"}\n')
    assert run(*command) == 2
    assert f"{examples} is not UTF-8" in capsys.readouterr().err


def test_a_request_says_what_the_command_line_says(chat):
    stub = chat(by_seed)
    options = ("--temperature", "0.5", "--max-new-tokens", "7", "--stop", "</answer>")
    options += ("--top-k", "20", "--min-p", "0.05", "--chat-args", "enable_thinking=false")
    body = ("--body", '{"top_p": 0.9, "temperature": null}')
    run(*TOOL, *at(stub), "--task", "0", *options, *body)
    fields = stub.bodies[0]
    del fields["messages"], fields["seed"]
    assert fields == {
        "model": "tiny",
        "max_tokens": 7,
        "stop": ["</answer>"],
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.05,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_the_key_comes_from_the_environment_and_stays_out_of_the_folder(chat, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k-17")
    stub = chat(by_seed)
    run(*TOOL, *at(stub), "--task", "0", out=tmp_path)
    assert stub.headers[0]["Authorization"] == "Bearer k-17"
    assert not any("k-17" in path.read_text() for path in tmp_path.iterdir())


def test_a_run_says_what_its_tokens_cost(chat, tmp_path, capsys):
    stub = chat(lambda fields: (200, "<answer>a</answer>"))  # counts words
    command = [*TOOL, *at(stub), "--task", "0:2", "--price", "1e6", "5e5"]
    assert run(*command, out=tmp_path) == 0
    cost = json.loads((tmp_path / "cost.json").read_text())
    words = sum(len(fields["messages"][0]["content"].split()) for fields in stub.bodies)
    # a token read costs 1 and one written 0.5; each of two replies is one word
    assert (cost["prompt_tokens"], cost["reply_tokens"], cost["price"]) == (words, 2, words + 1.0)
    assert f"{words} tokens read, 2 tokens written, cost {words + 1}.00" in capsys.readouterr().out
    assert run(*command, out=tmp_path) == 0
    assert json.loads((tmp_path / "cost.json").read_text()) == cost  # nothing was played again


@pytest.mark.parametrize("counted", [True, False])
def test_tokens_are_those_that_the_server_counted(counted, chat, tmp_path):
    replies = iter(["one two three", "<answer>x</answer>"])
    stub = chat(lambda fields: (200, next(replies)))
    stub.usage = counted
    run(*TOOL, "--policy", f"openai:{stub.url.removesuffix('/v1')}", "--task", "0", out=tmp_path)
    prompts = [len(fields["messages"][0]["content"].split()) for fields in stub.bodies]
    wanted = {
        "model_prompt_tokens": sum(prompts),
        "reply_tokens": 3 + 1,
        "model_tokens": sum(prompts) + 3 + 1,
        "model_tokens_peak": max(prompts[0] + 3, prompts[1] + 1),
    }
    metrics = lines(tmp_path)[0].metrics
    assert {name: metrics[name] for name in wanted if name in metrics} == (wanted if counted else {})


@pytest.mark.parametrize("kept", ["", "</answer>"])
def test_the_stop_string_that_a_server_removes_is_put_back_once(kept, chat, tmp_path):
    stub = chat(lambda fields: (200, f"<answer>x{kept}", {"stop_reason": "</answer>"}))
    run(*TOOL, *at(stub), "--task", "0", "--stop", "</answer>", out=tmp_path)
    assert texts(lines(tmp_path)[0]) == ["<answer>x</answer>"]


CALL = {"id": "1", "type": "function", "function": {"name": "search", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ((503, "busy"), "in 2 tries"),
        ((400, "too long"), "HTTP 400: too long"),
        ((200, "x", {"message": ...}), "does not speak the protocol"),
        (
            (200, "x", {"message": {"content": None, "tool_calls": [CALL]}}),
            "is a native tool call, not text",
        ),
    ],
)
def test_endpoint_failures_are_counted_and_the_run_continues(reply, reason, chat, quick, tmp_path, capsys):
    stub = chat(lambda fields: by_seed(fields) if fields["seed"] % 2 else reply)
    url = (*at(stub), "--tries", "2")
    assert run(*TOOL, *url, "--task", "0:8", out=tmp_path) == 1
    kept = results(tmp_path)
    failed = [line for line in lines(tmp_path) if line.error]
    assert kept["failed"] == len(failed) == 8 - kept["finished"] == 8 - kept["metrics"]["em"]["episodes"]
    assert all(reason in line.error for line in failed)
    assert f"{len(failed)} failed" in capsys.readouterr().out


WRITTEN = "<reasoning>r</reasoning><answer>x</answer> and on"


def honest(text, **told):
    """A server that ends a reply before a stop string, and tells only what `told` has."""

    def reply(fields):
        ends = [text.index(stop) for stop in fields.get("stop", ()) if stop in text]
        return 200, text[: min(ends)] if ends else text, {"stop_reason": ..., **told}

    return reply


def test_a_server_that_does_not_tell_its_stop_string_is_asked_without_and_cut_here(chat, tmp_path, caplog):
    stub = chat(honest(WRITTEN))
    arguments = (*at(stub), "--task", "0:3", "--stop", "</answer>", "</tool>")
    assert run(*TOOL, *arguments, "--concurrency", "1", out=tmp_path) == 0
    assert all(texts(line) == ["<reasoning>r</reasoning><answer>x</answer>"] for line in lines(tmp_path))
    assert ["stop" in fields for fields in stub.bodies] == [True, False, False, False]
    assert stub.bodies[0]["seed"] == stub.bodies[1]["seed"]
    assert caplog.text.count("does not say which stop string ended a reply") == 1


@pytest.mark.parametrize(("text", "cut"), [(WRITTEN, 0.0), ("<reasoning>r", 2.0)])
def test_a_reply_that_is_cut_here_did_not_end_at_its_limit(text, cut, chat, tmp_path):
    stub = chat(honest(text, finish_reason="length"))
    arguments = (*at(stub), "--task", "0", "--stop", "</answer>")
    run(*TOOL, *arguments, out=tmp_path)
    assert mean(tmp_path, "truncated_replies") == cut
    assert "reply_tokens" not in results(tmp_path)["metrics"]  # what was written is not what is left


def test_one_stop_string_of_a_body_is_no_list_of_letters(chat, tmp_path):
    stub = chat(lambda fields: (200, WRITTEN.partition("</answer>")[0], {"stop_reason": fields["stop"]}))
    run(*TOOL, *at(stub), "--task", "0", "--body", "stop=</answer>", out=tmp_path)
    assert texts(lines(tmp_path)[0]) == ["<reasoning>r</reasoning><answer>x</answer>"]


# A model in this process.


@pytest.fixture
def loaded(monkeypatch):
    """The models that were loaded, each with its settings; what plays for them says nothing."""
    models = []

    def load(model, **settings):
        models.append((model, settings))
        return ScriptedPolicy(lambda prompt: "")

    monkeypatch.setattr("memenvs.models.HFPolicy", SimpleNamespace(load=load), raising=False)
    return models


def test_a_model_is_loaded_as_the_command_line_says(loaded):
    options = ("--temperature", "0", "--top-p", "0.9", "--top-k", "20", "--min-p", "0.05")
    options += ("--stop", "</answer>", "--chat-args", "enable_thinking=false", "--dtype", "bfloat16")
    run(*TOOL, "--policy", "hf:smollm2", "--task", "0", *options)
    settings = {"temperature": 0.0, "top_p": 0.9, "top_k": 20, "min_p": 0.05, "stop": ("</answer>",)}
    settings |= {"chat_args": {"enable_thinking": False}, "dtype": "bfloat16"}
    assert loaded[0] == ("smollm2", settings)
    run(*TOOL, "--policy", "hf:smollm2", "--task", "0")
    assert loaded[1] == ("smollm2", {"temperature": 1.0, "dtype": "auto"})  # the rest is its own


# Reward methods.

SEARCH = ("--env", "MemSearchQA-v0", "--env-args", "tasks=world-test")


def test_episodes_are_kept_with_what_reward_methods_measured_and_credited(tmp_path):
    named = ("--methods", "SearchRewards", "igpo", "--scorer", "lexical")
    assert run(*SEARCH, "--policy", "lexical", "--task", "0:3", *named, out=tmp_path) == 0
    env = RewardWrapper(gym.make("MemSearchQA-v0", tasks="world-test"), ["SearchRewards", "IGPO"], "lexical")
    for line in lines(tmp_path):
        env.reset(seed=line.seed, options={"task": line.number})
        for reply in texts(line):
            *_, info = env.step(reply)
        assert line.signals == env.episode.signals
        assert line.turn_rewards == info["turn_rewards"]
        assert line.metrics["return"] == pytest.approx(sum(info["turn_rewards"]))
        assert line.credits["search_rewards"]
    setting = results(tmp_path)["setting"]
    assert [name for name, _ in setting["methods"]] == ["SearchRewards", "IGPO"]
    assert setting["scorer"] == "lexical"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--env", "MemChunkQA-v0", "--methods", "SearchRewards"), "search_rewards"),
        ((*SEARCH, "--methods", "IGPO", "--scorer", "best"), "'best'"),
        ((*SEARCH, "--scorer", "lexical"), "--methods"),
        ((*SEARCH, "--methods", "Nobody"), "'Nobody'"),
    ],
)
def test_reward_methods_that_do_not_fit_are_refused(options, named, loaded, capsys):
    assert run(*options, "--policy", "hf:smollm2", "--task", "0") == 2
    assert named in capsys.readouterr().err.splitlines()[-1]
    assert loaded == [] or "--scorer" in options


# The command line.


@pytest.mark.parametrize(
    ("text", "tasks"),
    [(":", [0, 1, 2, 3, 4]), ("3", [3]), ("1:3", [1, 2]), ("3:", [3, 4]), ("4,:2,1", [4, 0, 1])],
)
def test_tasks_are_numbers_and_ranges(text, tasks):
    assert read_tasks(text, 5) == tasks


@pytest.mark.parametrize("text", ["", "x", "-1", "5", "0:6", "4:1", "1,,2", "1:2:3"])
def test_tasks_that_do_not_exist_are_refused(text):
    with pytest.raises(ValueError, match="0 to 4"):
        read_tasks(text, 5)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--env", "MemSokobanGrid-v0", "--policy", "gold"), "MemSokobanGrid-v0"),
        (("--env", "MemSokobanImage-v0", "--policy", "hf:smollm2-reader"), "MemSokobanImage-v0"),
        ((*TOOL, "--policy", "hf:"), "hf:"),
        ((*TOOL, "--policy", "openai:http://me:sec/ret@node:9/v1"), "http://…@node:9/v1"),
        ((*TOOL, "--policy", "openai:http://127.0.0.1:9", "--tries", "1"), "127.0.0.1:9"),
        ((*TOOL, "--policy", "gold", "--model", "x"), "model"),
        ((*TOOL, "--policy", "gold", "--samples", "0"), "samples"),
        ((*TOOL, "K=1", "--policy", "hf:nowhere"), "'K'"),
        (TOOL, "--policy"),
    ],
)
def test_a_wrong_command_line_is_one_line(arguments, named, capsys):
    assert run(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert named in line
    assert "secret" not in line


def test_an_endpoint_of_several_models_wants_a_choice(chat, capsys):
    stub = chat(by_seed)
    stub.models = ["a", "b"]
    assert run(*TOOL, *at(stub), "--task", "0") == 2
    assert "'a', 'b'" in capsys.readouterr().err
    assert run(*TOOL, *at(stub), "--task", "0", "--model", "b") == 0
    assert {fields["model"] for fields in stub.bodies} == {"b"}


# From Python.


def test_a_function_from_observation_and_info_to_a_reply_is_a_policy():
    args = {"tasks": "world-test"}
    env = gym.make("MemToolQA-v0", **args).unwrapped
    env.reset(options={"task": 5})
    gold = env.gold_reply()
    summary = evaluate("MemToolQA-v0", lambda observation, info: gold, env_args=args, tasks=[5])
    assert summary.metrics["success"].interval.mean == 1.0


@pytest.mark.parametrize("env", ["MemChunkQA-v0", "MemSearchQA-v0"])
def test_a_policy_does_not_see_what_only_a_trainer_may_see(env):
    seen = []

    def policy(observation, info):
        seen.append(info)
        return ""

    methods = ["SearchRewards"] if env == "MemSearchQA-v0" else ()
    evaluate(env, policy, tasks="0", methods=methods)
    assert seen
    assert not any({"privileged", "events", "signals", "measured"} & info.keys() for info in seen)
    assert all({"context", "feedback", "turn", "rewards"} <= info.keys() for info in seen)


OWN = """
def answer(observation, info):
    return "<answer>" + str(info["task"]) + "</answer>"

class Counter:
    def __init__(self, env):
        self.turns = 0

    def __call__(self, observation, info):
        self.turns += 1
        return f"turn {self.turns}"
"""


def test_your_own_function_or_class_is_named_by_its_module(tmp_path, monkeypatch):
    (tmp_path / "my_agent.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    assert run(*TOOL, "--policy", "my_agent:answer", "--task", "0:2", out=tmp_path / "function") == 0
    assert all("<answer>" in texts(line)[0] for line in lines(tmp_path / "function"))
    reading = ("--env", "MemChunkQA-v0", "--env-args", "tasks=world-test", "n_documents=20")
    assert run(*reading, "--policy", "my_agent:Counter", "--task", "0:2", out=tmp_path / "class") == 0
    assert [texts(line)[:2] for line in lines(tmp_path / "class")] == [["turn 1", "turn 2"]] * 2
    assert play(["--env", "MemToolQA-v0", "--policy", "my_agent:answer"]) == 0


def test_an_environment_may_be_made_by_a_function_with_its_wrappers():
    def make():
        return RewardWrapper(gym.make("MemSearchQA-v0", tasks="world-test"), [["SearchRewards", {}]])

    plain = evaluate("MemSearchQA-v0", "lexical", env_args={"tasks": "world-test"}, tasks="0:2")
    wrapped = evaluate(make, "lexical", tasks="0:2")
    assert wrapped.metrics["success"] == plain.metrics["success"]
    assert wrapped.metrics["return"].interval.mean != plain.metrics["return"].interval.mean


def test_a_policy_over_token_ids_is_asked_within_the_limit_of_its_options():
    policy = ScriptedPolicy(lambda prompt: read.append(prompt) or "a reply of more than three tokens")
    read = []
    summary = evaluate("MemToolQA-v0", policy, tasks=[0], options=ModelOptions(max_new_tokens=3))
    assert summary.metrics["truncated_replies"].interval.mean == 2.0
    assert summary.metrics["model_prompt_tokens"].interval.mean == sum(
        len(policy.encode(prompt)) for prompt in read
    )


def test_your_own_policy_is_asked_for_the_turns_of_many_episodes():
    class Silence:
        most = 0

        def replies(self, requests):
            self.most = max(self.most, len(requests))
            return [(request, Reply("")) for request in requests]

    policy = Silence()
    assert evaluate("MemSokoban-v0", policy, tasks="0:5", concurrency=3).finished == 5
    assert policy.most == 3


@pytest.mark.parametrize("policy", ["lexical", "hf:/no/such/folder"])
def test_a_policy_that_is_refused_leaves_no_run(policy, tmp_path):
    assert run("--env", "MemSokoban-v0", "--policy", policy, "--task", "0", out=tmp_path / "run") == 2
    assert not (tmp_path / "run").exists()


def test_a_wrong_name_of_a_model_is_reported_before_torch_is_imported():
    program = """import sys
sys.modules["torch"] = None
from memenvs.rollout.policies import choose_policy
from memenvs.models.settings import ModelOptions
try:
    choose_policy("hf:nobody/no-such-model", ModelOptions())
except FileNotFoundError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "'nobody/no-such-model'" in done.stdout


def test_no_secret_of_an_address_is_in_the_folder_of_a_run_or_on_the_screen(chat, tmp_path, capsys):
    def answer(path, fields):
        passages = [[{"id": "1", "contents": "x"}] for _ in (fields or {}).get("queries", ())]
        return 200, {"result": passages}

    judge = chat(lambda fields: (200, '{"score": 1}'))
    with JSONStub(answer) as index:
        place = index.url.replace("http://", "http://me:hidden-1@")
        url = judge.url.replace("http://", "http://hidden-2@")
        settings = {"url": f"{url}?k=hidden-3", "model": "m", "rubric": "general", "level": "outcome"}
        status = run(
            *("--env", "MemSearchQA-v0", "--env-args", "tasks=world-test", f"retriever={place}?t=hidden-4"),
            *("--policy", f"openai:{chat(by_seed).url}?api-version=1&sig=hidden-5#hidden-6"),
            *("--methods", json.dumps(["Judge", settings]), "--task", "0:2"),
            out=tmp_path / "run",
        )
    assert status == 0
    assert judge.paths[0].endswith("?k=hidden-3")
    written = "".join(file.read_text(encoding="utf-8") for file in (tmp_path / "run").iterdir())
    assert "hidden" not in written + "".join(capsys.readouterr()) + repr(Judge(**settings))
    assert results(tmp_path / "run")["setting"]["env_args"]["retriever"] == f"http://…@{index.url[7:]}?…"


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            {"content": "", "reasoning_content": "<answer>x</answer>"},
            ["hold a thought", "--reasoning-parser"],
        ),
        ({"content": None, "reasoning": "<answer>x</answer>"}, ["hold a thought"]),
        ({"thinking": "<answer>x</answer>"}, ["hold a thought"]),
        ({"content": "I do not know."}, ["0 of 2 episodes"]),
    ],
)
def test_a_run_that_is_worth_nothing_says_so_once(chat, caplog, message, words):
    policy = f"openai:{chat(lambda fields: (200, '', {'message': message})).url}"
    env_args = {"tasks": "world-test"}
    evaluate("MemToolQA-v0", policy, env_args=env_args, tasks="0:2")
    collect("MemToolQA-v0", policy, [0, 1], env_args=env_args)
    assert len(caplog.records) == 2  # one of each
    assert all(word in record.getMessage() for word in words for record in caplog.records)
