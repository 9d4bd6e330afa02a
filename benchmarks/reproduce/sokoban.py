"""Sokoban (MT-PPO Table 5): curves and a table of success of five ways to reward a small GPT.

`python -m benchmarks.reproduce.sokoban runs/sokoban` does everything: it makes a model, warms it up by
`sft.py` on a part of the solver's solutions, trains it by each method and writes `docs/results/`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.reproduce.runs import (
    Job,
    clone_until,
    finish,
    read_args,
    run_all,
    seeded_jobs,
    steps_flags,
)
from benchmarks.reproduce.sokoban_model import CLOSE, save_sokoban_gpt

WARM = 0.12  # share of the held-out levels that the warmed-up model solves
METHODS = {
    "MT-PPO": ("mt_ppo", "turn"),
    "PPO-MR": ("mt_ppo", "merged"),
    "PPO-OR": ("mt_ppo", "outcome"),
    "GRPO-MR": ("grpo", "merged"),
    "GRPO-OR": ("grpo", "outcome"),
}
METRICS = ("eval_success", "eval_effective_player")  # a shortest solution has 1.0; of box moves it has 0.27
SHARED = ["--max-new-tokens", "12", "--num-envs", "128", "--stop", CLOSE]
HELD_OUT = ["--eval-env-args", json.dumps({"level_split": "test"})]
PPO = ["--groups", "128", "--group-size", "1", "--critic-warmup", "3"]
PPO += ["--critic", "shared", "--critic-lr", "5e-4", "--value-coef", "0.02"]  # as the recorded runs had it
GRPO = ["--groups", "16", "--group-size", "8"]


def warm_up(folder: Path) -> Path:
    """A model that solves about one held-out level in eight."""
    model, out = folder / "model", folder / "warm"
    if not model.exists():
        save_sokoban_gpt(model, seed=0)
    command = ["--model", str(model), "--teacher", "gold"]
    command += ["--episodes", "3200", "--batch-size", "64", "--lr", "2e-3", "--lr-warmup", "50"]
    command += ["--eval-every", "25", "--eval-episodes", "512", *SHARED, *HELD_OUT]
    return clone_until(WARM, command, out)


def jobs(folder: Path, warm: Path, seeds: int, steps: int) -> list[Job]:
    """A run for each method and seed."""
    kinds = {"mt_ppo": PPO, "grpo": GRPO}
    methods = {
        name: [learner, "--reward", reward, *kinds[learner]] for name, (learner, reward) in METHODS.items()
    }
    flags = [*steps_flags(steps, every=10), "--eval-episodes", "512", "--lr", "5e-4", "--minibatches", "4"]
    return seeded_jobs(folder, warm, methods, seeds, [*flags, *SHARED, *HELD_OUT])


def main() -> int:
    """Run from the command line."""
    args = read_args(__doc__, seeds=3, parallel=2)
    made = jobs(args.folder, warm_up(args.folder), args.seeds, args.steps)
    run_all(made, args.parallel)
    print(finish("sokoban_mt_ppo", "Sokoban, 512 held-out levels", made, METRICS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
