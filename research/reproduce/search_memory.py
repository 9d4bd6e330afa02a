"""What the memories of a trained searcher hold, and how likely they make the answer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memenvs.core.episode import Episode
from memenvs.envs.search_qa import read_reply
from memenvs.models import HFPolicy
from memenvs.tasks.taskset import TaskSet
from memenvs.wrappers import MemPO
from memenvs.wrappers.scorers import HFScorer
from research.harness import play_fresh
from research.reproduce.search_teacher import note, reply_tokens

ENV = "MemSearchQA-v0"
BINS = 5  # of P's range


def search(
    model: Path, env_args: dict[str, Any], objectives: int, episodes: int, scorer: Path | None = None
) -> list[Episode]:
    """Episodes of a model, by `play_fresh`; a scorer, also a policy, measures P of every memory."""
    policy = HFPolicy(model)
    more: dict[str, Any] = {"env_args": env_args, "concurrency": 128}
    if scorer:
        scoring = HFPolicy(scorer)
        more["methods"] = [MemPO(bias="none", target="wrapped", trajectory="outcome")]
        more["scorer"] = HFScorer(scoring.model, scoring.tokenizer)
    return play_fresh(ENV, policy, episodes, reply_tokens(objectives), **more)


def means(episodes: Sequence[Episode]) -> dict[str, float]:
    """Mean metrics of episodes.

    Exact match and F1 are means over a task's questions. `strict` is 1 if `format` and `success` are both 1
    (MemPO's trajectory reward), else 0. Tokens are the model's own, in all and at most in one prompt.
    """
    names = ("em", "f1", "format", "success", "prompt_tokens", "prompt_tokens_peak", "turns")
    found = {name: float(np.mean([one.metrics[name] for one in episodes])) for name in names}
    rewards = [one.metrics["success"] * one.metrics["format"] == 1.0 for one in episodes]
    found["strict"] = float(np.mean(rewards))
    return {**found, "reply_tokens": float(np.mean([one.tokens for one in episodes]))}


def likely(episodes: Sequence[Episode]) -> dict[str, list[list[float]]]:
    """P of the memories, by turn (MemPO Fig. 4) and by its size (Fig. 5).

    `turns`: for each turn the mean of P and the share of episodes with a memory there. `bins`: for each fifth
    of P's range the share of all memories and the mean exact match of their episodes, 0 if there are none.
    """
    known = [
        (turn, value, one.metrics["em"])
        for one in episodes
        for turn, (value, reply) in enumerate(zip(one.signals["mempo"], one.replies, strict=True))
        if read_reply(reply.text).memory
    ]
    of_turn, of_bin = defaultdict[int, list[float]](list), defaultdict[int, list[float]](list)
    for turn, value, right in known:
        of_turn[turn].append(value)
        of_bin[min(int(BINS * value), BINS - 1)].append(right)
    turns = [of_turn[turn] for turn in range(max(of_turn, default=-1) + 1)]
    bins = [of_bin[number] for number in range(BINS)]
    return {
        "turns": [[_mean(values), len(values) / len(episodes)] for values in turns],
        "bins": [[len(values) / max(len(known), 1), _mean(values)] for values in bins],
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def shares(episodes: Sequence[Episode], tasks: TaskSet) -> dict[str, float]:
    """What a searcher does well, as shares of the cases in which it could.

    `searched`: a question's subject was searched for; `taken`: its answer is noted right after such a search;
    `kept`: a right note is also in the next memory; `em`.
    """
    numbers = {task.id: number for number, task in enumerate(tasks)}
    searched, taken, kept, right = list[bool](), list[bool](), list[bool](), list[float]()
    for episode in episodes:
        task = tasks[numbers[episode.task]]
        moves = [read_reply(reply.text) for reply in episode.replies]
        memories = [move.memory.text if move.memory else "" for move in moves]
        right.append(episode.metrics["em"])
        for subject, (answer, *_) in zip(tasks.titles(task.evidence), task.answers, strict=True):
            noted = note(subject, answer)
            asked = [move.kind == "search" and move.content == subject for move in moves]
            searched.append(any(asked))
            for now, memory, then in zip(asked, memories, memories[1:], strict=False):
                if now:
                    taken.append(noted in then)
                elif noted in memory:
                    kept.append(noted in then)
    found: dict[str, Sequence[float]] = {"em": right, "searched": searched, "taken": taken, "kept": kept}
    return {name: _mean(values) for name, values in found.items()}
