"""What a pretrained model scores on every environment without training, next to policies without a model.

python -m research.lm_scores --model MODEL --out FOLDER
python -m research.lm_scores --model MODEL --out FOLDER --only tool sokoban --tasks 32

Few-shot: episodes of a scripted teacher on other tasks precede the prompt, as earlier messages of the chat.
Contexts are short (see `SETTINGS`). An interrupted run resumes with the same command. A cell holds success,
average@n over tasks with its 95% interval, followed by the metric `format`.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from memenvs import evaluate
from memenvs.core.episode import Turn
from memenvs.models import HFPolicy, Ids, SamplingParams
from memenvs.models.settings import ModelOptions
from research.credit_real import play, read, search

Messages = list[tuple[str, str]]
"""Observations and replies, in order."""

TEMPERATURE, CONCURRENCY = 0.3, 32
COLUMNS = ("random_text", "zero-shot", "few-shot", "lexical", "gold")


class PlaySetting(NamedTuple):
    """How an environment is played here.

    `shots` has arguments that differ for the example episodes, and their tasks; `teach` returns the turns of
    an example episode, and `stop` are strings that end a reply.
    """

    env: str
    arguments: dict[str, Any]
    shots: tuple[dict[str, Any], tuple[int, ...]]
    teach: Callable[[gym.Env[Any, Any], int], list[Turn]]
    stop: tuple[str, ...] = ()


class FewShotPolicy(HFPolicy):
    """A model that reads examples, which `shots` returns for a prompt, before each fresh prompt."""

    def __init__(self, model: str, shots: Callable[[str], Messages], **more: Any) -> None:
        super().__init__(model, **more)
        self._shots = shots

    def encode(self, observation: str) -> Ids:
        """A fresh prompt (T,), after the examples."""
        ids: list[Ids] = []
        for text, reply in self._shots(observation):
            ids.append(self.encode_feedback(text, ids[-1]) if ids else super().encode(text))
            ids.append(self.encode_reply(reply))
        return np.concatenate([*ids, self.encode_feedback(observation, ids[-1])])


def notes(env: gym.Env[Any, Any], number: int) -> list[Turn]:
    """An episode of reading: the sentences that the answer needs, then the answer."""
    return [one.turn for one in read(env, number, "evidence") if one.evidence or one.turn.over]


def searches(env: gym.Env[Any, Any], number: int) -> list[Turn]:
    """An episode of searching: each evidence document by its title, then the answer."""
    return [one.turn for one in search(env, number, "evidence")]


def calls(env: gym.Env[Any, Any], number: int) -> list[Turn]:
    """An episode of one tool call: the last evidence document by its title, then the answer."""
    inner: Any = env.unwrapped
    title = inner.questions.titles(inner.questions[number].evidence)[-1]
    call = json.dumps({"name": "wiki_search", "args": {"query": title}})

    def write(observation: str, before: dict[str, Any]) -> tuple[str, bool]:
        if before["turn"] == 0:
            return f"<reasoning>I look up {title}.</reasoning>\n<tool>\n{call}\n</tool>", False
        return inner.gold_reply().replace("><", ">The result says it.<", 1), False

    return [one.turn for one in play(env, number, "", write)]


def moves(env: gym.Env[Any, Any], number: int) -> list[Turn]:
    """An episode that solves a level with a shortest solution."""
    inner: Any = env.unwrapped
    return [one.turn for one in play(env, number, "", lambda *_: (inner.gold_reply(), False))]


WORLD = {"tasks": "world-test", "tokenizer": "world", "n_documents": 6, "chunk_size": 300, "max_memory": 96}
NEEDLES = {"tokenizer": "world", "n_documents": 60, "chunk_size": 300, "max_memory": 96}
SEARCH = {"tasks": "world-test", "tokenizer": "world", "k": 2, "max_turns": 3, "max_information": 200}
TRAINING = ({"tasks": "world-train"}, (1, 6))
ENDS = ("</search>", "</answer>")
SETTINGS = {
    "reading": PlaySetting("MemChunkQA-v0", WORLD, TRAINING, notes),
    "needles": PlaySetting("MemNIAH-v0", NEEDLES, ({}, (99,)), notes),
    "search": PlaySetting("MemSearchQA-v0", SEARCH, TRAINING, searches, ENDS),
    "search-memory": PlaySetting(
        "MemSearchQA-v0",
        SEARCH | {"memory_mode": "rewrite", "max_memory": 96},
        TRAINING,
        searches,
        ENDS,
    ),
    "tool": PlaySetting(
        "MemToolQA-v0",
        {"tasks": "world-test", "tokenizer": "world", "k": 2, "max_result": 200},
        TRAINING,
        calls,
        ("</tool>", "</answer>"),
    ),
    "sokoban": PlaySetting(
        "MemSokoban-v0", {"level_split": "test"}, ({"level_split": "train"}, (0, 1)), moves, ("</answer>",)
    ),
}


def main() -> None:
    """Measure and print."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--model", required=True, help="folder or name for transformers")
    parser.add_argument("--out", type=Path, required=True, help="keeps every episode")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--columns", nargs="+", choices=COLUMNS, default=COLUMNS)
    parser.add_argument("--tasks", type=int, default=16, help="number of tasks (default 16)")
    parser.add_argument("--samples", type=int, default=4, help="episodes per task (default 4)")
    parser.add_argument("--max-new-tokens", type=int, default=96, help="tokens of a reply (default 96)")
    args = parser.parse_args()
    print(f"| {args.model}, average@{args.samples} of {args.tasks} tasks | {' | '.join(args.columns)} |")
    print("| --- " * (1 + len(args.columns)) + "|")
    for name in args.only:
        cells = [cell(args, name, column) for column in args.columns]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def cell(args: argparse.Namespace, name: str, column: str) -> str:
    """Success with its interval, and the share of well-formed episodes."""
    setting = SETTINGS[name]
    policy: Any = column
    options = ModelOptions()
    if column.endswith("shot"):
        options = ModelOptions(temperature=TEMPERATURE, max_new_tokens=args.max_new_tokens, stop=setting.stop)
    if column == "zero-shot":
        policy = f"hf:{args.model}"
    elif column == "few-shot":
        params = SamplingParams(temperature=TEMPERATURE, stop=setting.stop)
        policy = FewShotPolicy(args.model, examples(setting), sampling_params=params)
    elif column == "lexical" and name == "sokoban":
        return "none"
    summary = evaluate(
        setting.env,
        policy,
        env_args=setting.arguments,
        tasks=range(args.tasks),
        samples=args.samples,
        concurrency=CONCURRENCY,
        out=args.out / name / column,
        options=options,
    )
    return f"{summary.metrics['success'].interval}, {summary.metrics['format'].interval.mean:.2f}"


def examples(setting: PlaySetting) -> Callable[[str], Messages]:
    """The examples for a prompt: turns that read a section, turns that answer, or whole episodes."""
    changed, tasks = setting.shots
    env = gym.make(setting.env, **(setting.arguments | changed))
    episodes = [setting.teach(env, number) for number in tasks]
    inner: Any = env.unwrapped
    told = [message for turns in episodes for message in messages(turns, inner.context == "append")]

    def shots(observation: str) -> Messages:
        reads = "<section>" in observation
        return [one for one in told if ("<section>" in one[0]) == reads]

    return shots


def messages(turns: Sequence[Turn], append: bool) -> Messages:
    """Observations and replies of an episode; after the first turn only the feedback, where prompts grow."""
    told = [(turn.observation, turn.action) for turn in turns]
    if append:
        told[1:] = [(before.info["feedback"], turn.action) for before, turn in itertools.pairwise(turns)]
    return told


if __name__ == "__main__":
    main()
