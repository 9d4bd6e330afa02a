"""Environments on an event loop."""

import asyncio
import pickle
import time

import gymnasium as gym

from memenvs import AsyncTextEnv, TextEnv
from memenvs.core.asynchronous import in_thread
from memenvs.rollout.scripted import make_policy


def test_an_awaited_episode_equals_one_that_was_called():
    plain, awaited = (gym.make("memenvs:MemToolQA-v0") for _ in range(2))
    agent = make_policy("gold", plain)

    async def play():
        env, agent = AsyncTextEnv(awaited), make_policy("gold", awaited)
        observation, info = await env.reset(seed=3)
        steps, over = [(observation, info)], False
        while not over:
            steps.append(await env.step(agent(observation, info)))
            observation, _, terminated, truncated, info = steps[-1]
            over = terminated or truncated
        return steps

    observation, info = plain.reset(seed=3)
    expected, over = [(observation, info)], False
    while not over:
        expected.append(plain.step(agent(observation, info)))
        observation, _, terminated, truncated, info = expected[-1]
        over = terminated or truncated
    assert asyncio.run(play()) == expected


def test_other_attributes_are_the_environments():
    env = AsyncTextEnv(gym.make("memenvs:MemToolQA-v0"))
    assert isinstance(env.unwrapped, TextEnv)
    assert env.action_space == env.env.action_space


def test_a_copy_plays_on():
    env = AsyncTextEnv(gym.make("memenvs:MemToolQA-v0"))
    asyncio.run(env.reset(seed=3))
    copied = pickle.loads(pickle.dumps(env))
    assert asyncio.run(copied.step("no")) == asyncio.run(env.step("no"))


def test_hundreds_of_waits_overlap():
    most = under_way = 0

    def wait():
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        time.sleep(0.3)
        under_way -= 1

    async def all_at_once():
        await asyncio.gather(*(in_thread(wait) for _ in range(300)))

    asyncio.run(all_at_once())
    assert most > 100  # asyncio's own pool has at most 32 threads
