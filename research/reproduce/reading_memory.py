"""What the memories of a trained reader hold, and what TAMTRL and InfoMem measure of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from memenvs.core.episode import Episode
from memenvs.models import HFPolicy
from memenvs.tasks.taskset import TaskSet
from memenvs.wrappers import TAMTRL, InfoMem
from memenvs.wrappers.scorers import HFScorer
from research.harness import play_fresh
from research.reproduce.reading_tasks import QUESTION, SENTENCES

ENV = "MemChunkQA-v0"
REPLY = 4  # tokens: two sentences, a newline between them, end of text


class Read(NamedTuple):
    """An episode, and whether each of its memories held the evidence.

    Attributes:
        episode: the episode as played.
        shown: number of the reading turn that showed the evidence.
        holds: whether the memory after each reading turn held it.
        answer: whether the last memory held the answer, in any sentence.
        query: whether the last memory named the person asked for, in any sentence.
    """

    episode: Episode
    shown: int
    holds: list[bool]
    answer: bool
    query: bool


def read(model: Path, env_args: dict[str, Any], episodes: int, measured: bool = False) -> list[Read]:
    """Episodes of a model, by `play_fresh`; `measured` by TAMTRL and InfoMem, with itself as the scorer."""
    policy = HFPolicy(model)
    env: Any = gym.make(f"memenvs:{ENV}", **env_args)
    tasks: TaskSet = env.unwrapped.tasks
    options: dict[str, Any] = {"env_args": env_args, "concurrency": 256}
    if measured:
        options |= {"methods": [TAMTRL(), InfoMem(target="wrapped")]}
        options |= {"scorer": HFScorer(policy.model, policy.tokenizer)}
    played = play_fresh(ENV, policy, episodes, REPLY, **options)
    numbers = {task.id: number for number, task in enumerate(tasks)}
    return [_read_episode(episode, tasks, numbers[episode.task]) for episode in played]


def _read_episode(episode: Episode, tasks: TaskSet, number: int) -> Read:
    task = tasks[number]
    (evidence,), memories = tasks.texts(task.evidence), [reply.text for reply in episode.replies[:-1]]
    shown = task.documents.index(task.evidence[0]) // SENTENCES
    asked, last = task.question.removeprefix(QUESTION.format(person="")), memories[-1]
    holds = [evidence in memory for memory in memories]
    return Read(episode, shown, holds, task.answers[0][0] in last, asked in last)


def shares(found: list[Read]) -> dict[str, float]:
    """What a reader does well, as shares of the episodes, or of the turns at which it could.

    `taken`: the evidence is noted at the turn that shows it; `kept`: evidence in memory is kept, at each
    later turn; `query alone`: the final memory has what is asked for but no evidence (what InfoMem Fig. 4
    counts).
    """
    kept = [after for one in found for before, after in zip(one.holds, one.holds[1:], strict=False) if before]
    return {
        "em": float(np.mean([one.episode.metrics["em"] for one in found])),
        "evidence in memory": float(np.mean([one.holds[-1] for one in found])),
        "answer in memory": float(np.mean([one.answer for one in found])),
        "query alone": float(np.mean([one.query and not one.holds[-1] for one in found])),
        "taken": float(np.mean([one.holds[one.shown] for one in found])),
        "kept": float(np.mean(kept)) if kept else 0.0,
        "reply tokens": float(np.mean([one.episode.tokens for one in found])),
    }


def signals(found: list[Read]) -> dict[str, float]:
    """Means of what the methods measured, by what the reply did with the evidence.

    TAMTRL's p_t at a turn with the evidence in its chunk or memory; InfoMem's gain in nats a token of
    successes, by whether the final memory held the evidence.
    """
    values: dict[str, list[float]] = defaultdict(list)
    for one in found:
        measured = one.episode.signals
        if not measured:
            raise ValueError("episodes were not measured; read them with measured=True")
        for name, turn in _turns(one):
            values[f"tamtrl, {name}"].append(measured["tamtrl"][turn])
        if one.episode.metrics["em"]:
            held = "held" if one.holds[-1] else "not held, guessed"
            values[f"infomem, success, {held}"].append(measured["infomem"][-1])
    return {name: float(np.mean(values[name])) for name in sorted(values)}


def _turns(one: Read) -> Iterator[tuple[str, int]]:
    """What happened to the evidence at each reading turn that had it in its chunk or memory."""
    for turn, holds in enumerate(one.holds):
        if turn == one.shown:
            yield ("taken" if holds else "passed over"), turn
        elif turn and one.holds[turn - 1]:
            yield ("kept" if holds else "dropped"), turn
        else:
            yield "out of sight", turn
