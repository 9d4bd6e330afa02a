"""Behaviour cloning (supervised fine-tuning) on episodes of a teacher, of a file or of the model itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym

from memenvs.baselines.flags import Flags, PlayArgs, run_command
from memenvs.baselines.rollout import Run, StepLoop, group_seeds, shuffled_batches
from memenvs.baselines.update import evaluate_in
from memenvs.core.data import Count, NonNegative
from memenvs.core.env import Agent
from memenvs.core.episode import Episode, Sample, valid
from memenvs.core.episode_file import read_episodes
from memenvs.models.policy import tokenised
from memenvs.rollout.collect import Loop, maker
from memenvs.rollout.order import draw_tasks
from memenvs.rollout.policy import made_policy
from memenvs.rollout.scripted import make_policy

PLAYED = 1000  # episodes of a teacher that plays


@dataclass
class CloningFlags(Flags):
    """The teacher, and how the model learns from its episodes."""

    teacher: str = "gold"
    """Who plays: "self" (the model), "careful" (reading, tool calls: it notes and answers what it has read),
    "gold" (other environments; in reading it teaches to invent, as no chunk says what it notes), another
    scripted policy, module:function (sees info["privileged"], too), or a .jsonl file."""
    episodes: Count | None = None
    """Number of episodes to play, 1000 by default, or maximum number to learn from a file, by default all."""
    learn_from: Literal["success", "all"] = "success"
    """Learn from episodes that solved their task (STaR's filter), or from all."""
    batch_size: Count = 32
    """Training sequences per optimizer step."""
    epochs: Count = 1
    """Passes over the sequences."""
    shuffle: bool = True
    """Learn from the sequences in random order, or in the order of the teacher's episodes, so that prefixes
    shared by neighbours are computed once per batch."""


@dataclass
class SFTArgs(CloningFlags, PlayArgs):
    """Behaviour cloning; with the model as its own teacher and the filter, STaR.

    Examples:
        memenvs train sft --model FOLDER --env MemSokoban-v0 --teacher gold --out runs/sft
        memenvs train sft --model FOLDER --env MemChunkQA-v0 --teacher careful
        memenvs train sft --model FOLDER --env MemChunkQA-v0 --teacher episodes.jsonl
        memenvs train sft --model smollm2 --lora-rank 8 --lr 2e-4 --teacher self
    """

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


prepare = SFTRun


def train(run: SFTRun, args: SFTArgs) -> None:
    """Train to the last step, or until SIGTERM; the loss is the mean of -log pi over a batch's tokens."""

    def nats(samples: list[Sample]) -> Any:
        return -evaluate_in(run.policy, samples).logprobs.sum()

    batches = shuffled_batches(run.samples, args.batch_size, args.epochs, args.seed, shuffle=args.shuffle)
    with StepLoop(run, len(batches)) as loop:
        for step in loop:
            batch = batches[step - 1]
            tokens = sum(int(sample.response_mask.sum()) for sample in batch)
            loop.end(run.descend(batch, [sample.ids for sample in batch], nats, tokens), tokens)


def training_samples(run: SFTRun) -> list[Sample]:
    """The training sequences of the teacher's episodes, filtered.

    Raises:
        ValueError: there are none, or no such teacher.
    """
    args = run.args
    samples: list[Sample] = []
    turns = overlong = 0
    if args.teacher == "self":
        loop = run.make_loop(maker(args.env, args.env_args))
        played = run.play(loop, *_draws(args, run.n_tasks), 1)
        for episode in valid(played):
            if args.learn_from == "all" or episode.success:
                samples += episode.samples
        turns = sum(len(episode.replies) for episode in played)
        overlong = sum(episode.overlong_prompts for episode in played)
    else:
        lessons = demonstrations(args, run.n_tasks)
        right = [lesson for lesson in lessons if args.learn_from == "all" or lesson.success]
        chosen = right[: args.episodes]
        if len(chosen) < len(lessons) and run.processes.is_main:
            why = f"{len(lessons) - len(right):,} failed, {len(right) - len(chosen):,} are beyond --episodes"
            sys.stderr.write(f"learning from {len(chosen):,} of {len(lessons):,} episodes: {why}\n")
        for lesson in chosen:
            read = tokenised(run.policy, lesson)
            samples += read.samples
            turns += len(read.turns)
            overlong += read.overlong_prompts
    warning = overlong and (
        f"{overlong} of {turns} turns do not fit the model's window of {run.policy.window} tokens: shorten "
        "their prompts by --env-args, or take a model with a longer window"
    )
    if not samples:
        raise ValueError(
            f"no episode of the teacher {args.teacher!r} is left to learn from (learn_from {args.learn_from})"
            + (f"; {warning}" if warning else "")
        )
    if warning and run.processes.is_main:
        sys.stderr.write(f"warning: {warning}; they are left out\n")
    return samples


def demonstrations(args: SFTArgs, n_tasks: int) -> list[Episode]:
    """The episodes that a teacher plays, or those of a file that did not fail.

    Args:
        args: the teacher and its environment.
        n_tasks: number of tasks of the environment.
    """
    if args.teacher.endswith(".jsonl"):
        return [episode for episode in read_episodes(args.teacher) if not episode.error]
    teachers: list[Agent] = []

    def make(env: gym.Env[Any, Any], seed: int) -> Agent:
        if not teachers:  # one plays all episodes, so that its slips differ from episode to episode
            teachers.append(make_policy(args.teacher, env, args.seed))
        return teachers[0]

    plan = [
        [Episode(seed=seed, group=seed, number=task)]
        for seed, task in zip(*_draws(args, n_tasks), strict=True)
    ]
    policy = made_policy(make, teacher=True)
    loop = Loop(maker(args.env, args.env_args), policy, concurrency=1, errors="raise")
    return loop.play_all(plan)


def _draws(args: SFTArgs, n_tasks: int) -> tuple[list[int], list[int]]:
    """The seeds and the tasks of the episodes to play."""
    count = args.episodes or PLAYED
    return group_seeds(args.seed, 0, 2, count), draw_tasks(n_tasks, [args.seed, 2], 0, count)


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    return run_command(SFTArgs, prepare, train, argv, "sft")
