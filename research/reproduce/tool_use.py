"""Two-turn tool use, MT-GRPO Table 2: curves and a table of a small GPT rewarded in four ways.

`python -m research.reproduce.tool_use runs/tool_use` runs everything. It makes a world, its questions and a
model, teaches the model to call a search and to read, adds mistakes with a careless caller's episodes, trains
it by each method and writes `research/results/`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.core.files import read_json
from memenvs.tasks.taskset import open_tasks
from research import harness
from research.demonstrations import write_demonstrations
from research.harness import LearnerJob, flags
from research.reproduce.tool_teacher import FIXED, REPLY, Caller, play
from research.reproduce.world_gpt import save_world_gpt
from research.reproduce.world_tasks import ENTITIES, Names, save_world_tasks

ENV = "MemToolQA-v0"
METHODS = {
    "MT-GRPO": ["turn"],
    "GRPO-MR": ["merged"],
    "GRPO-OR": ["outcome"],
    "MT-GRPO, skip": ["turn", "--reward-args", "ended=skip"],
}
METRICS = ("eval_called", "eval_retrieved", "eval_em")
EVALUATED = 512  # episodes of an evaluation
FIRST = 20  # training steps in which calls are counted
AT = (5, 10, 20, 50, 100)  # training steps at which exact match is compared
CARE = 0.5  # of the careless caller
CARELESS_EVERY = 4  # it plays every fourth question of the warm-up


class ToolSetting:
    """What all runs share: a world, its questions, an untrained model and demonstrations, made if missing.

    `fixed` are texts, other than this environment's own, that are one token each.
    """

    def __init__(
        self,
        folder: Path,
        entities: int = ENTITIES,
        model: str = "model",
        fixed: Sequence[str] = (),
        window: int = 256,
    ) -> None:
        self.folder, self.model, self.names = folder, folder / model, Names(entities)
        self.careful, self.careless = folder / "careful-calls.jsonl", folder / "careless-calls.jsonl"
        if not (folder / "test").exists():  # written last
            save_world_tasks(folder, self.names)
        if not self.model.exists():
            save_world_gpt(
                self.model, self.names, open_tasks(folder / "all"), [*FIXED, *fixed], window=window
            )
        env: Any = gym.make(f"memenvs:{ENV}", **self.env_args("warm"))
        tasks = range(len(env.unwrapped.questions))
        for file, care, chosen in (
            (self.careful, 1.0, tasks),
            (self.careless, CARE, tasks[::CARELESS_EVERY]),
        ):
            if not file.exists():
                caller = Caller(self.names, np.random.default_rng(0), care)
                write_demonstrations(file, play(env, caller, chosen))

    def env_args(self, part: str) -> dict[str, Any]:
        """Arguments of the environment that asks the questions of a part."""
        search = {"retriever": f"lexical:{self.folder / 'all'}", "k": 1, "max_result": 400}
        return {"tasks": str(self.folder / part), **search}

    def flags(self, part: str) -> list[str]:
        """Flags of every learner."""
        test, sizes = self.folder / "test", {"eval_episodes": EVALUATED, "num_envs": 128}
        return harness.env_flags(ENV, self.env_args(part), test, reply=REPLY, **sizes)

    def able(self) -> Path:
        """A model that can call and read."""
        out = self.folder / "able-to-call"
        return harness.clone(self.model, self.careful, out, self.flags("warm"), passes=2, rate=2e-3)

    def spoiled(self) -> Path:
        """A model that can call and read but often does neither."""
        out = self.folder / "careless-caller"
        return harness.clone(self.able(), self.careless, out, self.flags("warm"), passes=1, rate=5e-4)


def jobs(setting: ToolSetting, warm: Path, seeds: int, steps: int) -> list[LearnerJob]:
    """A run for each method and seed."""
    methods = {name: ["grpo", "--reward", *words] for name, words in METHODS.items()}
    shared = [*harness.steps_flags(steps, every=5), *harness.GROUPS, *flags(lr=2e-4, methods=["ToolRewards"])]
    shared += setting.flags("train")
    return harness.seeded_jobs(setting.folder, warm, {**harness.UNCHANGED, **methods}, seeds, shared)


def by_curve(record: Mapping[str, Any]) -> str:
    """A Markdown table of how soon each method calls in training, and of exact match in evaluations.

    `area`: the share of calls in the first training steps. `95%`: the first step in which so large a share of
    episodes calls, or the last step.
    """
    rows = {}
    for method, training in record["training"].items():
        calls = [values for _, values in training["called"]]
        if len(calls[0]) < FIRST:  # a policy that does not train
            continue
        areas = [float(np.mean(run[:FIRST])) for run in calls]
        reached = [next((i for i, share in enumerate(run, 1) if share >= 0.95), len(run)) for run in calls]
        answered = [dict(zip(*evaluated, strict=True)) for evaluated in record["curves"][method]["eval_em"]]
        em = [harness.shown([run[step] for run in answered]) for step in AT]
        rows[method] = [harness.shown(areas), harness.shown(reached, 0), *em]
    return harness.markdown(("method", "area", "95%", *(f"em at step {step}" for step in AT)), rows)


def main() -> int:
    """Run from the command line."""
    args = harness.options(__doc__, seeds=5).parse_args()
    setting = ToolSetting(args.folder)
    planned = jobs(setting, setting.spoiled(), args.seeds, args.steps)
    title = f"Two-turn tool use, {EVALUATED} test episodes"
    print(harness.Study("tool_use", title, METRICS, training=("called",)).run(planned, args.parallel))
    print(by_curve(read_json(harness.RESULTS / "tool_use.json")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
