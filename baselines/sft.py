"""Behaviour cloning (supervised fine-tuning) on episodes of a teacher, of a file or of the model itself.

Some commands:

    memenvs train sft --model FOLDER --env MemSokoban-v0 --teacher gold --out runs/sft
    memenvs train sft --model FOLDER --env MemChunkQA-v0 --teacher episodes.jsonl
    memenvs train sft --model smollm2 --lora-rank 8 --lr 2e-4 --teacher self
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import gymnasium as gym

from memenvs.baselines.flags import Flags, NonNegative, PlayArgs, run_command
from memenvs.baselines.rollout import Run, StepLoop, group_seeds, shuffled_batches
from memenvs.baselines.update import apply_gradients, evaluate_in
from memenvs.core.data import Count
from memenvs.rollout.demonstrations import (
    Demonstration,
    play_teacher,
    read_demonstrations,
    to_samples,
)
from memenvs.rollout.engine import Timer
from memenvs.rollout.records import Sample, valid
from memenvs.rollout.scripted import make_policy


@dataclass
class CloningFlags(Flags):
    """The teacher, and how its episodes are learned from."""

    teacher: str = "gold"
    """Who plays: "self" (the model), a scripted policy, module:function, or a .jsonl file."""
    episodes: Count = 1000
    """Episodes to play, or to read."""
    learn_from: Literal["success", "all"] = "success"
    """Learn from episodes that solved their task (STaR's filter), or from all."""
    batch_size: Count = 32
    """Training sequences an optimizer step."""
    epochs: Count = 1
    """Times that every sequence is seen."""
    shuffle: bool = True
    """Learn from the sequences in random order, or in that of the teacher's episodes, so that what
    neighbours begin with is computed once a batch."""


@dataclass
class SFTArgs(CloningFlags, PlayArgs):
    """Behaviour cloning; with the model as its own teacher and the filter, STaR."""

    LENGTH = "epochs"

    lr: NonNegative = 1e-4


class SFTRun(Run):
    """A run that learns from a teacher's episodes.

    Attributes:
        samples: their training sequences.
    """

    args: SFTArgs

    def restore(self) -> None:
        """Play or read the episodes, then load the newest checkpoint: a model teaches itself as it began."""
        self.samples = training_samples(self)
        super().restore()


def prepare(args: SFTArgs) -> SFTRun:
    """Load the model and the teacher's episodes."""
    return SFTRun(args)


def train(run: SFTRun, args: SFTArgs) -> None:
    """Train to the last step, or until SIGTERM."""
    batches = list(
        shuffled_batches(run.samples, args.batch_size, args.epochs, args.seed, shuffle=args.shuffle)
    )
    with StepLoop(run, len(batches)) as loop:
        for step, _ in loop:
            batch = batches[step - 1]
            tokens = sum(int(sample.response_mask.sum()) for sample in batch)
            mine, nats = run.processes.shard(batch), 0.0

            # Score and loss: the mean of -log pi over the tokens of the batch
            run.optimizer.zero_grad(set_to_none=True)
            for part in run.policy.micro_batches([sample.ids for sample in mine], args.micro_batch_tokens):
                logprobs = evaluate_in(run.policy, [mine[i] for i in part]).logprobs
                loss = -logprobs.sum() / tokens
                loss.backward()
                nats += float(loss.detach())

            # Step
            weights, finite = [run.policy.parameters()], math.isfinite(nats)
            norms = apply_gradients(run.optimizer, weights, run.processes, finite=finite)
            metrics = {"loss": run.processes.sum(nats)[0]} if norms else {}
            loop.end(metrics | {"nonfinite": float(norms is None)}, tokens)


def training_samples(run: SFTRun) -> list[Sample]:
    """The training sequences of the teacher's episodes, filtered.

    Raises:
        ValueError: there are none, or no such teacher.
    """
    args = run.args
    seeds = group_seeds(args.seed, 0, 2, args.episodes)
    turns = overlong_prompts = 0
    if args.teacher == "self":
        played = run.play(run.make_venv(), seeds, 1, Timer())
        kept = [e for e in valid(played) if args.learn_from == "all" or e.success]
        samples = [sample for episode in kept for sample in episode.samples]
        turns = sum(len(episode.replies) for episode in played)
        overlong_prompts = sum(episode.overlong_prompts for episode in played)
    else:
        samples = []
        for episode in _demonstrations(args, seeds):
            if args.learn_from == "all" or episode.success:
                samples += (made := to_samples(run.policy, episode))
                turns += len(episode.turns)
                overlong_prompts += len(episode.turns) - (int(made[-1].turns.max()) + 1 if made else 0)
    overlong = (
        f"{overlong_prompts} of {turns} turns do not fit the model's window of "
        f"{run.policy.window} tokens: shorten their prompts by --env-args, or take a model with a longer "
        "window"
    )
    if not samples:
        raise ValueError(
            f"no episode of the teacher {args.teacher!r} is left to learn from (learn_from {args.learn_from})"
            + f"; {overlong}" * bool(overlong_prompts)
        )
    if overlong_prompts and run.processes.is_main:
        sys.stderr.write(f"warning: {overlong}; they are left out\n")
    return samples


def _demonstrations(args: SFTArgs, seeds: Sequence[int]) -> list[Demonstration]:
    """What a teacher plays, or what a file holds."""
    if args.teacher.endswith(".jsonl"):
        return read_demonstrations(Path(args.teacher))[: args.episodes]
    env = gym.make(args.env, disable_env_checker=True, **args.env_args)
    return list(play_teacher(env, make_policy(args.teacher, env, args.seed), seeds))


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    return run_command(SFTArgs, prepare, train, argv, "sft")
