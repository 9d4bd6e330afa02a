"""Sokoban (MT-PPO Table 5): five ways to reward a small GPT, with one box and with two.

`python -m research.reproduce.sokoban runs/sokoban` runs everything. It draws 20,000 levels, makes a model,
warms it up with `sft.py` on the solver's solutions until it solves a quarter of the held-out levels, and
teaches it to leave out the thought in half of its replies. Then it trains the model by each method and writes
`research/results/`. With `--boxes 2` turns before the last pay too, for the first box. `--methods PPO-OR
--steps 600`, in another folder, trains one method for longer.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.core.episode import Episode
from memenvs.core.files import read_json, write_json
from memenvs.models import HFPolicy, SamplingParams
from memenvs.sokoban import Generator
from research.reproduce.play import play_fresh
from research.reproduce.runs import (
    RESULTS,
    UNCHANGED,
    LearnerJob,
    clone_until,
    finish,
    last_policy,
    make_parser,
    markdown,
    python,
    run_all,
    seeded_jobs,
    shown,
    steps_flags,
)
from research.reproduce.sokoban_model import BARE, CLOSE, OPEN, save_sokoban_gpt

LEVELS = {"train": 20_000, "test": 512}
SIZES = {1: {"max_solution": 9, "max_turns": 3}, 2: {"max_solution": 12, "max_turns": 4}}
WARM = 0.25  # share of held-out levels solved at which the warm-up ends
MALFORMED = 0.5
METHODS = {
    "MT-PPO": ("mt_ppo", "turn"),
    "PPO-MR": ("mt_ppo", "merged"),
    "PPO-OR": ("mt_ppo", "outcome"),
    "GRPO-MR": ("grpo", "merged"),
    "GRPO-OR": ("grpo", "outcome"),
    "GRPO-MR, no std": ("grpo", "merged", "--reward-args", "scale=none"),
}
METRICS = ("eval_success", "eval_effective_player", "eval_format")
EVALUATED, EPISODES, STEPS = 512, 256, 100
PLAYED = 2048  # episodes of the last policies
LAST = ("success", "greedy", "early_share")  # their metrics
REPLY = 12  # tokens
PPO = ["--groups", str(EPISODES), "--group-size", "1", "--critic-warmup", "5"]
PPO += ["--critic", "separate", "--critic-lr", "1e-3"]
GRPO = ["--groups", str(EPISODES // 8), "--group-size", "8"]


class SokobanSetting:
    """Levels, an untrained model, and the settings that all learners share.

    Args:
        folder: for all files; what is there is reused.
        boxes: of a level.
    """

    def __init__(self, folder: Path, boxes: int) -> None:
        self.folder, self.boxes = folder, boxes
        levels, size = folder / "levels.npz", SIZES[boxes]
        if not levels.exists():
            made = Generator((6, 6), boxes, 5, size["max_solution"], seed=0).levels(LEVELS, workers=2)
            made.save(levels)
        self.env_args: dict[str, Any] = {"levels": str(levels), "max_turns": size["max_turns"]}
        self.model = folder / "model"
        if not self.model.exists():
            save_sokoban_gpt(self.model, seed=0, **self.env_args)
        flags = [
            "--env",
            "MemSokoban-v0",
            "--env-args",
            json.dumps(self.env_args),
            "--stop",
            CLOSE,
            "--max-new-tokens",
            str(REPLY),
        ]
        flags += ["--eval-env-args", json.dumps({"level_split": "test"})]
        self.flags = [*flags, "--eval-episodes", str(EVALUATED), "--num-envs", str(EPISODES)]

    def warm_up(self) -> Path:
        """A model that solves a quarter of the held-out levels, and half of whose replies are malformed."""
        shared = ["--batch-size", "64", "--eval-every", "50", *self.flags]
        solver = [
            "--teacher",
            "gold",
            "--episodes",
            str(LEVELS["train"]),
            "--lr",
            "2e-3",
            "--lr-warmup",
            "50",
        ]
        able = clone_until(WARM, ["--model", str(self.model), *solver, *shared], self.folder / "able")
        out = self.folder / "careless"
        teacher = ["--teacher", "research.reproduce.sokoban:careless_solver", "--episodes", "2560"]
        command = ["--model", str(able), "--out", str(out), *teacher, "--lr", "2e-4", *shared]
        python(["-m", "memenvs", "train", "sft", *command, "--resume"])
        return last_policy(out)


def careless_solver(env: gym.Env[Any, Any]) -> Callable[[str, dict[str, Any]], str]:
    """A teacher that solves levels and leaves out the thought in half of its replies; they are played too."""
    inner: Any = env.unwrapped
    draws = random.Random(0)

    def reply(observation: str, info: dict[str, Any]) -> str:
        gold: str = inner.gold_reply()
        return gold.replace(OPEN, BARE) if draws.random() < MALFORMED else gold

    return reply


def jobs(
    setting: SokobanSetting, warm: Path, seeds: int, steps: int, names: Sequence[str] = tuple(METHODS)
) -> list[LearnerJob]:
    """A run for each named method and seed, and one without training."""
    kinds = {"mt_ppo": PPO, "grpo": GRPO}
    methods = {
        name: [learner, "--reward", *own, *kinds[learner]]
        for name, (learner, *own) in METHODS.items()
        if name in names
    }
    unchanged = {name: [*own, *GRPO] for name, own in UNCHANGED.items()}
    rate = ["--lr", "5e-4", "--lr-end", "0", "--minibatches", "4"]
    flags = [*steps_flags(steps, every=10), *rate, *setting.flags]
    return seeded_jobs(setting.folder, warm, {**unchanged, **methods}, seeds, flags)


def early_share(episodes: Sequence[Episode]) -> float:
    """Share of the return's variance from rewards before the last turn: cov(early, return) / var(return)."""
    returns = np.array([sum(one.turn_rewards) for one in episodes])
    early = np.array([sum(one.turn_rewards[:-1]) for one in episodes])
    return float(np.cov(early, returns)[0, 1] / returns.var(ddof=1))


def success(episodes: Sequence[Episode]) -> float:
    """The share of solved episodes."""
    return float(np.mean([one.metrics["success"] for one in episodes]))


def last_policies(setting: SokobanSetting, made: Sequence[LearnerJob]) -> dict[str, dict[str, list[float]]]:
    """For each seed's last policy on held-out levels: success at temperature 1 and 0, `early_share` at 1."""
    env_args, found = {**setting.env_args, "level_split": "test"}, dict[str, dict[str, list[float]]]()

    def play(job: LearnerJob, temperature: float) -> list[Episode]:
        policy = HFPolicy(last_policy(job.out), sampling_params=SamplingParams(temperature, stop=[CLOSE]))
        options = {"env_args": env_args, "concurrency": EPISODES}
        return play_fresh("MemSokoban-v0", policy, PLAYED, REPLY, **options)

    for job in made:
        sampled, greedy = play(job, 1.0), play(job, 0.0)
        measured = (success(sampled), success(greedy), early_share(sampled))
        for name, value in zip(LAST, measured, strict=True):
            found.setdefault(name, {}).setdefault(job.method, []).append(round(value, 4))
    return found


def last_table(record: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """`last_policies` as a Markdown table, a row for each method."""
    methods = {method: [shown(record[name][method]) for name in LAST] for method in record["success"]}
    return markdown(("last policies", "success", "greedy", "early share"), methods)


def main() -> int:
    """Run from the command line."""
    parser = make_parser(__doc__, seeds=5, parallel=2, steps=STEPS)
    parser.add_argument("--boxes", type=int, choices=SIZES, default=1)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS], help="default all")
    args = parser.parse_args()
    setting = SokobanSetting(args.folder, args.boxes)
    made = jobs(setting, setting.warm_up(), args.seeds, args.steps, args.methods)
    run_all(made, args.parallel)
    name = f"sokoban_{args.boxes}" + (f"_{args.steps}" if args.steps != STEPS else "")
    boxes = "one box" if args.boxes == 1 else "two boxes"
    print(finish(name, f"Sokoban with {boxes}, {EVALUATED} held-out levels", made, METRICS))
    found, file = last_policies(setting, made), RESULTS / f"{name}.json"
    write_json(file, {**read_json(file), "last_policies": found})
    print(last_table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
