"""Episodes of a teacher, played or read from a file, and the training sequences made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import msgspec
import numpy as np

from memenvs.core.data import convert, parse_json
from memenvs.core.env import task_options
from memenvs.core.files import write_text
from memenvs.models import Reply
from memenvs.rollout.records import Episode, Record, Sample, observation_text, text_reply, to_episode
from memenvs.rollout.scripted import Policy
from memenvs.rollout.session import Session

if TYPE_CHECKING:
    from memenvs.models import HFPolicy


@dataclass
class Demonstration:
    """An episode as text.

    Attributes:
        turns: (text, reply) of each turn, as in a chat: the text is the observation, or in an episode that
            appends, from the second turn on, the feedback to the reply before.
        context: `"append"` or `"rewrite"`, as `info["context"]` at reset.
        success: whether the task was solved.
    """

    turns: list[tuple[str, str]]
    context: Literal["append", "rewrite"]
    success: bool


def play_teacher(
    env: gym.Env[Any, Any], teacher: Policy, seeds: Sequence[int], tasks: Sequence[int] | None = None
) -> Iterator[Demonstration]:
    """Play an episode for each seed with a policy over texts, as in `memenvs.rollout.scripted`.

    Args:
        env: a text environment.
        teacher: the policy.
        seeds: of the episodes.
        tasks: the number of each episode's task; None: its seed draws it.
    """
    for seed, task in zip(seeds, [None] * len(seeds) if tasks is None else tasks, strict=True):
        session, turns = Session(), list[tuple[str, str]]()
        session.begin(*env.reset(seed=seed, options=task_options(task)))
        context = session.info["context"]
        while not session.over:
            reply = teacher(session.observation, session.info)
            turns.append((session.text if context == "append" else session.observation, reply))
            session.step(env, text_reply(reply))
        yield Demonstration(turns, context, session.episode.success)


def read_demonstrations(file: Path) -> list[Demonstration]:
    """Demonstrations of a JSON Lines file: of `write_demonstrations`, or `episodes.jsonl` of an evaluation.

    Failed episodes are left out.

    Raises:
        ValueError: a line is neither, with its number.
    """
    found = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{file}, line {number}:"
            record = parse_json(line, where)
            if not (isinstance(record, dict) and "replies" in record):
                fix = (
                    '{"turns": [[text, reply], …], "context": "append" or "rewrite", "success": true} is one'
                )
                found.append(convert(record, Demonstration, f"{where} the demonstration", fix))
            elif not (episode := to_episode(convert(record, Record, f"{where} the episode"))).error:
                found.append(to_demonstration(episode))
    return found


def to_demonstration(episode: Episode) -> Demonstration:
    """What an episode's policy read and replied.

    Raises:
        ValueError: the episode has only replies, as of `evaluate run --no-texts`.
    """
    if len(episode.turns) < len(episode.replies) or not all(turn.observation for turn in episode.turns):
        raise ValueError(f"task {episode.task} has only replies; evaluate without --no-texts")
    context: Any = episode.turns[0].before["context"] if episode.turns else "append"
    turns = [
        (
            turn.before["feedback"] if k and context == "append" else observation_text(turn.observation),
            turn.action,
        )
        for k, turn in enumerate(episode.turns)
    ]
    return Demonstration(turns, context, episode.success)


def write_demonstrations(file: Path, demonstrations: Iterable[Demonstration]) -> None:
    """Write demonstrations as JSON Lines, atomically."""
    write_text(file, "".join(f"{msgspec.json.encode(one).decode()}\n" for one in demonstrations))


def to_samples(policy: HFPolicy, demonstration: Demonstration) -> list[Sample]:
    """The training sequences of the policy, as if it had sampled the replies.

    A reply ends with the end token, unless it ends with a stop string. Turns are left out from the first one
    that does not fit the window.
    """
    context, session = demonstration.context, Session(policy)
    for text, reply in demonstration.turns:
        session.read(text, context)
        ids = policy.encode_reply(reply)
        if policy.window is not None and len(session.prompt) + len(ids) > policy.window:
            break
        session.write(Reply(reply, ids, np.zeros(len(ids)), finished=True))
    session.close()
    return session.episode.samples
