"""Hostile replies for as long as you like: `make soak` runs for an hour, CI for a minute.

Every id, memory mode and form plays episodes of replies from a grammar of tags, calls, boxes, numbers, half
markup and broken text, alone and under stacks of reward methods. It fails if a reply raises, leaves the
observation space, earns without bound or succeeds without an answer; if trailing blanks change what a reply
earns; if the time of a reply grows faster than its length; or if memory keeps growing.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import memenvs
from memenvs.testing.conformance import HOSTILE
from memenvs.wrappers import RewardWrapper

QA = {"tasks": "world-test"}
MODES = ("rewrite", "callback", "mem1", "structured", "a_mem", "react")
ENVS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in memenvs.ENV_IDS),
    *(("MemChunkQA-v0", {**QA, "chunk_size": 1500, "memory_mode": mode}) for mode in MODES),
    *(("MemSearchQA-v0", {**QA, "memory_mode": mode}) for mode in MODES),
    ("MemSearchQA-v0", {**QA, "memory_mode": ["compact", {"at": 600, "max_memory": 100}]}),
    *(("MemSearchQA-v0", {**QA, "form": form}) for form in ("research", "deep_researcher")),
]
STACKS: list[list[Any]] = [
    [],
    ["TAMTRL", "InfoMem"],
    [["MemPO", {"trajectory": "outcome"}], "IGPO"],
    ["ReMemR1", "GiGPO"],
    ["SearchRewards", "OTC"],
    ["StepSearch", "FormatGate"],
    ["ToolRewards"],
]
OPEN = [
    "<think>",
    "<answer>",
    "<search>",
    "<mem>",
    "<recall>",
    "<tool>",
    "<tool_call>",
    "\\boxed{",
    "ADD: ",
    "UPDATE 3: ",
]
CLOSE = [
    "</think>",
    "</answer>",
    "</search>",
    "</mem>",
    "</recall>",
    "</tool>",
    "</tool_call>",
    "}",
    "\n",
    "DELETE 1\n",
]
WORDS = [
    "town",
    "1623",
    "Up",
    "Left || Down",
    "the",
    "é",
    "\u202e",
    "\0",
    "\ud800",
    "0",
    "-1",
    "{",
    "<",
    "&amp;",
    "\u017f",
]
Case = tuple[str, str, str]
CALL = '<tool>{"name": "wiki_search", "args": {"query": "a town"}}</tool>'


UNITS = [*OPEN, *CLOSE, CALL, "ADD: a town\n", "a town ", "\\boxed{<answer>"]


class Soak:
    """Plays, checks and counts.

    Args:
        seed: decides every reply.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.counts: Counter[str] = Counter()

    def reply(self) -> str:
        """A reply from the grammar."""
        rng, kind = self.rng, self.rng.random()
        if kind < 0.1:
            return str(HOSTILE[rng.integers(len(HOSTILE))])
        if kind < 0.2:
            return CALL
        parts: list[str] = []
        for _ in range(rng.integers(1, 12)):
            words = (WORDS[i] for i in rng.integers(len(WORDS), size=rng.integers(0, 4)))
            parts += [OPEN[rng.integers(len(OPEN))], *words, CLOSE[rng.integers(len(CLOSE))]]
        if kind < 0.4:
            parts = [parts[i] for i in rng.permutation(len(parts))]
        text = (" " if kind < 0.7 else "").join(parts)
        return text * int(rng.integers(1, 200)) if kind > 0.97 else text

    def episode(self, case: Case) -> None:
        """One episode of hostile replies, with its checks."""
        if (env := make(*case)) is None:
            return
        _, info = env.reset(seed=int(self.rng.integers(2**31)))
        over, reply = False, ""
        answers = [str(answer) for each in info["privileged"].get("answers", ()) for answer in each]
        while not over:
            reply = self.reply()
            observation, reward, terminated, truncated, info = env.step(reply)
            self.counts["replies"] += 1
            over = terminated or truncated
            assert env.observation_space.contains(observation), ("observation", case, reply[:1000])
            assert abs(reward) < 100, ("reward", reward, case, reply[:1000])  # NaN is not either
        if info["metrics"]["success"] > 0 and answers:
            said = any(answer.lower() in reply.lower() for answer in answers)
            assert said, ("success without the answer", answers, case, reply[:1000])
        self.counts["episodes"] += 1

    def same_pay(self, case: Case) -> None:
        """Blanks behind a reply change nothing that it earns."""
        if (env := make(*case)) is None:
            return
        seed, replies = int(self.rng.integers(2**31)), [self.reply() for _ in range(8)]
        paid: list[list[float]] = []
        for blanks in ("", " \n\t "):
            env.reset(seed=seed)
            info: dict[str, Any] = {}
            for reply in replies:
                *_, terminated, truncated, info = env.step(reply + blanks)
                if terminated or truncated:
                    break
            paid.append(info["turn_rewards"])
        assert paid[0] == paid[1], ("blanks", case, [reply[:300] for reply in replies], paid)
        self.counts["pairs"] += 1

    def growth(self, case: Case) -> None:
        """A megabyte takes about four times as long as a quarter of it."""
        unit = UNITS[self.rng.integers(len(UNITS))]
        if (env := make(*case)) is None:
            return

        def power() -> float:
            seconds = []
            for size in (250_000, 1_000_000):
                env.reset(seed=0)
                start = time.perf_counter()
                env.step((unit * (size // len(unit) + 1))[:size])
                seconds.append(max(time.perf_counter() - start, 0.02))
            return math.log(seconds[1] / seconds[0], 4)  # 1 is linear, 2 is quadratic

        found = 0.0
        for _ in range(4):  # another process may have disturbed one
            if (found := power()) < 1.5:
                break
        assert found < 1.5, ("time grows with the power", found, case, unit)
        self.counts["lengths"] += 1


@functools.cache
def make(name: str, settings: str, methods: str) -> Any:
    """An environment under methods, made once; None where they do not fit it."""
    env = gym.make(f"memenvs:{name}", disable_env_checker=True, **json.loads(settings))
    if methods == "[]":
        return env
    try:
        wrapped = RewardWrapper(env, json.loads(methods), "lexical")
        wrapped.reset(seed=0)
    except ValueError:
        return None
    return wrapped


def main() -> None:
    """Soak for some seconds, then say what was played."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    soak, start, first, memory = Soak(args.seed), time.monotonic(), 0, 0
    cases = [
        (name, json.dumps(settings), json.dumps(methods)) for methods in STACKS for name, settings in ENVS
    ]
    for number in itertools.count():
        if time.monotonic() - start > args.seconds:
            break
        case = cases[number % len(cases)]
        soak.episode(case)
        if case[2] == "[]":  # a method may score every token
            soak.same_pay(case)
        if number % 50 == 0:
            soak.growth(case)
        memory = resident()
        if number == 4 * len(cases):
            first = memory  # what is loaded once is loaded by now
        assert not first or memory < 2 * first, (
            "memory grows",
            first,
            memory,
        )  # a megabyte takes a lot of room
    told = f"{dict(soak.counts)} in {time.monotonic() - start:.0f} s, seed {args.seed}, {memory} MB"
    sys.stdout.write(f"{told} (after the first rounds {first} MB): nothing failed\n")


def resident() -> int:
    """Memory of this process now, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 2**20


if __name__ == "__main__":
    main()
