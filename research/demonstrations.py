"""Episodes of teachers, played or put together, for `sft --teacher FILE.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym

from memenvs.core.env import Agent
from memenvs.core.episode import Episode, Reply, Turn
from memenvs.core.episode_file import EpisodeWriter
from memenvs.core.files import whole_file
from memenvs.rollout.collect import collect
from memenvs.rollout.policy import made_policy


def taught(env: gym.Env[Any, Any], reply: Agent, task: int | None = None, seed: int = 0) -> Episode:
    """An episode of a teacher, which sees what is privileged; of a task, or of the seed's own."""
    teacher = made_policy(lambda *_: reply, teacher=True)
    tasks = None if task is None else [task]
    (episode,) = collect(lambda: env, teacher, [seed], tasks=tasks, errors="raise")
    return episode


def demonstration(
    pairs: Sequence[tuple[str, str]], context: Literal["append", "rewrite"], success: bool
) -> Episode:
    """An episode of what was new to read at each turn, and the reply to it.

    Where the context is rewritten `pairs` have fresh prompts; otherwise one prompt and feedback after it.
    """
    turns, shown = [], ""
    infos: list[dict[str, Any]] = [
        {"turn": number, "context": context, "feedback": text, "rewards": {}}
        for number, (text, _) in enumerate([*pairs, ("", "")])
    ]
    for number, (text, reply) in enumerate(pairs):
        shown = shown + text if context == "append" else text
        turns.append(Turn(shown, infos[number], Reply(reply), infos[number + 1]))
        shown += reply
    turns[-1].end = "terminated"
    return Episode(turns=turns, end="terminated", metrics={"success": float(success)})


def pairs_of(episode: Episode) -> list[tuple[str, str]]:
    """What was new to read at each turn, and the reply to it."""
    return [(turn.text, turn.action) for turn in episode.turns]


def write_demonstrations(file: Path, episodes: Iterable[Episode]) -> None:
    """Write episodes to a file, which is there only when it is whole."""
    with whole_file(file) as part, EpisodeWriter(part) as writer:
        for episode in episodes:
            writer.write(episode)
