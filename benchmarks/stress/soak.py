"""Hostile replies for as long as you like: `make soak` runs for an hour, CI plays every case once.

Every id, memory mode and form plays episodes of replies from a grammar of tags, calls, boxes, numbers, half
markup, broken text and right answers: alone, under each reward method, under stacks of them, in groups. It
fails if a reply raises, leaves the observation space, earns without bound or succeeds without an answer; if
blanks behind a reply, or another case of an answer, change what it earns; if the time of a parser or a method
grows faster than its text, to a megabyte; or if memory keeps growing. Servers, trainers
and the viewer have `benchmarks/stress/soak_adapters.py`.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import json
import logging
import math
import re
import string
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import gymnasium as gym
import numpy as np
from chat_stub import ChatStub
from prm_model import save_prm
from tiny_model import save_tiny_model

import memenvs
from benchmarks.harness import resident, run
from benchmarks.stress.hostile import CALL, CLOSE, OPEN, WORDS, Grammar
from memenvs.core import text as core_text
from memenvs.core.spaces import clean_text
from memenvs.envs.memory import MODES, Memory
from memenvs.envs.search_forms import FORMS
from memenvs.envs.search_qa import read_reply
from memenvs.envs.tool_qa import form_score, read_call, tag_score
from memenvs.models import ScriptedPolicy
from memenvs.models.endpoint import ToolConversation, read_completion
from memenvs.tasks import metrics
from memenvs.tasks.tokens import load_tokenizer
from memenvs.testing.conformance import HOSTILE
from memenvs.wrappers import RewardWrapper, judge
from memenvs.wrappers.comparison import ComparisonSettings
from memenvs.wrappers.fixed_size import features
from memenvs.wrappers.gigpo import similar_states
from memenvs.wrappers.names import METHODS
from memenvs.wrappers.registry import make_scorer
from memenvs.wrappers.rememr1 import recall
from memenvs.wrappers.scorers import ScoreRequest
from memenvs.wrappers.stepsearch import matches

QA = {"tasks": "world-test"}
ENVS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in memenvs.ENV_IDS),
    *(("MemChunkQA-v0", {**QA, "chunk_size": 1500, "memory_mode": mode}) for mode in MODES),
    *(("MemChunkQA-v0", {**QA, "chunk_size": 1500, "ask": ask}) for ask in ("each", "later")),
    *(("MemSearchQA-v0", {**QA, "memory_mode": mode}) for mode in MODES),
    ("MemSearchQA-v0", {**QA, "memory_mode": "compact", "compact_at": 600, "max_memory": 100}),
    *(("MemSearchQA-v0", {**QA, "form": form}) for form in FORMS),
]
STACKS: list[list[Any]] = [
    ["TAMTRL", "InfoMem"],
    [["MemPO", {"trajectory": "outcome"}], "IGPO"],
    ["ReMemR1", ["GiGPO", {"similarity": 0.9}]],
    ["SearchRewards", "OTC"],
    ["StepSearch", "FormatGate"],
]
UNITS = [*OPEN, *CLOSE, *WORDS, CALL, "ADD: a town\n", "a town ", "\\boxed{<answer>", "<|im_start|>"]
UNITS += ["[", '{"a":', "(", "\\(", "1", "a", " ", "<think></think>", "<answer></answer>"]
UNITS += ["<search></search><result></result>"]
ANSWERS = ["the town of Bel", "1623"]
CASE_COUNTS = {"math_em", "mrcr_ratio", "choice", "first_number"}  # as in their sources
SWAPPED = str.maketrans(string.ascii_letters, string.ascii_letters.swapcase())
Case = tuple[str, str, str]
Reader = Callable[[str], object]


class Soak(Grammar):
    """Plays, checks and counts."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.counts: Counter[str] = Counter()
        self.slowest: list[tuple[float, str, str]] = []
        self.memory: list[int] = []  # MB after each round of all cases
        self.policy = ScriptedPolicy(lambda prompt: self.reply(), "world")

    def __str__(self) -> str:
        slowest = ", ".join(
            f"{seconds:.1f} s {name} {unit!r}" for seconds, name, unit in self.slowest[:-4:-1]
        )
        return f"{dict(self.counts)}, slowest {slowest}, MB {self.memory}"

    def run(
        self, cases: list[Case], readers: dict[str, Reader], lengths: Iterator[tuple[str, str]], end: float
    ) -> None:
        """Play every case once, and again until `end`; what is played first does not depend on the time."""
        while not self.memory or time.monotonic() < end:
            for number, case in enumerate(cases):
                self.episode(case)
                self.same_pay(case)
                if number % 20 == 0:
                    self.group(case)
                    self.growth(f"episode of {case}", functools.partial(long_episode, case), self.pick(UNITS))
                name, unit = next(lengths)
                self.growth(name, readers[name], unit)
            self.memory.append(round(resident()))  # what is loaded once is loaded by now
            sys.stdout.write(f"{self}\n")
            sys.stdout.flush()
            # A megabyte takes much room, for a while.
            assert self.memory[-1] < 2 * self.memory[0], ("memory grows", self.memory)

    def reply(self, env: Any = None) -> str:
        """A hostile reply; now and then one of the conformance tests, or an environment's own right reply."""
        self.counts["replies"] += 1
        kind = self.rng.random()
        if kind < 0.02:
            return str(self.pick(HOSTILE))
        if kind < 0.15 and env is not None:
            return str(env.unwrapped.gold_reply())
        return super().reply()

    def episode(self, case: Case) -> None:
        """One episode of hostile replies."""
        env = make(*case)
        _, info = env.reset(seed=int(self.rng.integers(2**31)))
        over, reply, answers = False, "", answers_of(info)
        while not over:
            reply = self.reply()
            observation, reward, terminated, truncated, info = env.step(reply)
            over = terminated or truncated
            assert env.observation_space.contains(observation), ("observation", case, reply[:1000])
            assert abs(reward) < 100, ("reward", reward, case, reply[:1000])  # NaN is not either
        if info["metrics"]["success"] > 0 and answers:
            said = any(answer.lower() in reply.lower() for answer in answers)
            assert said, ("success without the answer", answers, case, reply[:1000])
        self.counts["episodes"] += 1

    def same_pay(self, case: Case) -> None:
        """Blanks behind a reply change nothing that it earns, and neither does another case of an answer."""
        env, played = make(*case), list[str]()
        if "compact" in case[1]:
            return  # the length of the text decides when a summary is asked for
        if any(method.name in ("prm", "judge") or hasattr(method, "_earlier") for method in methods_of(env)):
            return  # it scores every token, at random, or beside earlier episodes
        _, info = env.reset(seed=(seed := int(self.rng.integers(2**31))))
        answers = answers_of(info)
        paid = self.play(env, (reply for reply in iter(lambda: self.reply(env), None)), played)
        others = {"case": [swap(reply, answers) for reply in played]}
        if case[2] == "[]":  # a method may score every token
            others["blanks"] = [f"{reply} \n\t " for reply in played]
        for name, replies in others.items():
            env.reset(seed=seed)
            other = self.play(env, replies, [])
            self.counts["replies"] += len(replies)
            same = len(paid) == len(other) and np.allclose(paid, other, atol=1e-9, equal_nan=True)
            assert same, (name, case, [reply[:300] for reply in played], paid, other)
            self.counts[f"same but for {name}"] += 1
        for name, metric in metrics.METRICS.items():
            if name not in CASE_COUNTS:
                text = swap(reply := self.reply() + self.pick(["", *ANSWERS]), ANSWERS)
                assert metric(text, ANSWERS) == metric(reply, ANSWERS), ("case", name, reply)

    def play(self, env: Any, replies: Any, played: list[str]) -> list[float]:
        """What each turn of an episode earned in the end; its replies are added to `played`."""
        info: dict[str, Any] = {}
        for reply in replies:
            played.append(reply)
            *_, terminated, truncated, info = env.step(reply)
            if terminated or truncated:
                break
        return list(info["turn_rewards"])

    def group(self, case: Case) -> None:
        """Episodes of one task that methods compare: what a learner takes from them is finite or NaN."""
        name, settings, _ = case
        if "Image" in name:  # a policy over tokens cannot read what it observes
            return
        methods = methods_of(make(*case))
        episodes = memenvs.collect(
            f"memenvs:{name}",
            self.policy,
            [int(self.rng.integers(2**31))],
            4,
            methods,
            "lexical",
            env_args=json.loads(settings),
            max_new_tokens=10**6,
            errors="raise",
        )
        assert all(abs(reward) < 100 for one in episodes for reward in one.turn_rewards), case
        for method in methods:
            values = np.concatenate(method.advantages(episodes, ComparisonSettings()))
            assert not np.isinf(values).any(), ("advantages", method.name, case)
        self.counts["groups"] += 1

    def growth(self, name: str, read: Reader, unit: str) -> None:
        """A megabyte takes about four times as long as a quarter of it."""

        def power() -> float:
            seconds = []
            for size in (250_000, 1_000_000):
                text = unit * (size // len(unit))  # whole ones, as an end decides what is read
                gc.disable()  # long texts would make it search all that the soak keeps many times
                start = time.process_time()  # other processes may take turns
                read(text)
                seconds.append(max(time.process_time() - start, 0.02))
                gc.enable()
            self.slowest = sorted([*self.slowest, (seconds[1], name, unit)])[-10:]
            return math.log(seconds[1] / seconds[0], 4)  # 1 is linear, 2 is quadratic

        found = 0.0
        for _ in range(4):  # what one had to load, the next has
            if (found := power()) < 1.5:
                break
        assert found < 1.5, ("time grows with the power", found, name, unit)
        self.counts["lengths"] += 1


def answers_of(info: dict[str, Any]) -> list[str]:
    """The accepted answers of a task, the longest first."""
    found = {str(answer) for each in info["privileged"].get("answers", ()) for answer in each}
    return sorted(found, key=lambda answer: (-len(answer), answer))


def swap(text: str, answers: list[str]) -> str:
    """The text with each answer in another case, in one pass."""
    places = "|".join(map(re.escape, sorted(answers, key=len, reverse=True)))
    return re.sub(places, lambda found: found[0].translate(SWAPPED), text) if places else text


@functools.cache
def make(name: str, settings: str, methods: str) -> Any:
    """An environment under methods, made once; None where they do not fit it."""
    env = gym.make(f"memenvs:{name}", disable_env_checker=True, **json.loads(settings))
    if methods == "[]":
        return env
    try:
        wrapped = RewardWrapper(env, json.loads(methods), "lexical")
        wrapped.reset(seed=0)
    except ValueError as error:
        if "needs" not in str(error):
            raise
        return None
    return wrapped


def methods_of(env: Any) -> Any:
    """The reward methods around an environment."""
    return getattr(env, "methods", ())


def long_episode(case: Case, text: str) -> None:
    """An episode whose first two replies are long, so that methods have them to compare at its end."""
    env = make(*case)
    env.reset(seed=0)
    for reply in itertools.chain([text, text], itertools.repeat("")):
        if any(env.step(reply)[2:4]):
            break
    env.reset(seed=0)  # which drops the long texts


def parsers() -> dict[str, Reader]:
    """Everything that reads what a policy, a judge or a client wrote, by name; registries as they are."""
    tokenizer = load_tokenizer("world")
    scorer = make_scorer("lexical")
    searching, calling = (make(name, "{}", "[]") for name in ("MemSearchQA-v0", "MemToolQA-v0"))
    searching.reset(seed=0)
    calling.reset(seed=0)
    retriever = searching.unwrapped.retriever
    found: dict[str, Reader] = {
        "clean_text": lambda text: clean_text(text, 10**6),
        "in_order": lambda text: core_text.in_order(text, "think", "answer"),
        "escape_tags": core_text.escape_tags,
        "split_sentences": core_text.split_sentences,
        "multi_objective": lambda text: metrics.multi_objective(text, [ANSWERS, ANSWERS]),
        "light_strip": metrics.light_strip,
        "full_strip": metrics.full_strip,
        "read_call": read_call,
        "form_score": form_score,
        "tag_score": tag_score,
        "GiGPO's similarity": lambda text: similar_states([[text, text[1:]], [f"{text} b"]], 0.9),
        "ReMemR1's recall": lambda text: recall(text, [ANSWERS]),
        "StepSearch's matches": lambda text: matches(text, tuple(ANSWERS)),
        "the judge's JSON": lambda text: [
            judge.read_verdict(one % text, 2) for one in ("%s", '{"scores": [%s]}')
        ],
        "the judge's lines": lambda text: [
            judge.read_verdict(f"<score>{text}</score>", n) for n in (None, 2)
        ],
        "features": lambda text: features(text, [text[:100]], 64),
        "lexical search": lambda text: retriever.search([clean_text(text, 10**6)], 3),
        "lexical scorer": lambda text: scorer.logprobs([ScoreRequest(text, text)]),
        "tokens": lambda text: tokenizer.truncate(clean_text(text, 10**6), 1000),
        **{f"metric {name}": functools.partial(read_metric, name) for name in metrics.METRICS},
        **{f"form {name}": functools.partial(read_form, name) for name in FORMS},
        **{f"memory {name}": functools.partial(write_memory, name, tokenizer) for name in MODES},
    }
    for thoughts in get_args(core_text.Thoughts):
        found[f"reply, thoughts={thoughts}"] = functools.partial(read_replies, thoughts)
    for env in (searching, calling):
        found[f"tool calls of {env.spec.id}"] = functools.partial(call_natively, env)
    return found


def read_metric(name: str, text: str) -> None:
    """Score a text by a metric, and grade it in both formats of an answer."""
    for prefix in ("", ANSWERS[0][: metrics.MRCR_PREFIX]):
        metrics.METRICS[name](prefix + text, ANSWERS)
    for answer_format in ("boxed", "tag"):
        metrics.grade(text, [ANSWERS, ANSWERS], metric=name, answer_format=answer_format)


def read_form(name: str, text: str) -> None:
    """Read a text, an answer and a call as replies in a form."""
    form = FORMS[name]
    for reply in (text, f"<think></think><answer>{text}</answer>", form.call(clean_text(text, 10**6))):
        move = form.read(reply)
        form.proper([move], reply)


def write_memory(name: str, tokenizer: Any, text: str) -> None:
    """Write what a reply says into a memory."""
    mode, memory, text = MODES[name](tokenizer, 1000), Memory(), clean_text(text, 10**6)
    for written in (text, "ADD: a town", f"<think>{text}</think>", f"<recall>{text}</recall>{text}"):
        mode.read(memory, written, core_text.thought_end(written))
        mode.show(memory, "a town")


def read_replies(thoughts: Any, text: str) -> None:
    """Read a text, alone and between tags, as a reply."""
    for reply in (text, f"<think>{text}</think><answer>{text}</answer>"):
        read_reply(reply, thoughts)
        if thoughts != "keep":
            read_reply(reply, thoughts, in_thought=True)


def call_natively(env: Any, text: str) -> None:
    """Calls whose name, arguments or content are the text."""
    tool = env.unwrapped.tool_use().tools[0]
    for function in (
        {"name": text, "arguments": {tool.argument: "a"}},
        {"name": tool.name, "arguments": {tool.argument: text}},
        {"name": tool.name, "arguments": text},
        {"name": tool.name, "arguments": f'{{"{tool.argument}": {text}}}'},
    ):
        message = {"content": text, "reasoning": text, "tool_calls": [{"id": text, "function": function}]}
        conversation = ToolConversation(env)
        conversation.read(read_completion({"choices": [{"message": message}]}))


def needed(folder: Path, url: str) -> dict[str, dict[str, Any]]:
    """The settings that methods cannot be made without."""
    return {
        "Judge": {"url": url, "model": "tiny", "rubric": "general", "tries": 1, "timeout": 10},
        "PRM": {"model": save_prm(folder / "prm", save_tiny_model(folder / "tiny")), "device": "cpu"},
    }


def fitting(stacks: list[list[Any]]) -> list[Case]:
    """Every environment under the methods that fit it."""
    cases = [
        (name, json.dumps(settings), json.dumps(methods)) for methods in stacks for name, settings in ENVS
    ]
    fit = [case for case in cases if make(*case)]
    assert not (lost := {*map(json.dumps, stacks)} - {case[2] for case in fit}), ("nothing fits", lost)
    return fit


def main(seconds: float = 3600, seed: int = 0) -> None:
    """Soak for some seconds, then say what was played."""
    logging.getLogger("memenvs.wrappers.judge").setLevel(logging.ERROR)  # verdicts here are bad on purpose
    soak, start = Soak(seed), time.monotonic()
    verdicts = ['{"scores": [1, 0.5]}', '{"scores": [1e999, NaN]}', '{"scores": []}', "[" * 10_000]
    judging = ChatStub(
        lambda fields: soak.pick([(200, soak.pick(verdicts)), (200, soak.reply()), (500, "no")])
    )
    judging.bodies = judging.headers = collections.deque(maxlen=1)
    with tempfile.TemporaryDirectory() as folder, judging:
        settings = needed(Path(folder), judging.url)
        # Continuations needs a policy to play on with, which no wrapper has, and RepeatedCalls reads logs.
        names = [name for name in METHODS if name not in ("Continuations", "RepeatedCalls")]
        cases = fitting([[], *([[name, settings.get(name, {})]] for name in names), *STACKS])
        readers = parsers()
        lengths = [(name, unit) for name in readers for unit in UNITS]
        soak.rng.shuffle(lengths)
        try:
            soak.run(cases, readers, itertools.cycle(lengths), start + seconds)
        finally:  # what was played before something failed, too
            sys.stdout.write(f"{soak} in {time.monotonic() - start:.0f} s, seed {seed}\n")
    sys.stdout.write("nothing failed\n")


if __name__ == "__main__":
    run(main)
