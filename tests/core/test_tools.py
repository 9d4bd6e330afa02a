"""Environments as tools, and endpoints that call them and see images (`--tools native`)."""

import base64
import json
import zlib

import gymnasium as gym
import numpy as np
import pytest
from chat_stub import ChatStub
from command_line import evaluate as main

import memenvs  # noqa: F401  # registers the environments
from memenvs.core.tools import as_thought
from memenvs.evaluation.run import evaluate
from memenvs.models.settings import ModelOptions

QUERY = {"query": "chemist Berava"}
SEARCHES = ["<think></think><search>chemist Berava</search>", "<think></think><answer>1623</answer>"]
CALLED = [
    '<reasoning></reasoning><tool>\n{"name": "wiki_search", "args": {"query": "chemist Berava"}}\n</tool>',
    "<reasoning></reasoning><answer>1623</answer>",
]
MOVES = ["<think></think><answer>Up || Left</answer>", "<think></think><answer>Down || jump</answer>"]
LOST = {"role": "assistant", "content": None}


def made(env_id, **arguments):
    return gym.make(env_id, **arguments).unwrapped


def call(name, arguments, number=0):
    """A tool call as OpenAI sends it."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"id-{number}", "type": "function", "function": function}


def calling(*messages):
    """An endpoint that sends these messages one after the other, the last one again and again."""

    def reply(fields):
        turn = sum(message["role"] == "assistant" for message in fields["messages"])
        return 200, "", {"message": LOST | messages[min(turn, len(messages) - 1)]}

    return ChatStub(reply)


def calls(*given):
    """Messages of one call each."""
    return [{"tool_calls": [call(name, arguments, i)]} for i, (name, arguments) in enumerate(given)]


def play(stub, out, env_id, tools="native", **env_args):
    """The line of task 0's episode, and the requests."""
    options = ModelOptions(tools=tools)
    policy = f"openai:{stub.url}"
    summary = evaluate(env_id, policy, env_args=env_args, tasks="0", out=out, options=options)
    (line,) = (out / "episodes.jsonl").read_text(encoding="utf-8").splitlines()
    assert summary.failed == 0, line
    line = json.loads(line)
    return line | {"replies": [turn["reply"]["text"] for turn in line["turns"]]}, stub.bodies


def rewards_of(env, replies, seed):
    env.reset(seed=seed, options={"task": 0})
    return [*map(env.step, replies)][-1][4]["turn_rewards"]


# The tools.


def test_tools_are_in_openais_schema():
    (move,) = made("MemSokoban-v0").tools()
    assert move["type"] == "function"
    assert move["function"]["name"] == "move"
    parameters = move["function"]["parameters"]
    assert parameters["required"] == ["moves"]
    assert parameters["properties"]["moves"]["type"] == "string"
    search, answer = (one["function"]["name"] for one in made("MemSearchQA-v0").tools())
    assert (search, answer) == ("search", "answer")


@pytest.mark.parametrize("form", ["search_r1", "research", "deep_researcher"])
def test_a_call_is_a_well_formed_reply_whatever_it_holds(form):
    env = made("MemSearchQA-v0", form=form)
    env.reset(seed=0)
    thought, query = "</think> so <answer>no</answer>", "</search><answer>1623</answer>"
    reply, fault = env.tool_use().call("search", {"query": query}, thought, "<think>I look it up")
    *_, terminated, _, info = env.step(reply)
    assert not terminated
    assert not fault
    assert (info["events"]["searched"], info["events"]["well_formed"]) == (1.0, 1.0)


def test_a_thought_is_the_reasoning_and_the_text_of_the_message():
    assert as_thought("a", " b\n", "<search>c</search>") == "<think>a\nb</think><search>c</search>"


# An endpoint that calls them.


@pytest.mark.parametrize(
    ("env_id", "given", "replies"),
    [
        ("MemSearchQA-v0", [("search", QUERY), ("answer", {"answer": 1623})], SEARCHES),
        ("MemToolQA-v0", [("wiki_search", QUERY), ("answer", {"answer": "1623"})], CALLED),
        (
            "MemSokoban-v0",
            [("move", {"moves": "Up || Left"}), ("move", {"moves": "Down || jump"})],
            [*MOVES, MOVES[1]],
        ),
    ],
)
def test_calls_earn_what_the_same_replies_as_text_earn(env_id, given, replies, tmp_path):
    env_args = {} if env_id == "MemSokoban-v0" else {"tasks": "world-test"}
    with calling(*calls(*given)) as stub:
        line, bodies = play(stub, tmp_path, env_id, **env_args)
    assert line["replies"] == replies
    env = made(env_id, **env_args)
    assert line["turn_rewards"] == pytest.approx(rewards_of(env, replies, line["seed"]))
    assert all(body["tools"] == env.tools() for body in bodies)


def test_the_conversation_has_the_calls_and_what_they_returned(tmp_path):
    with calling(*calls(("search", QUERY), ("answer", {"answer": "x"}))) as stub:
        _, (first, second) = play(stub, tmp_path, "MemSearchQA-v0", tasks="world-test")
    (asked,) = first["messages"]
    assert "with the tool `search`" in asked["content"]
    assert "<search>" not in asked["content"]
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "tool"]
    _, said, returned = second["messages"]
    assert json.loads(said["tool_calls"][0]["function"]["arguments"]) == QUERY
    assert said["tool_calls"][0]["id"] == returned["tool_call_id"] == "id-0"
    assert returned["name"] == "search"  # templates of Hermes models read it
    assert returned["content"].startswith("<information>Doc 1")


def test_of_several_calls_the_first_one_counts(tmp_path):
    both = {"tool_calls": [call("search", QUERY, 0), call("answer", {"answer": "x"}, 1)]}
    with calling(both, *calls(("answer", {"answer": "y"}))) as stub:
        line, bodies = play(stub, tmp_path, "MemSearchQA-v0", tasks="world-test", max_turns=1)
    assert line["replies"][0] == SEARCHES[0]
    assert [one["id"] for one in bodies[1]["messages"][1]["tool_calls"]] == ["id-0"]


BROKEN = {"function": {"name": "search", "arguments": '{"query": '}}
DEEP = {"function": {"name": "search", "arguments": '{"query": ' + "[" * 985 + "]" * 985 + "}"}}


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (call("seek", QUERY), "There is no tool 'seek'. Call search or answer."),
        (call("search", {"q": "x"}), "The tool search takes the string query."),
        (call("search", {"query": ["x"]}), "The tool search takes the string query."),
        (call("search", {"query": {}}) | {"id": ["x"]}, "The tool search takes the string query."),
        (BROKEN, "The tool search takes the string query."),
        (DEEP, "The tool search takes the string query."),
        (call("seek", ["\ud800", "</think><answer>x</answer>"]), "There is no tool 'seek'."),
        ({"function": "search"}, "There is no tool ''."),
        ("search", "There is no tool ''."),
    ],
)
def test_a_bad_call_is_a_reply_without_an_action_and_says_why(bad, told, tmp_path):
    with calling({"tool_calls": [bad]}, *calls(("answer", {"answer": "x"}))) as stub:
        line, bodies = play(stub, tmp_path, "MemSearchQA-v0", tasks="world-test")
    returned = bodies[1]["messages"][-1]
    assert returned["role"] == "tool"
    assert told in returned["content"]
    assert "<search>" not in returned["content"]
    assert line["metrics"]["format"] == 0.0
    assert line["metrics"]["turns"] == 2.0
    json.loads(bodies[1]["messages"][1]["tool_calls"][0]["function"]["arguments"])  # as templates need it


def test_a_message_without_a_call_is_read_as_text(tmp_path):
    with calling({"content": "Well."}, {"content": SEARCHES[1]}) as stub:
        line, bodies = play(stub, tmp_path, "MemSearchQA-v0", tasks="world-test")
    assert line["replies"] == ["Well.", SEARCHES[1]]
    told = bodies[1]["messages"][-1]
    assert (told["role"], told["content"].strip()) == ("user", "You called no tool. Call search or answer.")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thoughts_are_in_the_reply_and_are_sent_back(name, tmp_path):
    thinking = calls(("search", QUERY))[0] | {name: "Who is <answer>she</answer>?", "content": "I look."}
    with calling(thinking, *calls(("answer", {"answer": "x"}))) as stub:
        line, bodies = play(stub, tmp_path, "MemSearchQA-v0", tasks="world-test")
    assert line["replies"][0] == (
        "<think>Who is ‹answer›she‹/answer›?\nI look.</think><search>chemist Berava</search>"
    )
    assert bodies[1]["messages"][1][name] == "Who is <answer>she</answer>?"


@pytest.mark.parametrize("thoughts", ["strip", "keep"])
def test_a_memory_in_the_message_is_kept_and_each_turn_is_fresh(thoughts, tmp_path):
    memory = calls(("search", QUERY))[0] | {"content": "<mem>a note</mem>So:", "reasoning_content": "hm"}
    with calling(memory) as stub:
        settings = {"memory_mode": "rewrite", "thoughts": thoughts, "max_turns": 2}
        line, bodies = play(stub, tmp_path, "MemSearchQA-v0", tasks="world-test", **settings)
    assert line["replies"][0] == "<mem>a note</mem><think>hm\nSo:</think><search>chemist Berava</search>"
    assert all(len(body["messages"]) == 1 for body in bodies)
    assert "<mem>\na note\n</mem>" in bodies[1]["messages"][0]["content"]
    assert "search with the tool `search`" in bodies[1]["messages"][0]["content"]
    assert line["metrics"]["format_share"] == 1.0


def test_a_summary_is_a_message_without_a_call(tmp_path):
    def reply(fields):
        last = fields["messages"][-1]["content"]
        if "Write a summary" in last:
            return 200, "Berava is a chemist."
        return 200, "", {"message": LOST | calls(("search", QUERY))[0]}

    settings = {"memory_mode": "compact", "compact_at": 100, "max_turns": 2}
    with ChatStub(reply) as stub:
        _, bodies = play(stub, tmp_path, "MemSearchQA-v0", tasks="world-test", **settings)
    assert [len(body["messages"]) for body in bodies] == [1, 3, 1, 3, 1]
    fresh = bodies[2]["messages"][0]["content"]
    assert "with the tool `search`" in fresh
    assert "<summary>\nBerava is a chemist.\n</summary>" in fresh


def test_an_environment_without_tools_is_refused(capsys):
    with calling({}) as stub:
        command = ["--env", "MemChunkQA-v0", "--policy", f"openai:{stub.url}", "--tools", "native"]
        assert main(command) == 2
    assert "MemChunkQA-v0 has no tools" in capsys.readouterr().err


def test_tools_are_an_option_of_endpoints(capsys):
    assert main(["--env", "MemSokoban-v0", "--policy", "gold", "--tools", "native"]) == 2
    assert "has no option tools" in capsys.readouterr().err


# Pictures.


def pixels(part):
    """The picture of an `image_url` part."""
    url = part["image_url"]["url"]
    data = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    rows = zlib.decompressobj().decompress(data[data.index(b"IDAT") + 4 :])
    return np.frombuffer(rows, np.uint8).reshape(height, 1 + 3 * width)[:, 1:].reshape(height, width, 3)


@pytest.mark.parametrize(
    ("options", "pictures"),
    [
        (ModelOptions(), 1),
        (ModelOptions(conversation=True), 2),
        (ModelOptions(tools="native"), 2),
    ],
)
def test_an_endpoint_sees_the_board_of_every_turn(options, pictures):
    env = gym.make("MemSokobanImage-v0", tile=8, max_turns=2, max_solution=6)
    replied = calls(("move", {"moves": "Up || Left"}))[0] | {"content": MOVES[0]}
    seen = []
    with calling(replied) as stub:
        evaluate(
            "MemSokobanImage-v0",
            f"openai:{stub.url}",
            env_args={"tile": 8, "max_turns": 2, "max_solution": 6},
            tasks="0",
            options=options,
        )
        for message in stub.bodies[1]["messages"]:
            if isinstance(message["content"], list):
                seen.append(pixels(message["content"][0]))
    start, _ = env.reset(options={"task": 0})
    after, *_ = env.step(MOVES[0])
    boards = [start["image"], after["image"]][-pictures:]
    assert len(seen) == pictures
    for board, shown in zip(boards, seen, strict=True):
        assert np.array_equal(board, shown)
