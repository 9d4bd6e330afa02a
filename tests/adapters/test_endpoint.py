"""Episodes by chat completions to an injected address, with a reward for each completion."""

import asyncio
import pickle
import threading

import gymnasium as gym
import pytest
from chat_stub import ChatStub

from memenvs.adapters.endpoint import EpisodeAgent
from memenvs.core.errors import ServerError
from memenvs.wrappers import RewardWrapper

SEARCH = "<think>Where?</think><search>the mayor of the town</search>"
REPLIES = [SEARCH, SEARCH, "<think></think><answer>nobody</answer>"]
SEARCHING = {"env": "MemSearchQA-v0", "env_args": {"max_turns": 3}, "methods": ["SearchRewards"]}


def replying(replies):
    """A server that gives these replies one after the other."""
    left = iter(replies)
    return ChatStub(lambda fields: (200, next(left)))


def run(agent, server, data, **options):
    return asyncio.run(agent.run(data, base_url=server.url, api_key="secret", **options))


def test_each_completion_gets_what_its_turn_earned():
    with replying(REPLIES) as server:
        rewards = run(EpisodeAgent(**SEARCHING), server, {"task": 3, "seed": 0})
    env = RewardWrapper(gym.make("memenvs:MemSearchQA-v0", max_turns=3), ["SearchRewards"])
    env.reset(seed=0, options={"task": 3})
    *_, info = [env.step(reply)[4] for reply in REPLIES]
    assert rewards == {"chat-1": pytest.approx(info["turn_rewards"][0]),
                       "chat-2": pytest.approx(info["turn_rewards"][1]),
                       "chat-3": pytest.approx(info["turn_rewards"][2])}  # fmt: skip
    assert len(set(rewards.values())) > 1


def test_a_context_that_appends_is_a_growing_conversation():
    with replying(REPLIES) as server:
        run(EpisodeAgent(**SEARCHING, temperature=0.5), server, {"task": 3, "seed": 0})
    first, second, third = (body["messages"] for body in server.bodies)
    assert [message["role"] for message in third] == ["user", "assistant", "user", "assistant", "user"]
    assert third[:3] == second
    assert second[:1] == first
    assert second[1]["content"] == SEARCH
    assert "<information>" in second[2]["content"]
    assert server.bodies[0]["temperature"] == 0.5
    assert server.headers[0]["Authorization"] == "Bearer secret"


def test_a_rewritten_context_is_one_fresh_message_a_turn():
    with ChatStub(lambda fields: (200, "a note")) as server:
        agent = EpisodeAgent("MemChunkQA-v0", {"tasks": "world-test", "chunk_size": 1500})
        rewards = run(agent, server, {"task": 0})
    assert all(len(body["messages"]) == 1 for body in server.bodies)
    assert "a note" in server.bodies[1]["messages"][0]["content"]
    assert len(rewards) == len(server.bodies) > 1


def test_the_reward_of_a_turn_is_told_when_it_was_played():
    told = []
    with replying(REPLIES) as server:
        on_turn = lambda *turn: told.append((len(server.bodies), *turn))  # noqa: E731
        rewards = run(EpisodeAgent(**SEARCHING), server, {"task": 3}, on_turn=on_turn)
    assert [(number, completion) for number, completion, _ in told] == [(n, f"chat-{n}") for n in (1, 2, 3)]
    assert sum(reward for *_, reward in told) == pytest.approx(sum(rewards.values()))


def test_many_episodes_run_on_one_loop_at_once():
    async def all_at_once(server):
        agent = EpisodeAgent(**SEARCHING)
        rows = [{"task": task, "seed": 0} for task in range(40)]
        return await asyncio.gather(*(agent.run(row, base_url=server.url) for row in rows))

    eight = threading.Barrier(8)  # a request is answered when seven others wait too

    def reply(fields):
        eight.wait(timeout=60)
        return 200, REPLIES[-1]

    with ChatStub(reply) as server:
        found = asyncio.run(all_at_once(server))
    assert len({completion for rewards in found for completion in rewards}) == 40


def test_the_address_may_come_from_the_environment_variables(monkeypatch):
    with replying(REPLIES) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        agent = pickle.loads(pickle.dumps(EpisodeAgent(**SEARCHING)))  # as AReaL sends it to a process
        assert len(asyncio.run(agent.run({"seed": 1}, http_client=None))) == 3


def test_what_is_missing_is_one_line(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ValueError, match="give base_url, or set OPENAI_BASE_URL"):
        asyncio.run(EpisodeAgent().run({"seed": 1}))
    with pytest.raises(ValueError, match="`task` or `seed`, got the columns prompt"):
        asyncio.run(EpisodeAgent().run({"prompt": "?"}, base_url="http://127.0.0.1:1"))


def test_a_server_that_refuses_ends_the_episode_with_its_reason():
    with ChatStub(lambda fields: (400, "too long")) as server, pytest.raises(ServerError, match="too long"):
        run(EpisodeAgent(**SEARCHING), server, {"seed": 1})


def test_an_agent_that_calls_tools_is_paid_for_each_call():
    def call(name, **arguments):
        return {"id": name, "function": {"name": name, "arguments": arguments}}  # as some servers send them

    left = iter([call("search", query="the mayor of the town"), call("answer", answer="nobody")])
    with ChatStub(
        lambda fields: (200, "", {"message": {"content": None, "tool_calls": [next(left)]}})
    ) as server:
        rewards = run(EpisodeAgent(**SEARCHING, tools=True), server, {"task": 3, "seed": 0})
    assert [message["role"] for message in server.bodies[1]["messages"]] == ["user", "assistant", "tool"]
    env = RewardWrapper(gym.make("memenvs:MemSearchQA-v0", max_turns=3), ["SearchRewards"])
    env.reset(seed=0, options={"task": 3})
    env.step("<think></think><search>the mayor of the town</search>")
    info = env.step(REPLIES[-1])[4]
    assert list(rewards.values()) == pytest.approx(info["turn_rewards"])
