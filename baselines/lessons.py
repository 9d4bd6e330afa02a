"""A teacher's episodes to learn from, of a file or played by any number of processes.

    read_lessons(SFTArgs(env="MemSokoban-v0", teacher="gold"), policy, n_tasks)

Nothing here needs torch, which each process would import for seconds.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Sequence
from typing import Any

import gymnasium as gym

from memenvs.baselines.args import SFTArgs
from memenvs.core.env import Agent
from memenvs.core.episode import Episode
from memenvs.core.episode_file import read_episodes
from memenvs.core.processes import map_jobs
from memenvs.models.chat import ChatPolicy
from memenvs.models.policy import tokenised
from memenvs.rollout.collect import Loop, maker
from memenvs.rollout.order import draw_tasks, group_seeds
from memenvs.rollout.policies import KINDS, policy_by_name
from memenvs.rollout.policy import made_policy
from memenvs.rollout.scripted import make_policy

PLAYED = 1000  # episodes of a teacher that plays
JOB = 256  # episodes that one worker's teacher plays, whatever the number of workers


def read_lessons(args: SFTArgs, policy: ChatPolicy, n_tasks: int) -> tuple[list[Episode], list[str]]:
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
    """The episodes that a teacher plays, or those of a file, without those that failed.

    Args:
        args: the teacher and its environment.
        n_tasks: number of tasks of the environment.

    Raises:
        ValueError: every episode of a model failed.
    """
    if args.teacher.endswith(".jsonl"):
        return [episode for episode in read_episodes(args.teacher) if not episode.error]
    draws = [*zip(*draw_lessons(args, n_tasks), strict=True)]
    # A model is loaded for each job, so in one process a single job plays everything.
    size = len(draws) if args.teacher.startswith(KINDS) and args.workers == 1 else JOB
    jobs = [(args.seed + i, draws[i : i + size]) for i in range(0, len(draws), size)]
    play = functools.partial(_demonstrate, args)
    parts = map(play, jobs) if args.workers == 1 else map_jobs(play, jobs, args.workers)
    episodes = [episode for part in parts for episode in part]
    errors = [episode.error for episode in episodes if episode.error]
    if len(errors) == len(episodes):
        raise ValueError(f"every episode of the teacher {args.teacher!r} failed: {errors[0]}")
    if errors:
        sys.stderr.write(f"{len(errors):,} episodes failed and are left out, the first by {errors[0]}\n")
    return [episode for episode in episodes if not episode.error]


def _demonstrate(args: SFTArgs, job: tuple[int, list[tuple[int, int]]]) -> list[Episode]:
    """The episodes of a job, played by one teacher, so that its slips differ from episode to episode.

    The job is the teacher's seed, and the seed and the task of each episode.
    """
    seed, draws = job
    make_env, agents = maker(args.env, args.env_args), list[Agent]()

    def make(env: gym.Env[Any, Any], _: int) -> Agent:
        if not agents:
            agents.append(make_policy(args.teacher, env, seed))
        return agents[0]

    if args.teacher.startswith(KINDS):
        sampling = {"temperature": args.temperature, "max_new_tokens": args.max_new_tokens, "stop": args.stop}
        loop = Loop(make_env, policy_by_name(args.teacher, make_env, **sampling), concurrency=args.num_envs)
    else:
        loop = Loop(make_env, made_policy(make, teacher=True), concurrency=1, errors="raise")
    plan = [[Episode(seed=drawn, group=drawn, number=task)] for drawn, task in draws]
    with contextlib.closing(loop):
        return [episode for (episode,) in loop.play(plan)]


def draw_lessons(args: SFTArgs, n_tasks: int) -> tuple[list[int], list[int]]:
    """The seeds and the tasks of the episodes to play."""
    count = args.episodes or PLAYED
    return group_seeds(args.seed, 0, 2, count), draw_tasks(n_tasks, [args.seed, 2], 0, count)
