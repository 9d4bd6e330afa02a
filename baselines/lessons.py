"""A teacher's episodes to learn from, of a file or played by any number of processes.

    args = SFTArgs(env="MemSokoban-v0", teacher="gold")
    TeacherEpisodes(args, demonstrations(args, n_tasks), policy)

Nothing here needs torch, which each process would import for seconds.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import mmap
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pyarrow as pa

from memenvs.baselines.args import SFTArgs
from memenvs.core.env import Agent
from memenvs.core.episode import Episode
from memenvs.core.episode_file import read_lines
from memenvs.core.errors import counted
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
ROW = pa.schema(
    {"task": pa.string(), "input_ids": pa.large_list(pa.int32()), "loss_mask": pa.large_list(pa.bool_())}
)
"""A training sequence in a file, with the mask of what is learned in it."""


class TeacherEpisodes:
    """The episodes of a teacher that are learned from, one at a time, so that their texts need no memory.

        for episode in (lessons := TeacherEpisodes(args, demonstrations(args, n_tasks), policy)):
            …
        notes = lessons.notes()

    Args:
        args: the teacher and the filter.
        episodes: the teacher's.
        policy: reads their tokens; they are left as they are where it has sampled them.

    Attributes:
        found: number of episodes read so far.
        learned: number of those that are learned from.
        turns: number of turns of the episodes whose tokens were read.
    """

    def __init__(self, args: SFTArgs, episodes: Iterable[Episode], policy: ChatPolicy) -> None:
        self._args, self._episodes, self._policy = args, episodes, policy
        self.found = self.learned = self.turns = 0
        self._right = self._overlong = self._tokens = 0

    def __iter__(self) -> Iterator[Episode]:
        args, is_sampled = self._args, self._args.teacher == "self"
        for episode in self._episodes:
            is_right = not episode.error and (args.learn_from == "all" or episode.success)
            is_learned = is_right and (args.episodes is None or self.learned < args.episodes)
            self.found += 1
            self._right += is_right
            if is_learned and not is_sampled:
                episode = tokenised(self._policy, episode)
            if is_learned or is_sampled:
                self.turns += len(episode.turns)
                self._overlong += episode.overlong_prompts
            if is_learned:
                self.learned += 1
                self._tokens += episode.tokens
                yield episode

    def notes(self) -> list[str]:
        """What to say of the episodes that are left out, and of turns that do not fit the window.

        Raises:
            ValueError: nothing is left to learn from.
        """
        args, notes, warning = self._args, list[str](), ""
        if self._overlong:
            warning = (
                f"{self._overlong} of {self.turns} turns do not fit the model's window of "
                f"{self._policy.window} tokens: shorten their prompts by --env-args, or take a model with a "
                "longer window"
            )
        if not self._tokens:
            raise ValueError(
                f"no episode of the teacher {args.teacher!r} is left to learn from (learn_from "
                f"{args.learn_from}){warning and '; '}{warning}"
            )
        if self.learned < self.found:
            why = f"{self.found - self._right:,} failed, {self._right - self.learned:,} are beyond --episodes"
            notes.append(f"learning from {self.learned:,} of {self.found:,} episodes: {why}")
        return [*notes, f"warning: {warning}; they are left out"] if warning else notes


def write_rows(lessons: Iterable[Episode], folder: Path) -> tuple[list[pa.RecordBatch], list[str]]:
    """The training sequences of each episode, and the task of each.

    They are in a file that has no name, which is mapped into memory: those of a large teacher's file are more
    than fit there.
    """
    tasks = []
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        with pa.ipc.new_file(file, ROW) as writer:
            for episode in lessons:
                tasks.append(episode.task)
                samples = episode.samples
                columns: dict[str, list[Any]] = {
                    "task": [episode.task] * len(samples),
                    "input_ids": [sample.ids for sample in samples],
                    "loss_mask": [sample.response_mask for sample in samples],
                }
                writer.write_batch(pa.record_batch(columns, schema=ROW))
        file.flush()
        mapped = pa.ipc.open_file(pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
    return [mapped.get_batch(place) for place in range(len(tasks))], tasks


def demonstrations(args: SFTArgs, n_tasks: int) -> Iterator[Episode]:
    """The episodes that a teacher plays, or those of a file, without those that failed.

    Args:
        args: the teacher and its environment.
        n_tasks: number of tasks of the environment.

    Raises:
        ValueError: every episode of a model failed.
    """
    if args.teacher.endswith(".jsonl"):
        yield from (episode for _, episode in read_lines(args.teacher) if not episode.error)
        return
    draws = [*zip(*draw_lessons(args, n_tasks), strict=True)]
    # A model is loaded for each job, so in one process a single job plays everything.
    size = len(draws) if args.teacher.startswith(KINDS) and args.workers == 1 else JOB
    jobs = [(args.seed + i, draws[i : i + size]) for i in range(0, len(draws), size)]
    parts: Iterable[Iterable[Episode]] = map(functools.partial(_demonstrate, args), jobs)
    if args.workers != 1:
        play, on_gpu = functools.partial(_demonstrate_all, args), args.teacher.startswith("hf:")
        parts = map_jobs(play, jobs, args.workers, gpu=on_gpu)
    errors = []
    for episode in itertools.chain.from_iterable(parts):
        if episode.error:
            errors.append(episode.error)
        else:
            yield episode
    if len(errors) == len(draws):
        raise ValueError(f"every episode of the teacher {args.teacher!r} failed: {errors[0]}")
    if errors:
        sys.stderr.write(f"{counted(len(errors), 'episode')} failed and left out, the first by {errors[0]}\n")


def _demonstrate(args: SFTArgs, job: tuple[int, list[tuple[int, int]]]) -> Iterator[Episode]:
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
    plan = ([Episode(seed=drawn, group=drawn, number=task)] for drawn, task in draws)
    with contextlib.closing(loop):
        for (episode,) in loop.play(plan):
            yield episode


def _demonstrate_all(args: SFTArgs, job: tuple[int, list[tuple[int, int]]]) -> list[Episode]:
    """The same in a list, which another process can send."""
    return [*_demonstrate(args, job)]


def draw_lessons(args: SFTArgs, n_tasks: int) -> tuple[list[int], list[int]]:
    """The seeds and the tasks of the episodes to play."""
    count = args.episodes or PLAYED
    return group_seeds(args.seed, 0, 2, count), draw_tasks(n_tasks, [args.seed, 2], 0, count)
