"""Episodes of a teacher, played or read from a file, and the training sequences made of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np

from memenvs.core.data import convert
from memenvs.core.files import write_text
from memenvs.core.optional import import_object
from memenvs.models import Reply
from memenvs.rollout.records import Episode, Record, Sample, observation_text, text_reply, to_episode
from memenvs.rollout.scripted import Policy, make_policy
from memenvs.rollout.session import Session

if TYPE_CHECKING:
    from memenvs.models import HFPolicy


class Demonstration(NamedTuple):
    """An episode as text.

    Attributes:
        turns: (text, reply) of each, as a chat has them: the text is the observation or, in an episode that
            appends, from the second turn on the feedback to the reply before.
        context: `"append"` or `"rewrite"`, as `info["context"]`.
        success: whether the task was solved.
    """

    turns: list[tuple[str, str]]
    context: str
    success: bool


def play_teacher(env: gym.Env[Any, Any], teacher: Policy, seeds: Iterable[int]) -> Iterator[Demonstration]:
    """Play an episode for each seed with a policy that replies to text, as in `memenvs.rollout.scripted`."""
    for seed in seeds:
        session, turns = Session(), list[tuple[str, str]]()
        session.begin(*env.reset(seed=seed))
        while not session.over:
            reply = teacher(session.observation, session.info)
            turns.append((session.text, reply))
            session.step(env, text_reply(reply))
        yield Demonstration(turns, session.info["context"], session.episode.success)


def find_teacher(name: str, env: gym.Env[Any, Any], seed: int) -> Policy:
    """A teacher by name: one of `memenvs.rollout.scripted`, or `module:function`, called with the
    environment.

    Raises:
        ValueError: no such teacher.
    """
    if ":" not in name:
        return make_policy(name, env, seed)
    make: Callable[[gym.Env[Any, Any]], Policy] = import_object(name)
    return make(env)


def read_demonstrations(file: Path) -> list[Demonstration]:
    """Demonstrations of a JSON Lines file: of `write_demonstrations`, or `episodes.jsonl` of an evaluation.

    Of episodes those that failed are left out.

    Raises:
        ValueError: a line is neither, with its number.
    """
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
            if "replies" in record:
                episode = to_episode(convert(record, Record, "the episode"))
                if not episode.error:
                    found.append(to_demonstration(episode))
                continue
            turns = [(str(text), str(reply)) for text, reply in record["turns"]]
            found.append(Demonstration(turns, str(record["context"]), bool(record["success"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{file}, line {number} is no demonstration ({error!r}); a line is "
                '{"turns": [[text, reply], …], "context": "append" or "rewrite", "success": true}'
            ) from error
    return found


def to_demonstration(episode: Episode) -> Demonstration:
    """What an episode's policy read and replied.

    Raises:
        ValueError: the episode holds replies alone, as of `evaluate run --no-texts`.
    """
    if len(episode.turns) < len(episode.replies) or not all(turn.observation for turn in episode.turns):
        raise ValueError(f"task {episode.task} has replies alone; evaluate without --no-texts")
    turns, context = list[tuple[str, str]](), "append"
    for turn in episode.turns:
        context = str(turn.before["context"])
        follows = turns and context == "append"
        text = turn.before["feedback"] if follows else observation_text(turn.observation)
        turns.append((text, turn.action))
    return Demonstration(turns, context, episode.success)


def write_demonstrations(file: Path, demonstrations: Iterable[Demonstration]) -> None:
    """Write them as JSON Lines, whole."""
    lines = [json.dumps(demonstration._asdict(), ensure_ascii=False) for demonstration in demonstrations]
    write_text(file, "".join(line + "\n" for line in lines))


def to_samples(policy: HFPolicy, demonstration: Demonstration) -> list[Sample]:
    """The training sequences that the policy would have left, had it sampled the replies.

    A reply closes with the end token, unless it closes with a stop string. What does not fit the window is
    left out from its turn on.
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
