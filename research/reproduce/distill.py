"""Distillation: a small GPT learns to read from itself given the evidence.

`python -m research.reproduce.distill runs/distill` runs everything. It makes the tasks and the model of
`research.reproduce.reading`, warms the model up on a careless reader's episodes (every turn is also shown
with the evidence alone), distills it, and prints a table. The teacher is the warmed-up model. Tasks have two
chunks, so it takes minutes.
"""

from __future__ import annotations

import sys

from research.harness import LearnerJob, curve, env_flags, options, run_all, seeded_jobs, steps_flags
from research.reproduce.reading import ReadingSetting, warm_up
from research.reproduce.reading_memory import ENV, REPLY

METHODS = {
    "warmed up": ["distill", *steps_flags(1, 1), "--lr", "0"],
    "forward": ["distill"],
    "reverse": ["distill", "--divergence", "reverse"],
}
FLAGS = ["--groups", "32", "--lr", "1e-3", "--track"]


def row(job: LearnerJob) -> str:
    """A row: a run's first and last divergence in training, and its last evaluation on the test tasks."""
    divergence = curve(job.out, "divergence")[1]
    last = [curve(job.out, f"eval_{name}")[1][-1] for name in ("success", "evidence_kept")]
    numbers = (divergence[0], divergence[-1], *last)
    return f"| {job.method} | {job.seed} | " + " | ".join(f"{number:.3f}" for number in numbers) + " |"


def main() -> int:
    """Run from the command line."""
    args = options(__doc__, seeds=1, parallel=1, steps=80).parse_args()
    setting = ReadingSetting(args.folder)
    warm = warm_up(setting, answers=True)
    two_chunks = {**setting.env_args("train"), "n_documents": 8}
    sizes = {"eval_episodes": 256, "num_envs": 64}
    shared = [*env_flags(ENV, two_chunks, args.folder / "test", reply=REPLY, **sizes), *FLAGS]
    shared += steps_flags(args.steps, every=max(1, args.steps // 4))
    planned = seeded_jobs(setting.folder, warm, METHODS, args.seeds, shared)
    run_all(planned, args.parallel)
    print("| method | seed | divergence, first | last | success | evidence kept |\n| --- |" + " --- |" * 5)
    print("\n".join(map(row, planned)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
