"""The jobs of the bench, each written whole when it is done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from memenvs.core.files import read_json, write_json
from research.credit_bench.methods import (
    BRANCHES,
    BRANCHING,
    GROUP,
    GROUPS,
    JUDGE_ERROR,
    PRM_EPISODES,
    TREES,
)
from research.credit_bench.train import CRITIC_RATE, GOAL, HELD, STRIDE, accuracy, halfway, train
from research.credit_bench.worlds import WORLDS, Array, probabilities

POLICIES = ("start", "halfway")


class Job(NamedTuple):
    """A training run, or with `policy` a comparison with exact advantages under that policy.

    Attributes:
        world: its name.
        turns: K.
        method: its name.
        seed: of the run.
        policy: of `POLICIES`, or empty.
    """

    world: str
    turns: int
    method: str
    seed: int
    policy: str = ""

    def file(self, folder: Path) -> Path:
        """Where it is written."""
        place, last = ("accuracy", self.policy) if self.policy else ("runs", str(self.seed))
        return folder / place / f"{self.world}-{self.turns}-{self.method}-{last}.json"


def do(job: Job, folder: Path, steps: int, checked: int) -> Job:
    """Do one job and write its file.

    Args:
        job: which.
        folder: of the bench.
        steps: of a training run at most.
        checked: steps of credit that are compared with exact advantages.
    """
    torch.set_num_threads(1)
    world = WORLDS[job.world](job.turns)
    if job.policy:
        probs = compared(job.world, job.turns, job.policy)
        if probs is None:
            raise ValueError(
                f"{job.world} with K = {job.turns} has no policy halfway to compare credit under"
            )
        found = accuracy(world, job.method, probs, job.seed, checked)
    else:
        found = train(world, job.method, job.seed, steps)
    write_json(job.file(folder), {**job._asdict(), **found})
    return job


@cache
def compared(name: str, turns: int, policy: str) -> Array | None:
    """The probabilities that methods are compared under; None where no policy is halfway."""
    world = WORLDS[name](turns)
    return halfway(world) if policy == "halfway" else probabilities(world.features, world.initial)


def do_all(jobs: Sequence[Job], folder: Path, steps: int, checked: int, parallel: int) -> Iterator[Job]:
    """Do all jobs in a number of processes, and yield each when it is done."""
    if parallel == 1:
        yield from (do(job, folder, steps, checked) for job in jobs)
        return
    with ProcessPoolExecutor(parallel, get_context("spawn")) as pool:
        waiting = [pool.submit(do, job, folder, steps, checked) for job in jobs]
        for done in as_completed(waiting):
            yield done.result()


def check_settings(folder: Path, steps: int, checked: int) -> None:
    """Write down how runs are made, or see that those of the folder were made so.

    Raises:
        ValueError: they were made otherwise.
    """
    settings: dict[str, Any] = {
        "steps": steps,
        "checked": checked,
        "groups": [GROUPS, GROUP],
        "trees": [TREES, BRANCHES, BRANCHING],
        "stride": STRIDE,
        "critic_rate": CRITIC_RATE,
        "goal": [GOAL, HELD],
        "judge_error": JUDGE_ERROR,
        "prm_episodes": PRM_EPISODES,
    }
    file = folder / "settings.json"
    if not file.exists():
        write_json(file, settings)
    elif (known := read_json(file, "give another folder")) != settings:
        other = different(known, settings)
        raise ValueError(f"runs in {folder} have another {other} ({known}); give another folder")


def different(known: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The names of the settings that are known with another value."""
    return ", ".join(name for name in settings if known.get(name) != settings[name])
