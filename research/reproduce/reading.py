"""Chunked reading (TAMTRL, InfoMem): curves and tables of the ways to reward a small GPT.

`python -m research.reproduce.reading runs/reading` runs everything: it makes tasks and a model, warms the
model up on a careless reader's episodes, trains it by each method and writes `research/results/`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym

from memenvs.core.files import write_json
from memenvs.tasks.tokens import load_tokenizer
from research import harness
from research.harness import LearnerJob, flags
from research.reproduce.reading_memory import ENV, REPLY, read, shares, signals
from research.reproduce.reading_model import save_demonstrations, save_reading_gpt
from research.reproduce.reading_tasks import CHUNK_SIZE, MAX_MEMORY, TEMPLATE, save_reading_tasks

WARM = 0.25  # share of the test tasks answered at which the warm-up ends
EVALUATED = 512  # episodes of an evaluation
WRAPPED = {"target": "wrapped"}  # a model trained from scratch knows an answer only in its form


def _method(reward: str, **settings: Any) -> list[str]:
    return flags(reward=reward, reward_args=settings)


def _by_turn(*, scale: str = "std", **settings: Any) -> list[str]:
    """TAMTRL's rewards, compared with the group's at the same turn instead of at all turns (ours)."""
    return flags(reward="turn", reward_args={"alpha": 0, "scale": scale}, methods=[["TAMTRL", settings]])


METHODS: dict[str, list[str]] = {
    "outcome only": _method("outcome"),
    "TAMTRL": _method("tamtrl"),
    "TAMTRL, no min-max": _method("tamtrl", minmax=False),
    "TAMTRL, no length norm": _method("tamtrl", length_norm=False),
    "TAMTRL, plus": _method("tamtrl", combine="plus"),
    "TAMTRL, global": _method("tamtrl", view="global"),
    "TAMTRL, change": _method("tamtrl", change=True),
    "TAMTRL, by turn": _by_turn(),
    "TAMTRL, change, by turn": _by_turn(change=True),
    "TAMTRL, by turn, no std": _by_turn(scale="none"),
    "TAMTRL, change, by turn, no std": _by_turn(scale="none", change=True),
    "InfoMem": _method("infomem", **WRAPPED),
    "InfoMem, wrong side": _method("infomem", **WRAPPED, side="wrong"),
    "InfoMem, both sides": _method("infomem", **WRAPPED, side="both"),
    "InfoMem, no normalisation": _method("infomem", **WRAPPED, normalize=False),
    "InfoMem, no outcome": _method("infomem", **WRAPPED, outcome=False),
    "ReMemR1": _method("rememr1"),
}


class ReadingSetting:
    """What all runs share: tasks, an untrained model and the environment's arguments, made if missing.

    The test split has a quarter as many tasks as the training split.
    """

    def __init__(self, folder: Path, tasks: int = 4096) -> None:
        self.folder, self.model = folder, folder / "model"
        if not self.model.exists():
            save_reading_gpt(self.model)
        tokenizer = load_tokenizer(str(self.model))
        for split, count in (("train", tasks), ("test", tasks // 4)):
            if not (folder / split).exists():
                save_reading_tasks(folder / split, tokenizer, split, count)

    def env_args(self, split: str) -> dict[str, Any]:
        """Arguments of a split's environment."""
        sizes = {"chunk_size": CHUNK_SIZE, "max_memory": MAX_MEMORY, "max_answer": MAX_MEMORY}
        cutting = {"tokenizer": str(self.model), "cut_at": "document", "template": TEMPLATE}
        return {"tasks": str(self.folder / split), **sizes, **cutting}

    @property
    def flags(self) -> list[str]:
        """Flags of every learner."""
        test, sizes = self.folder / "test", {"eval_episodes": EVALUATED, "num_envs": 256}
        return harness.env_flags(ENV, self.env_args("train"), test, reply=REPLY, **sizes)


def warm_up(setting: ReadingSetting, *, answers: bool = False) -> Path:
    """A model that answers about one test task in four; `answers` as in `save_demonstrations`."""
    demonstrations, out = setting.folder / "careless.jsonl", setting.folder / "warm"
    if not demonstrations.exists():
        env = gym.make(f"memenvs:{ENV}", **setting.env_args("train"))
        save_demonstrations(demonstrations, env, 5000, seed=0, answers=answers)
    shared = flags(teacher=demonstrations, learn_from="all", episodes=5000, batch_size=128, lr=2e-3)
    shared += [*flags(lr_warmup=50, eval_every=100), *setting.flags]
    return harness.clone_until(WARM, setting.model, out, shared)


def jobs(
    setting: ReadingSetting, warm: Path, seeds: int, steps: int, names: Sequence[str] = tuple(METHODS)
) -> list[LearnerJob]:
    """A run for each of the methods named and each seed."""
    methods = {name: ["grpo", *words] for name, words in METHODS.items() if name in names}
    shared = [*setting.flags, *harness.steps_flags(steps, every=10), *harness.GROUPS, *flags(lr=5e-4)]
    return harness.seeded_jobs(setting.folder, warm, methods, seeds, shared)


def memories(file: Path, setting: ReadingSetting, warm: Path, runs: Sequence[LearnerJob]) -> str:
    """Write what final memories hold and what methods measure; return a Markdown table of it."""
    env_args = setting.env_args("test")
    found: dict[str, list[dict[str, float]]] = {}
    for name, model in [("warmed up", warm), *((job.method, harness.last_policy(job.out)) for job in runs)]:
        found.setdefault(name, []).append(shares(read(model, env_args, 2 * EVALUATED)))
    measured = signals(read(warm, env_args, 2 * EVALUATED, measured=True))
    write_json(file, {"shares": found, "signals of the warmed-up model": measured})
    lines = [f"{name}: {value:.3f}" for name, value in measured.items()]
    return "\n".join([harness.shares_table(found), "", *lines])


def main() -> int:
    """Run from the command line."""
    parser = harness.options(__doc__, seeds=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS], help="default all")
    parser.add_argument("--record", default="reading", help="prefix of the records' names")
    args = parser.parse_args()
    if args.record == "reading" and len(args.methods) < len(METHODS):
        parser.error(
            "a run of only these methods would replace the record of all; give --record another name"
        )
    setting = ReadingSetting(args.folder)
    warm = warm_up(setting)
    planned = jobs(setting, warm, args.seeds, args.steps, args.methods)
    title = f"Chunked reading, {EVALUATED} test tasks"
    study = harness.Study(f"{args.record}_methods", title, ("eval_success", "eval_reply_tokens"))
    print(study.run(planned, args.parallel))
    print(memories(harness.RESULTS / f"{args.record}_memories.json", setting, warm, planned))
    return 0


if __name__ == "__main__":
    sys.exit(main())
