"""Training commands come in; their curves, a table with intervals and a picture go out to docs/results."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RESULTS = Path(__file__).parents[2] / "docs" / "results"


class Job(NamedTuple):
    """A training run.

    Attributes:
        method: its name in the table.
        seed: of the run.
        out: its folder.
        command: what follows `python`.
    """

    method: str
    seed: int
    out: Path
    command: list[str]


def read_args(description: str | None, *, seeds: int, parallel: int) -> argparse.Namespace:
    """The command line of a reproduction; seeds and runs at once are those by default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, help="for models and runs; what is there is gone on with")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--parallel", type=int, default=parallel, help="runs at once")
    return parser.parse_args()


def python(command: Sequence[str]) -> None:
    """Run Python on one thread, and stop if it fails."""
    subprocess.run([sys.executable, *command], check=True, env=_environment())


def run_all(jobs: Sequence[Job], parallel: int) -> None:
    """Run all jobs, so many at once; what a finished run has left is not done again."""
    waiting, running = list(jobs), dict[int, tuple[Job, subprocess.Popen[bytes]]]()
    while waiting or running:
        while waiting and len(running) < parallel:
            job = waiting.pop(0)
            job.out.mkdir(parents=True, exist_ok=True)
            log = (job.out / "stderr.txt").open("ab")
            process = subprocess.Popen([sys.executable, *job.command], stderr=log, env=_environment())
            running[process.pid] = (job, process)
        time.sleep(0.5)
        for pid, (job, process) in list(running.items()):
            if process.poll() is not None:
                del running[pid]
                print(f"{job.method} seed {job.seed}: exit {process.returncode}", file=sys.stderr, flush=True)


def clone(model: Path, teacher: Path, out: Path, flags: Sequence[str], *, passes: int, rate: float) -> Path:
    """A model after `sft` on all of a teacher's episodes, so many passes long.

    Args:
        model: to begin with.
        teacher: file of its episodes.
        out: folder of the run; what is there is gone on with.
        flags: of the environment and its evaluation.
        passes: over the episodes.
        rate: of learning.
    """
    command = ["-m", "memenvs.baselines.sft", "--model", str(model), "--out", str(out), "--keep", "all"]
    command += ["--teacher", str(teacher), "--episodes", str(teacher.read_text().count("\n"))]
    command += ["--passes", str(passes), "--lr", str(rate), "--lr-warmup", "50", "--batch-size", "32"]
    python([*command, "--save-every", "250", "--resume", *flags])
    return last_policy(out)


def curve(out: Path, name: str) -> tuple[list[int], list[float]]:
    """Steps and values of a number in a run's log."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    known = [(line["step"], line[name]) for line in lines if name in line]
    return [step for step, _ in known], [value for _, value in known]


def last_policy(out: Path) -> Path:
    """The policy of a run's last checkpoint."""
    return out / "last" / "policy"


def finish(file: str, title: str, jobs: Sequence[Job], metrics: Sequence[str], last: int = 3) -> str:
    """Write `FILE.json` and `FILE.png`; a Markdown table of each method's mean over seeds.

    Of a run the mean of its last `last` evaluations counts. An interval is the smallest and the largest seed.
    """
    made = {job.method: [other for other in jobs if other.method == job.method] for job in jobs}
    found = {
        method: {
            name: [float(np.mean(curve(job.out, name)[1][-last:])) for job in members] for name in metrics
        }
        for method, members in made.items()
    }
    record: dict[str, Any] = {
        "title": title,
        "seeds": [job.seed for job in next(iter(made.values()))],
        "last": found,
    }
    record["curves"] = {
        method: {metric: [curve(job.out, metric) for job in members] for metric in metrics}
        for method, members in made.items()
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{file}.json").write_text(json.dumps(record) + "\n")
    _draw(RESULTS / f"{file}.png", title, record["curves"], metrics)
    lines = ["| method | " + " | ".join(metrics) + " |", "| --- |" + " --- |" * len(metrics)]
    for method, numbers in found.items():
        cells = [f"{np.mean(n):.3f} ({min(n):.3f} to {max(n):.3f})" for n in numbers.values()]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _draw(file: Path, title: str, curves: dict, metrics: Sequence[str]) -> None:
    """One panel a metric: a method's mean as a line, its seeds' range as a band."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    size = (5.5 * len(metrics) + 2, 4)  # beside the panels stands the legend, where it covers no curve
    figure, axes = plt.subplots(1, len(metrics), figsize=size, squeeze=False, layout="constrained")
    for axis, metric in zip(axes[0], metrics, strict=True):
        for method, found in curves.items():
            steps = found[metric][0][0]
            values = np.array([known[: len(steps)] for _, known in found[metric]])
            (line,) = axis.plot(steps, values.mean(0), label=method)
            axis.fill_between(steps, values.min(0), values.max(0), color=line.get_color(), alpha=0.15)
        axis.set(xlabel="training step", ylabel=metric.removeprefix("eval_").replace("_", " "))
        axis.grid(alpha=0.3)
    figure.legend(*axes[0][0].get_legend_handles_labels(), frameon=False, loc="outside right center")
    figure.suptitle(title)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _environment() -> dict[str, str]:
    quiet = {"OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    return {**os.environ, **quiet}
