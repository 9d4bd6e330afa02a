"""Behaviour cloning: episodes of a teacher, a file or the model itself come in, a trained model goes out.

python -m memenvs.baselines.sft --model FOLDER --env MemSokoban-v0 --teacher gold --out runs/sft
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import gymnasium as gym
import numpy as np

from memenvs.baselines.args import Count, NonNegative, RunArgs, read_args, run
from memenvs.baselines.demonstrations import (
    Demonstration,
    find_teacher,
    play_teacher,
    read_demonstrations,
    to_samples,
)
from memenvs.baselines.distributed import World
from memenvs.baselines.measure import evaluate_in
from memenvs.baselines.rollout import Clock
from memenvs.baselines.run import Run, Steps, group_seeds
from memenvs.baselines.update import apply_gradients
from memenvs.models.batching import micro_batches
from memenvs.rollout.records import Sample, valid


@dataclass
class Args(RunArgs):
    """Behaviour cloning; with the model as its own teacher and the filter, STaR."""

    lr: NonNegative = 1e-4
    """Learning rate (AdamW)."""
    teacher: str = "gold"
    """Who plays: "self" (the model), a scripted policy, module:function, or a .jsonl file."""
    episodes: Count = 1000
    """Episodes to play, or to read."""
    learn_from: Literal["success", "all"] = "success"
    """Learn from episodes that solved their task (STaR's filter), or from all."""
    batch_size: Count = 32
    """Training sequences an optimizer step."""
    passes: Count = 1
    """Times that every sequence is seen."""


class Cloning(Run):
    """A run that learns from a teacher's episodes.

    Attributes:
        samples: their training sequences.
    """

    args: Args

    def __init__(self, args: Args, world: World) -> None:
        super().__init__(args, world)
        self.samples = samples_of(self)


def prepare(args: Args) -> Cloning:
    """Everything that a run needs."""
    return Cloning(args, World(args.device))


def train(cloning: Cloning, args: Args) -> None:
    """Train to the last step, or until SIGTERM."""
    policy, world, optimizer, samples = cloning.policy, cloning.world, cloning.optimizer, cloning.samples
    batches = list(_batches(samples, args))
    with Steps(cloning, len(batches), ("loss", "eval_success")) as steps:
        for step in steps:
            start, batch = time.perf_counter(), batches[step - 1]
            tokens = sum(int(sample.response_mask.sum()) for sample in batch)
            optimizer.zero_grad(set_to_none=True)
            nats, mine = 0.0, world.share(batch)
            for part in micro_batches([len(sample.ids) for sample in mine], args.micro_batch_tokens):
                told = evaluate_in(policy, [mine[i] for i in part], args)
                loss = -told.logprobs.sum() / tokens
                loss.backward()
                nats += float(loss.detach())
            norms = apply_gradients(
                optimizer, [policy.parameters()], args.max_grad_norm, world, finite=math.isfinite(nats)
            )

            numbers = {"loss": world.add(nats)[0]} if norms else {}
            numbers["nonfinite"] = float(norms is None)
            numbers["tokens_per_second"] = tokens / (time.perf_counter() - start)
            steps.end(numbers)


def samples_of(cloning: Cloning) -> list[Sample]:
    """The training sequences of the teacher's episodes, filtered.

    The model that is its own teacher plays as it was when the run began, in a resumed run too.

    Raises:
        ValueError: there are none, or no such teacher.
    """
    args = cloning.args
    seeds = group_seeds(args.seed, 0, 2, args.episodes)
    turns = overlong_prompts = 0
    if args.teacher == "self":
        cloning.begin_again()
        played = cloning.play(cloning.make_venv(), seeds, 1, Clock())
        cloning.restore()
        kept = [e for e in valid(played) if args.learn_from == "all" or e.metrics["success"] == 1.0]
        samples = [sample for episode in kept for sample in episode.samples]
        turns = sum(len(episode.replies) for episode in played)
        overlong_prompts = sum(episode.overlong_prompts for episode in played)
    else:
        samples = []
        for shown in _shown(args, seeds):
            if args.learn_from == "all" or shown.success:
                samples += (made := to_samples(cloning.policy, shown))
                turns += len(shown.turns)
                overlong_prompts += len(shown.turns) - (int(made[-1].turns.max()) + 1 if made else 0)
    overlong = (
        f"{overlong_prompts} of {turns} turns do not fit the model's window of "
        f"{cloning.policy.window} tokens: shorten their prompts by --env-args, or take a model with a longer "
        "window"
    )
    if not samples:
        raise ValueError(
            f"no episode of the teacher {args.teacher!r} is left to learn from (learn_from {args.learn_from})"
            + f"; {overlong}" * bool(overlong_prompts)
        )
    if overlong_prompts and cloning.world.first:
        sys.stderr.write(f"warning: {overlong}; they are left out\n")
    return samples


def _shown(args: Args, seeds: Sequence[int]) -> list[Demonstration]:
    """What a teacher plays, or what a file holds."""
    if args.teacher.endswith(".jsonl"):
        return read_demonstrations(Path(args.teacher))[: args.episodes]
    env = gym.make(args.env, disable_env_checker=True, **args.env_args)
    return list(play_teacher(env, find_teacher(args.teacher, env, args.seed), seeds))


def _batches(samples: Sequence[Sample], args: Args) -> Iterator[list[Sample]]:
    """The samples in another order each pass."""
    for number in range(args.passes):
        order = np.random.default_rng([args.seed, 0, 3, number]).permutation(len(samples))
        for start in range(0, len(order), args.batch_size):
            yield [samples[i] for i in order[start : start + args.batch_size].tolist()]


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    return run(prepare, train, read_args(Args, argv, "memenvs.baselines.sft"))


if __name__ == "__main__":
    sys.exit(main())
