"""What the memories of a trained searcher hold."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reproduce.search_teacher import REPLY
from memenvs.baselines.run import group_seeds
from memenvs.core.vector import TextVectorEnv
from memenvs.envs.search_qa import read_reply
from memenvs.models import HFPolicy
from memenvs.rollout.engine import collect
from memenvs.rollout.records import Episode
from memenvs.tasks.taskset import TaskSet


def remembered(model: Path, env: str, env_args: dict[str, Any], episodes: int) -> dict[str, float]:
    """`shares` of episodes of a model, on other draws of tasks and tokens than those of its evaluations."""
    venv = TextVectorEnv(env, 64, autoreset_mode="Disabled", **env_args)
    tasks: TaskSet = venv.envs[0].unwrapped.questions
    played = collect(venv, HFPolicy(model), group_seeds(0, 0, 4, episodes), max_new_tokens=REPLY)
    return shares(played, tasks)


def shares(episodes: Iterable[Episode], tasks: TaskSet) -> dict[str, float]:
    """What a searcher does well, as shares of the times at which it could.

    `searched`: a question's subject, ever; `taken`: its answer is in the memory right behind such a search;
    `kept`: an answer that was in a memory is in the next; `em`.
    """
    numbers = {task.id: number for number, task in enumerate(tasks)}
    searched, taken, kept, right = list[bool](), list[bool](), list[bool](), list[float]()
    for episode in episodes:
        task = tasks[numbers[episode.task]]
        subjects = tasks.titles(task.evidence)
        moves = [read_reply(reply.text, memory=True) for reply in episode.replies]
        memories = [move.memory.text if move.memory else "" for move in moves]
        right.append(episode.metrics["em"])
        for subject, (answer, *_) in zip(subjects * (2 // len(subjects)), task.answers, strict=True):
            searched.append(any(move.kind == "search" and move.content == subject for move in moves))
            for (before, memory), next_memory in zip(
                zip(moves, memories, strict=True), memories[1:], strict=False
            ):
                holds = answer in next_memory
                if before.kind == "search" and before.content == subject:
                    taken.append(holds)
                elif answer in memory:
                    kept.append(holds)
    found = {"em": right, "searched": searched, "taken": taken, "kept": kept}
    return {name: float(np.mean(values)) if values else 0.0 for name, values in found.items()}
