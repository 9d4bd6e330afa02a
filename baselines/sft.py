"""Behaviour cloning (supervised fine-tuning) on episodes of a teacher, of a file or of the model itself."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import torch

from memenvs.baselines.flags import EngineArgs, PlayArgs, run_learner
from memenvs.baselines.rollout import PlayRun, group_seeds
from memenvs.baselines.train import shuffled_batches
from memenvs.baselines.update import evaluate_in
from memenvs.core.data import Count, NonNegative
from memenvs.core.env import Agent
from memenvs.core.episode import Episode, Sample, valid
from memenvs.core.episode_file import read_episodes
from memenvs.core.processes import Workers, map_jobs
from memenvs.models.policy import ReplyReader, tokenised
from memenvs.rollout.collect import Loop, maker
from memenvs.rollout.order import draw_tasks
from memenvs.rollout.policy import made_policy
from memenvs.rollout.scripted import make_policy

PLAYED = 1000  # episodes of a teacher that plays
JOB = 256  # episodes that one worker's teacher plays, whatever the number of workers


@dataclass
class SFTArgs(EngineArgs, PlayArgs):
    """Behaviour cloning; with the model as its own teacher and the filter, STaR.

    Examples:
        memenvs train sft --model FOLDER --env MemSokoban-v0 --teacher gold --out runs/sft
        memenvs train sft --model FOLDER --env MemChunkQA-v0 --teacher careful
        memenvs train sft --model FOLDER --env MemChunkQA-v0 --teacher episodes.jsonl
        memenvs train sft --model smollm2 --env MemToolQA-v0 --lora-rank 8 --lr 2e-4 --teacher self
    """

    LENGTH = "epochs"
    FIRST = ("model", "env", "env_args", "teacher", "out")

    lr: NonNegative = 1e-4
    """Learning rate."""
    teacher: str = "gold"
    """Who plays: "self" (the model), "careful" (reading, tool calls: it notes and answers what it has read),
    "gold" (other environments; in reading it teaches to invent, as no chunk says what it notes), another
    scripted policy, module:function (sees info["privileged"], too), or a .jsonl file."""
    episodes: Count | None = None
    """Number of episodes to play, 1000 by default, or maximum number to learn from a file, by default all."""
    workers: Workers = 1
    """Processes that play a teacher's episodes, or "ray" for those of a Ray cluster."""
    learn_from: Literal["success", "all"] = "success"
    """Learn from episodes that solved their task (STaR's filter), or from all."""
    batch_size: Count = 32
    """Training sequences per optimizer step."""
    epochs: Count = 1
    """Passes over the sequences."""
    shuffle: bool = True
    """Learn from the sequences in random order, or in the order of the teacher's episodes, so that prefixes
    shared by neighbours are computed once per batch."""

    @property
    def model_plays(self) -> bool:
        """Whether the model is its own teacher or is evaluated."""
        return self.teacher == "self" or self.eval_every > 0


class SFTRun(PlayRun):
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

    def nats(samples: list[Sample]) -> torch.Tensor:
        return -evaluate_in(run.policy, samples).logprobs.sum()

    batches = shuffled_batches(run.samples, args.batch_size, args.epochs, args.seed, shuffle=args.shuffle)
    for step in run.steps(len(batches)):
        batch = batches[step - 1]
        tokens = sum(int(sample.response_mask.sum()) for sample in batch)
        run.end(run.descend(batch, [sample.ids for sample in batch], nats, tokens), tokens)


def training_samples(run: SFTRun) -> list[Sample]:
    """The training sequences of the teacher's episodes, filtered.

    Raises:
        ValueError: there are none, or no such teacher.
    """
    args = run.args
    if args.teacher == "self":
        loop = run.make_loop(maker(args.env, args.env_args))
        played = run.play(loop, *_draws(args, run.n_tasks), 1)
        learned = [episode for episode in valid(played) if args.learn_from == "all" or episode.success]
        notes = check_lessons(args, played, learned, run.policy.window)
    else:
        learned, notes = read_lessons(args, run.policy, run.n_tasks)
    if run.processes.is_main:
        sys.stderr.writelines(f"{note}\n" for note in notes)
    return [sample for episode in learned for sample in episode.samples]


def read_lessons(args: SFTArgs, policy: ReplyReader, n_tasks: int) -> tuple[list[Episode], list[str]]:
    """The episodes of a teacher that are learned from, with their tokens, and what to say of the others.

    Args:
        args: the teacher and the filter.
        policy: reads the tokens.
        n_tasks: number of tasks of the environment.

    Raises:
        ValueError: there are none, or no such teacher.
    """
    lessons = demonstrations(args, n_tasks)
    right = [lesson for lesson in lessons if args.learn_from == "all" or lesson.success]
    learned = [tokenised(policy, lesson) for lesson in right[: args.episodes]]
    notes = check_lessons(args, learned, learned, policy.window)
    if len(learned) < len(lessons):
        why = f"{len(lessons) - len(right):,} failed, {len(right) - len(learned):,} are beyond --episodes"
        notes = [f"learning from {len(learned):,} of {len(lessons):,} episodes: {why}", *notes]
    return learned, notes


def check_lessons(
    args: SFTArgs, read: Sequence[Episode], learned: Sequence[Episode], window: int | None
) -> list[str]:
    """A warning about turns that do not fit the window, if there are any.

    Args:
        args: the teacher and the filter.
        read: the episodes with their tokens.
        learned: those of them that are learned from.
        window: tokens that the model can read.

    Raises:
        ValueError: nothing is left to learn from.
    """
    overlong = sum(episode.overlong_prompts for episode in read)
    warning = overlong and (
        f"{overlong} of {sum(len(episode.turns) for episode in read)} turns do not fit the model's window of "
        f"{window} tokens: shorten their prompts by --env-args, or take a model with a longer window"
    )
    if not any(len(turn.reply.ids) for episode in learned for turn in episode.turns):
        raise ValueError(
            f"no episode of the teacher {args.teacher!r} is left to learn from (learn_from {args.learn_from})"
            + (f"; {warning}" if warning else "")
        )
    return [f"warning: {warning}; they are left out"] if warning else []


def demonstrations(args: SFTArgs, n_tasks: int) -> list[Episode]:
    """The episodes that a teacher plays, or those of a file that did not fail.

    Args:
        args: the teacher and its environment.
        n_tasks: number of tasks of the environment.
    """
    if args.teacher.endswith(".jsonl"):
        return [episode for episode in read_episodes(args.teacher) if not episode.error]
    draws = [*zip(*_draws(args, n_tasks), strict=True)]
    jobs = [(args.seed + i, draws[i : i + JOB]) for i in range(0, len(draws), JOB)]
    play = functools.partial(_demonstrate, args.teacher, args.env, args.env_args)
    parts = map(play, jobs) if args.workers == 1 else map_jobs(play, jobs, args.workers)
    return [episode for part in parts for episode in part]


def _demonstrate(
    teacher: str, env: str, env_args: dict[str, Any], job: tuple[int, list[tuple[int, int]]]
) -> list[Episode]:
    """The episodes of a job, played by one teacher, so that its slips differ from episode to episode.

    Args:
        teacher: name of the teacher.
        env: id of the environment.
        env_args: its arguments.
        job: the teacher's seed, and the seed and the task of each episode.
    """
    seed, draws = job
    agents: list[Agent] = []

    def make(env: gym.Env[Any, Any], _: int) -> Agent:
        if not agents:
            agents.append(make_policy(teacher, env, seed))
        return agents[0]

    plan = [[Episode(seed=drawn, group=drawn, number=task)] for drawn, task in draws]
    loop = Loop(maker(env, env_args), made_policy(make, teacher=True), concurrency=1, errors="raise")
    with contextlib.closing(loop):
        return [episode for (episode,) in loop.play(plan)]


def _draws(args: SFTArgs, n_tasks: int) -> tuple[list[int], list[int]]:
    """The seeds and the tasks of the episodes to play."""
    count = args.episodes or PLAYED
    return group_seeds(args.seed, 0, 2, count), draw_tasks(n_tasks, [args.seed, 2], 0, count)


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    return run_learner(SFTArgs, prepare, train, argv, "sft", _start_in_verl)


def _start_in_verl(args: SFTArgs) -> int:
    from memenvs.baselines.verl_sft import start_sft  # which needs verl

    return start_sft(args)
