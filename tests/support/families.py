"""An episode of each family of environments with the right replies, for comparison with a trainer's."""

from __future__ import annotations

from typing import NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import WrapperSpec

from memenvs.adapters.common import open_env, turn_record

WORLD = {"tasks": "world-test"}
COMPACT = {**WORLD, "k": 1, "max_turns": 4, "memory_mode": "compact", "compact_at": 300}
READING = {"env": "MemChunkQA-v0", "env_args": WORLD, "methods": [["TAMTRL", {}]], "scorer": "lexical"}
FAMILIES = {
    "reading": READING,
    "search": {"env": "MemSearchQA-v0", "env_args": WORLD, "methods": ["SearchRewards"]},
    "sokoban": {"env": "MemSokoban-v0"},
    "compact": {"env": "MemSearchQA-v0", "env_args": COMPACT},
}
COMPACTED = [
    *(f"<think></think><search>{query}</search>" for query in ("the mayor", "the town")),
    *("a summary", "<think></think><search>river</search>", "<think></think><answer>x</answer>"),
]
"""Replies to task 2 of "compact": after two searches it asks for a summary, which begins a fresh prompt."""

WRAPPED = {"tasks": "world-test", "k": 1, "max_turns": 3, "max_information": 60}
for env_id, wrapper in (("CompactWrapped-v0", "CompactContext"), ("SelectWrapped-v0", "SelectRecords")):
    gym.register(
        env_id,
        "memenvs.envs.search_qa:SearchQAEnv",
        additional_wrappers=(WrapperSpec(wrapper, f"memenvs.wrappers:{wrapper}", {"at": 1}),),
    )
REQUESTS = {
    "CompactWrapped-v0": ("Write a summary", "It is Arl.", "<summary>\nIt is Arl.\n</summary>"),
    "SelectWrapped-v0": (
        *("another time", "<record>Arl</record><select>1</select>"),
        "<records>\n[1] Arl | <search>town</search>\n</records>",
    ),
}
"""By the ids of searches whose wrapper asks for a memory after every turn: a part of the request, a reply to
it, and what the next prompt shows then."""


class Played(NamedTuple):
    """A turn: what was read, the reply, the reward, and what a trainer may see of it."""

    observation: str
    reply: str
    reward: float
    public: dict


def play(family: str, task: int) -> list[Played]:
    """The turns of an episode: gold replies, after one search where there are searches, or `COMPACTED`."""
    env = open_env(**FAMILIES[family])
    observation, _ = env.reset(seed=7, options={"task": task})
    turns, over = [], False
    while not over:
        reply = env.unwrapped.gold_reply() if family != "compact" else COMPACTED[len(turns)]
        if family == "search" and not turns:
            question = observation.rpartition("Question: ")[2].strip()
            reply = f"<think>I look.</think><search>{question}</search>"
        following, reward, terminated, truncated, info = env.step(reply)
        turns.append(Played(observation, reply, reward, turn_record(info)))
        observation, over = following, terminated or truncated
    return turns
