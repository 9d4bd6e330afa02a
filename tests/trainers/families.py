"""An episode of each family of environments, played by the right answers: what a trainer must be told too."""

from __future__ import annotations

from typing import NamedTuple

from memenvs.adapters.plain import open_env, told

FAMILIES = {
    "reading": {
        "env": "MemChunkQA-v0",
        "env_args": {"tasks": "world-test"},
        "methods": [["TAMTRL", {}]],
        "scorer": "lexical",
    },
    "search": {
        "env": "MemSearchQA-v0",
        "env_args": {"tasks": "world-test"},
        "methods": ["SearchRewards"],
    },
    "sokoban": {"env": "MemSokoban-v0"},
}


class Played(NamedTuple):
    """A turn: what was read, the reply, the reward, and what a trainer is told."""

    observation: str
    reply: str
    reward: float
    told: dict


def play(family: str, task: int) -> list[Played]:
    """The turns of a right episode: gold replies, after one search where there are searches."""
    env = open_env(**FAMILIES[family])
    observation, _ = env.reset(seed=7, options={"task": task})
    turns, over = [], False
    while not over:
        reply = env.unwrapped.gold_reply()
        if family == "search" and not turns:
            question = observation.rpartition("Question: ")[2].strip()
            reply = f"<think>I look.</think><search>{question}</search>"
        following, reward, terminated, truncated, info = env.step(reply)
        turns.append(Played(observation, reply, reward, told(info)))
        observation, over = following, terminated or truncated
    return turns
