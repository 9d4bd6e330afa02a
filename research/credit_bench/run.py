"""The jobs of the bench; each result is written when its job is done."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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


class BenchJob(NamedTuple):
    """A training run, or with one of `POLICIES` a comparison with exact advantages under that policy."""

    world: str
    turns: int
    method: str
    seed: int
    policy: str = ""

    def file(self, folder: Path) -> Path:
        """Path of its result."""
        place, last = ("accuracy", self.policy) if self.policy else ("runs", str(self.seed))
        return folder / place / f"{self.world}-{self.turns}-{self.method}-{last}.json"


def do(job: BenchJob, folder: Path, steps: int, checked: int) -> BenchJob:
    """Do one job and write its file; `checked` steps of credit are compared with exact advantages."""
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
    """The probabilities under which methods are compared; None if no policy is halfway."""
    world = WORLDS[name](turns)
    return halfway(world) if policy == "halfway" else probabilities(world.features, world.initial)


def check_settings(folder: Path, steps: int, checked: int) -> None:
    """Write the settings of the runs, or check that the folder's runs have the same.

    Raises:
        ValueError: they have others.
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
        raise ValueError(f"runs in {folder} have other settings for {other} ({known}); give another folder")


def different(known: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The names of the settings with another known value."""
    return ", ".join(name for name in settings if known.get(name) != settings[name])
