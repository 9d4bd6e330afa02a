"""Episodes that somebody has played come in, from a teacher or a file; training sequences go out."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np

from memenvs.core.files import write_text
from memenvs.rollout.records import Sample
from memenvs.rollout.scripted import Policy, make_policy

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
        observation, info = env.reset(seed=seed)
        context, turns, over = info["context"], list[tuple[str, str]](), False
        while not over:
            reply = teacher(observation, info)
            turns.append((info["feedback"] if turns and context == "append" else observation, reply))
            observation, _, terminated, truncated, info = env.step(reply)
            over = terminated or truncated
        yield Demonstration(turns, context, info["metrics"]["success"] == 1.0)


def find_teacher(name: str, env: gym.Env[Any, Any], seed: int) -> Policy:
    """A teacher by name: one of `memenvs.rollout.scripted`, or `module:function`, called with the
    environment.

    Raises:
        ValueError: no such teacher.
    """
    module, _, maker = name.partition(":")
    if not maker:
        return make_policy(name, env, seed)
    try:
        make: Callable[[gym.Env[Any, Any]], Policy] = getattr(importlib.import_module(module), maker)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"no teacher {name!r}: give module:function, or a policy's name ({error})"
        ) from error
    return make(env)


def read_demonstrations(file: Path) -> list[Demonstration]:
    """Demonstrations of a JSON Lines file, as `write_demonstrations` writes it.

    Raises:
        ValueError: a line is not one, with its number.
    """
    found = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
            turns = [(str(text), str(reply)) for text, reply in record["turns"]]
            found.append(Demonstration(turns, str(record["context"]), bool(record["success"])))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{file}, line {number} is no demonstration ({error!r}); a line is "
                '{"turns": [[text, reply], …], "context": "append" or "rewrite", "success": true}'
            ) from error
    return found


def write_demonstrations(file: Path, demonstrations: Iterable[Demonstration]) -> None:
    """Write them as JSON Lines, whole."""
    lines = [json.dumps(demonstration._asdict(), ensure_ascii=False) for demonstration in demonstrations]
    write_text(file, "".join(line + "\n" for line in lines))


def to_samples(policy: HFPolicy, demonstration: Demonstration) -> list[Sample]:
    """The training sequences that the policy would have left, had it written the replies.

    A reply closes with the end token, unless it closes with a stop string. What does not fit the window is
    left out from its turn on.
    """
    samples: list[Sample] = []
    sample: Sample | None = None
    for turn, (text, reply) in enumerate(demonstration.turns):
        if sample is not None and demonstration.context == "append":
            sample = sample.then(policy.encode_feedback(text, sample.ids))
        else:
            samples += [sample] if sample is not None else []
            sample = Sample.prompt(policy.encode(text))
        ids = policy.encode_reply(reply)
        if policy.window is not None and len(sample.ids) + len(ids) > policy.window:
            break
        sample = sample.then(ids, np.zeros(len(ids)), turn)
    samples += [sample] if sample is not None else []
    return [sample.trimmed() for sample in samples if sample.response_mask.any()]
