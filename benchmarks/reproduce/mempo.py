"""Two objectives with a memory (MemPO): curves of GRPO with and without credit for memories.

`python -m benchmarks.reproduce.mempo runs/mempo` does everything: it makes a world, its questions in pairs
and a model, teaches the model to search and to remember, spoils it on a forgetful searcher's episodes, trains
it by each method and writes `docs/results/`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.reproduce import tool_use
from benchmarks.reproduce.runs import (
    GROUPS,
    RESULTS,
    UNCHANGED,
    Job,
    clone,
    env_flags,
    finish,
    last_policy,
    make_parser,
    run_all,
    seeded_jobs,
    shares_table,
    steps_flags,
)
from benchmarks.reproduce.search_memory import remembered
from benchmarks.reproduce.search_teacher import FIXED, REPLY, TURNS, Searcher, play
from benchmarks.reproduce.world_tasks import ENTITIES, save_pairs
from memenvs.rollout.demonstrations import write_demonstrations

ENV = "MemSearchQA-v0"
# Half right is half a reward, and the models of nothing know an answer in its tag alone.
REWARD = {"trajectory": "outcome", "target": "wrapped"}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "GRPO": ("outcome", {}),
    "MemPO": ("mempo", REWARD),
    "MemPO, b = 0": ("mempo", {**REWARD, "bias": "none"}),
}
METRICS = ("eval_em", "eval_f1", "eval_prompt_tokens", "eval_prompt_tokens_peak")
EVALUATED = 256  # episodes of the test set
CARE = 0.6  # of the forgetful searcher
FORGETFUL_EVERY = 6  # an episode of its for every sixth pair of the warm-up


class Setting:
    """What all runs share: a world, its questions in pairs, an untrained model and demonstrations.

    Args:
        folder: for everything; what is missing is made.
        entities: of the world.
    """

    def __init__(self, folder: Path, entities: int = ENTITIES) -> None:
        self.singles = tool_use.Setting(folder, entities, "search-model", FIXED, window=1024)
        self.folder, self.model = folder, self.singles.model
        self.careful, self.forgetful = folder / "careful-searches.jsonl", folder / "forgetful-searches.jsonl"
        for part in ("warm", "train", "test"):
            if not (folder / f"{part}-pairs").exists():
                save_pairs(folder, part)
        env: Any = gym.make(f"memenvs:{ENV}", **self.env_args("warm"))
        tasks = range(len(env.unwrapped.questions))
        for file, care, chosen in (
            (self.careful, 1.0, tasks),
            (self.forgetful, CARE, tasks[::FORGETFUL_EVERY]),
        ):
            if not file.exists():
                searcher = Searcher(self.singles.names, np.random.default_rng(0), care)
                write_demonstrations(file, play(env, searcher, chosen, np.random.default_rng(1)))

    def env_args(self, part: str) -> dict[str, Any]:
        """Of the environment that asks the pairs of a part."""
        search = {"retriever": f"lexical:{self.folder / 'all'}", "k": 1, "max_information": 200}
        memory = {"memory_mode": "memory", "max_turns": TURNS, "tokenizer": str(self.model)}
        return {"tasks": str(self.folder / f"{part}-pairs"), **search, **memory}

    def flags(self, part: str) -> list[str]:
        """Of every learner."""
        sizes = {"episodes": EVALUATED, "reply": REPLY, "num_envs": 64}
        return env_flags(ENV, self.env_args(part), self.folder / "test-pairs", **sizes)

    def spoiled(self) -> Path:
        """A model that can search and remember, and often forgets; before, it learns to call a tool once."""
        flags, folder = self.flags("warm"), self.folder
        able = clone(self.singles.able(), self.careful, folder / "able-to-search", flags, passes=1, rate=1e-3)
        return clone(able, self.forgetful, folder / "forgetful-searcher", flags, passes=1, rate=5e-4)


def jobs(setting: Setting, warm: Path, seeds: int, steps: int) -> list[Job]:
    """A run for each method and seed."""
    methods = {
        name: ["grpo", "--reward", reward, "--reward-args", json.dumps(settings)]
        for name, (reward, settings) in METHODS.items()
    }
    flags = [*steps_flags(steps, every=10), *GROUPS, "--lr", "2e-4", *setting.flags("train")]
    return seeded_jobs(setting.folder, warm, {**UNCHANGED, **methods}, seeds, flags)


def memories(setting: Setting, made: Sequence[Job]) -> str:
    """Write `mempo_memories.json`, what memories hold at the end; a Markdown table of it."""
    found: dict[str, list[dict[str, float]]] = {}
    for job in made:
        held = remembered(last_policy(job.out), ENV, setting.env_args("test"), 2 * EVALUATED)
        found.setdefault(job.method, []).append(held)
    (RESULTS / "mempo_memories.json").write_text(json.dumps(found) + "\n")
    return shares_table(found)


def main() -> int:
    """Run from the command line."""
    args = make_parser(__doc__, seeds=3, parallel=1, steps=60).parse_args()
    setting = Setting(args.folder)
    made = jobs(setting, setting.spoiled(), args.seeds, args.steps)
    run_all(made, args.parallel)
    print(finish("mempo", f"Two objectives with a memory, {EVALUATED} test episodes", made, METRICS))
    print(memories(setting, made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
