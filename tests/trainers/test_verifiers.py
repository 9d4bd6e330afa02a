"""Episodes of all families in the real verifiers, whose agent asks a scripted chat endpoint on loopback."""

import asyncio
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from chat_stub import ChatStub
from families import FAMILIES, play

pytest.importorskip("verifiers", reason='verifiers is not installed: pip install -e ".[verifiers]"')
pytestmark = pytest.mark.filterwarnings("default")  # of libraries under verifiers

import tomli  # noqa: E402  # comes with verifiers
import verifiers.v1 as vf  # noqa: E402
from verifiers.v1.utils.loaders import load_environment, resolve_env_config  # noqa: E402

from memenvs.credit.memory import normalize_turns  # noqa: E402

ROOT = Path(__file__).parents[2]
CASES = [("reading", 1), ("search", 2), ("sokoban", 1)]


def made(family, taskset=(), **settings):
    taskset = {"id": "memenvs_v1", **FAMILIES[family], "seed": 7, **dict(taskset)}
    return load_environment(resolve_env_config({"taskset": taskset, **settings}))


def run(env, reply, *tasks, rollouts=1):
    """The episodes of some tasks; `reply` sees the messages, and gives a text or parts of a choice."""
    chosen = env.taskset.include(idx=[f"{task}:{task + 1}" for task in tasks])

    async def all_of_them(url):
        context = vf.ModelContext(model="tiny", client=vf.EvalClientConfig(base_url=url, api_key_var="NONE"))
        async with env.serving():
            slots = [slot for task in chosen for slot in env.slots(task, rollouts)]
            return await asyncio.gather(*(env.run_slot(slot, context) for slot in slots))

    def answer(fields):
        said = reply(fields["messages"])
        return (200, said) if isinstance(said, str) else (200, "", said)

    with ChatStub(answer) as stub:
        return asyncio.run(all_of_them(stub.url)), stub.bodies


def told_by(turns):
    """Replies by the prompt's last message: whole observations, or what came back since the last."""
    shown = {turn.observation: turn.reply for turn in turns}
    for before, turn in itertools.pairwise(turns):
        shown[turn.observation[len(before.observation + before.reply) :]] = turn.reply
    return lambda messages: shown[messages[-1]["content"]]


@pytest.mark.parametrize(("family", "task"), CASES)
def test_turn_rewards_and_components_arrive_on_traces(family, task):
    turns = play(family, task)
    ((episode,), _) = run(made(family), told_by(turns), task)
    assert episode.ok, episode.errors
    assert [turn for trace in episode.traces for turn in trace.info["turns"]] == [p.public for p in turns]
    assert sum(trace.reward for trace in episode.traces) == pytest.approx(sum(p.reward for p in turns))


def test_a_rewrite_episode_is_a_trace_a_turn_with_that_turns_reward():
    turns = play("reading", 1)
    ((episode,), bodies) = run(made("reading"), told_by(turns), 1)
    # TAMTRL: the answer turn takes the outcome, memories that help take 1 by min-max, the first earns nothing
    assert [trace.reward for trace in episode.traces] == [0, 1, 1, 1, 1, 1]
    asked = [[message["content"] for message in body["messages"]] for body in bodies]
    assert asked == [[turn.observation] for turn in turns]


def test_a_compacted_conversation_is_a_trace_up_to_each_summary():
    turns = play("compact", 2)
    told = iter(turn.reply for turn in turns)
    ((episode,), bodies) = run(made("compact"), lambda messages: next(told), 2)
    assert [len(trace.info["turns"]) for trace in episode.traces] == [3, 2]
    for body, turn in zip(bodies, turns, strict=True):
        assert "".join(message["content"] for message in body["messages"]) == turn.observation
    assert sum(trace.reward for trace in episode.traces) == pytest.approx(sum(turn.reward for turn in turns))


def test_each_trace_can_have_the_whole_return():
    turns = play("reading", 1)
    ((episode,), _) = run(made("reading", reward="return"), told_by(turns), 1)
    assert [trace.reward for trace in episode.traces] == [5] * 6


@pytest.mark.parametrize(("family", "task"), CASES[1:])
def test_an_appending_episode_is_one_trace_whose_messages_joined_are_the_observation(family, task):
    turns = play(family, task)
    ((episode,), bodies) = run(made(family), told_by(turns), task)
    assert len(episode.traces) == 1
    for body, turn in zip(bodies, turns, strict=True):
        assert "".join(message["content"] for message in body["messages"]) == turn.observation


def test_components_are_rewards_by_name_and_metrics_are_metrics():
    turns = play("sokoban", 1)
    ((episode,), _) = run(made("sokoban"), told_by(turns), 1)
    (trace,) = episode.traces
    # two turns of three moves at -0.1, then one that ends on the target: 10 + 1; format 0.5 a turn
    rewards = {name: reward.value for name, reward in trace.rewards.items()}
    assert rewards == pytest.approx({"outcome": 10.0, "placement": 1.0, "format": 1.5, "step": -0.6})
    assert (trace.metrics["success"], trace.metrics["complete"]) == (1.0, 1.0)


def test_rollouts_of_a_task_read_the_same_first_prompt():
    episodes, bodies = run(made("sokoban"), lambda messages: "nothing", 0, 1, rollouts=2)
    first = Counter(body["messages"][0]["content"] for body in bodies if len(body["messages"]) == 1)
    assert len(episodes) == 4
    assert list(first.values()) == [2, 2]


# What prime-rl reads.


@pytest.mark.parametrize(("family", "task"), CASES)
def test_each_sampled_turn_has_what_the_episode_had_earned_by_then(family, task):
    turns = play(family, task)
    ((episode,), _) = run(made(family), told_by(turns), task)
    read = [value for trace in episode.traces for value in trace.info["turn_rewards"]]
    assert read == pytest.approx(list(itertools.accumulate(turns[-1].public["turn_rewards"])))
    assert all(len(trace.info["turn_rewards"]) == trace.num_turns for trace in episode.traces)


def centred(group):
    """The advantage of each trace by prime-rl's GRPO: its reward minus the mean over all traces of a group.

    `GRPOAlgorithm.score_group` of prime-rl 559b447, without a length penalty; the real one where it is
    installed, which the package index does not have.
    """
    traces = [trace for episode in group for trace in episode.traces]
    rewards = [trace.reward for trace in traces]
    advantages = [reward - sum(rewards) / len(rewards) for reward in rewards]
    if importlib.util.find_spec("prime_rl"):
        from prime_rl.configs.algorithm import GRPOAlgoConfig
        from prime_rl.orchestrator.algo.grpo import GRPOAlgorithm

        for trace in traces:
            for node in trace.nodes:
                node.token_ids, node.mask = [0], [node.sampled]
        asyncio.run(GRPOAlgorithm(GRPOAlgoConfig(), None).score_group(group))
        given = [node.advantages for trace in traces for node in trace.nodes if any(node.mask)]
        assert given == [[pytest.approx(advantage)] for advantage in advantages]
    return advantages


def group_of(env, task, *replies):
    """An episode of a task by each way to reply."""
    return [run(env, reply, task)[0][0] for reply in replies]


def test_centring_turn_rewards_is_tamtrl_without_its_standard_deviation():
    right = told_by(play("reading", 1))
    group = group_of(made("reading"), 1, right, lambda messages: "nothing")
    # right: 0 for the first memory and 1 for each other turn; wrong: 0 for all six; the mean is 5/12
    advantages = centred(group)
    assert advantages == pytest.approx([-5 / 12, *[7 / 12] * 5, *[-5 / 12] * 6])
    own = np.concatenate(normalize_turns([[0, 1, 1, 1, 1, 1], [0] * 6]))  # TAMTRL eq. 7
    assert np.allclose(np.array(advantages) / np.std(advantages, ddof=1), own, atol=1e-5)


def test_centring_returns_weighs_an_episode_by_its_number_of_traces():
    searching = {"env_args": {"tasks": "world-test", "memory_mode": "rewrite", "max_turns": 3}, "methods": []}
    env = made("search", reward="return", taskset=searching)
    (answer,) = env.taskset.config.open().reset(seed=7, options={"task": 2})[1]["privileged"]["answers"]
    right = f"<mem></mem><think></think><answer>{answer[0]}</answer>"
    group = group_of(env, 2, lambda messages: right, lambda messages: "nothing")
    assert [len(episode.traces) for episode in group] == [1, 4]
    assert centred(group) == pytest.approx([0.8, *[-0.2] * 4])  # the mean is 1/5; over episodes it is 1/2


def test_the_recipe_of_prime_rl_names_an_environment_that_verifiers_makes():
    recipe = tomli.loads((ROOT / "examples" / "prime_rl.toml").read_text())
    (source,) = recipe["orchestrator"]["train"]["source"]
    env = load_environment(resolve_env_config(source["env"]))
    assert env.config.reward == "turn"
    assert len(list(env.taskset.include(idx=["0:3"]))) == 3


def test_the_package_of_the_examples_is_found_by_its_id(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples" / "mem_search_v1")
    env = load_environment(resolve_env_config({"taskset": {"id": "mem-search-v1"}}))
    ((episode,), _) = run(env, lambda messages: "<think></think><answer>nothing</answer>", 2)
    assert episode.ok, episode.errors
    assert "search_rewards" in str(episode.traces[0].rewards.keys())


def test_an_empty_reply_goes_on():
    ((episode,), _) = run(made("sokoban"), lambda messages: "", 1)
    (trace,) = episode.traces
    assert [turn["turn"] for turn in trace.info["turns"]] == [1, 2, 3]


def test_a_thought_that_the_server_separates_is_part_of_the_reply():
    message = {"role": "assistant", "content": "<answer>Up</answer>", "reasoning_content": "Up it is."}
    ((episode,), _) = run(made("sokoban"), lambda messages: {"message": message}, 1)
    assert episode.traces[0].metrics["format"] == 1.0


def test_an_agent_that_may_not_go_on_leaves_an_incomplete_episode():
    env = made("sokoban", player={"max_turns": 1})
    ((episode,), _) = run(env, lambda messages: "nothing", 1)
    (trace,) = episode.traces
    assert (len(trace.info["turns"]), trace.metrics["complete"]) == (1, 0.0)
    assert len(trace.info["turn_rewards"]) == trace.num_turns


def test_traces_are_json_without_anything_privileged():
    turns = play("search", 2)
    ((episode,), _) = run(made("search"), told_by(turns), 2)
    text = json.dumps(episode.model_dump(mode="json"))
    assert '"turn_rewards"' in text
    assert '"privileged"' not in text


def test_the_command_line_evaluates_an_environment(tmp_path):
    command = [str(Path(sys.executable).with_name("vf-eval")), "memenvs_v1", "-n", "2", "-r", "2"]
    command += ["--env.taskset.env", "MemSokoban-v0", "--model", "tiny", "--no-push"]
    with ChatStub(lambda fields: (200, "<think></think><answer>nowhere</answer>")) as stub:
        command += ["--client.base-url", stub.url]
        subprocess.run(command, cwd=tmp_path, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    (file,) = tmp_path.glob("outputs/*/traces.jsonl")
    episodes = [json.loads(line) for line in file.read_text().splitlines()]
    rewards = [sum(reward["score"] for reward in e["traces"][0]["rewards"].values()) for e in episodes]
    assert rewards == [0.0] * 4  # a word that is no move is not well formed, and moves nothing


def test_arguments_of_the_chat_template_reach_the_endpoint():
    player = {"harness": {"id": "memenvs_v1", "chat_args": {"enable_thinking": False}}}
    _, bodies = run(made("sokoban", player=player), lambda messages: "nothing", 0)
    assert bodies
    assert all(fields["chat_template_kwargs"] == {"enable_thinking": False} for fields in bodies)
