"""The harness of every study: a plan of paired seeds that is run and resumed, its record, table and picture.

study = Study("tool_use", "Two-turn tool use", ("eval_called", "eval_em"))
args = options(__doc__, seeds=5).parse_args()
jobs = seeded_jobs(args.folder, warm, {"GRPO": ["grpo", *flags(lr=2e-4)]}, args.seeds)
print(study.run(jobs, args.parallel))  # writes tool_use.json and tool_use.png of research/results
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from memenvs.core.episode import Episode
from memenvs.core.files import read_json, write_json
from memenvs.evaluation.plots import BAND, line_style, new_figure, plain_axis, save_figure
from memenvs.evaluation.summary import markdown_table
from memenvs.rollout.collect import collect
from memenvs.rollout.order import group_seeds

RESULTS = Path(__file__).parent / "results"
LABEL = 25  # characters of a method's name in a legend, so that four names fit the picture's width
GROUPS = ["--groups", "8", "--group-size", "8"]
# One thread a run: several run at once, and sums of floats depend on the number of threads.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
T = TypeVar("T")
R = TypeVar("R")


class LearnerJob(NamedTuple):
    """A training run: its method in the table, its seed, its folder, and the arguments of `python`."""

    method: str
    seed: int
    out: Path
    command: list[str]


class Study(NamedTuple):
    """What a study records of its runs.

    Attributes:
        file: name of the record in `research/results`.
        title: of the picture.
        metrics: of evaluations, a column and a panel each.
        last: number of the last evaluations whose mean counts for a run.
        training: metrics of every training step to record too.
        picture: whether to draw the record.
    """

    file: str
    title: str
    metrics: Sequence[str]
    last: int = 3
    training: Sequence[str] = ()
    picture: bool = True

    def run(self, jobs: Sequence[LearnerJob], parallel: int) -> str:
        """Run what is missing of a plan and record it; return the page's table."""
        run_all(jobs, parallel)
        return self.record(jobs)

    def record(self, jobs: Sequence[LearnerJob]) -> str:
        """Write `FILE.json` and `FILE.png`; return a Markdown table of each method's mean over seeds.

        Brackets have the lowest and the highest seed.

        Raises:
            ValueError: a method's runs were evaluated at different steps.
        """
        runs: dict[str, list[LearnerJob]] = {}
        for job in jobs:
            runs.setdefault(job.method, []).append(job)

        def of_runs(number: Callable[[Path, str], Any], names: Sequence[str]) -> dict[str, Any]:
            return {
                method: {name: [number(job.out, name) for job in members] for name in names}
                for method, members in runs.items()
            }

        last = of_runs(lambda out, name: float(np.mean(curve(out, name)[1][-self.last :])), self.metrics)
        seeds = [job.seed for job in next(iter(runs.values()))]
        record = {"title": self.title, "seeds": seeds, "last": last, "curves": of_runs(curve, self.metrics)}
        if self.training:
            record["training"] = of_runs(curve, self.training)
        for method, curves in record["curves"].items():
            if len({tuple(steps) for steps, _ in curves[self.metrics[0]]}) > 1:
                raise ValueError(f"the seeds of {method} were evaluated at different steps; run them again")
        write_json(RESULTS / f"{self.file}.json", record)
        if self.picture:
            draw(RESULTS / f"{self.file}.png", record)
        rows = {method: [shown(numbers[name]) for name in self.metrics] for method, numbers in last.items()}
        return markdown(("method", *self.metrics), rows)


def options(
    description: str | None, *, seeds: int, parallel: int = 2, steps: int = 100
) -> argparse.ArgumentParser:
    """The command line of a reproduction, with its defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, help="for models and runs; runs in it are resumed")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--parallel", type=int, default=parallel, help="runs at once")
    return parser


# The plan


def flags(**settings: Any) -> list[str]:
    """Settings as the flags of a command; lists and dictionaries as JSON."""
    words = []
    for name, value in settings.items():
        is_plain = isinstance(value, str | int | float | Path)
        words += [f"--{name.replace('_', '-')}", str(value) if is_plain else json.dumps(value)]
    return words


def env_flags(env: str, args: Mapping[str, Any], test: Path, *, reply: int, **more: Any) -> list[str]:
    """A learner's flags for its environment, which evaluates on the task set `test`; replies in tokens."""
    test_args = {"tasks": str(test)}
    return flags(env=env, env_args=args, eval_env_args=test_args, max_new_tokens=reply, **more)


def steps_flags(steps: int, every: int) -> list[str]:
    """Flags for a run's length, regular evaluations, and checkpoints every hundred steps and at the end."""
    return flags(steps=steps, save_every=min(steps, 100), eval_every=every)


UNCHANGED = {"warmed up": ["grpo", *steps_flags(1, 1), "--lr", "0"]}
"""A run that does not train: its one evaluation is of the policy that the others start from."""


def train_command(learner: str, model: Path, out: Path, more: Sequence[str]) -> list[str]:
    """The arguments of `python` for a training run, which resumes."""
    return ["-m", "memenvs", "train", learner, *flags(model=model, out=out), "--resume", *more]


def seeded_jobs(
    folder: Path, warm: Path, methods: Mapping[str, Sequence[str]], seeds: int, shared: Sequence[str]
) -> list[LearnerJob]:
    """A run for each method and seed; all methods of a seed come before the next seed.

    Args:
        folder: its `runs` has theirs.
        warm: the policy that all start from.
        methods: learner and flags of each, by its name in the table.
        seeds: number of seeds.
        shared: flags of all.
    """
    jobs = []
    for seed in range(seeds):
        for name, (learner, *more) in methods.items():
            out = folder / "runs" / f"{name.replace(', ', '-').replace(' ', '')}-{seed}"
            command = train_command(learner, warm, out, [*flags(seed=seed), *shared, *more])
            jobs.append(LearnerJob(name, seed, out, command))
    return jobs


# Runs


def python(command: Sequence[str]) -> None:
    """Run Python on one thread, and stop if it fails."""
    subprocess.run([sys.executable, *command], check=True, env={**os.environ, **_ENVIRONMENT})


def run_all(
    jobs: Sequence[LearnerJob], parallel: int, ended: Callable[[LearnerJob], None] | None = None
) -> None:
    """Run all jobs in order, several at once; finished runs are not repeated.

    Args:
        jobs: the plan.
        parallel: number that run at once.
        ended: called with each run that succeeded, as soon as it has ended.

    Raises:
        RuntimeError: runs failed; raised after all others have ended, with the paths of their output.
        Exception: what `ended` raised, after the runs under way have ended; the others are left out.
    """
    environment = {**os.environ, **_ENVIRONMENT}

    def run(job: LearnerJob) -> int:
        job.out.mkdir(parents=True, exist_ok=True)
        with (job.out / "stderr.txt").open("ab") as log:
            return subprocess.run([sys.executable, *job.command], stderr=log, env=environment).returncode

    failed = []
    with ThreadPoolExecutor(parallel) as pool:
        jobs_by_run = {pool.submit(run, job): job for job in jobs}
        try:
            for ending in as_completed(jobs_by_run):
                job, code = jobs_by_run[ending], ending.result()
                if code:
                    failed.append(str(job.out / "stderr.txt"))
                elif ended is not None:
                    ended(job)
                print(f"{job.method} seed {job.seed}: exit {code}", file=sys.stderr, flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    if failed:
        raise RuntimeError(f"{len(failed)} runs failed; see {failed}")


def spread(work: Callable[[T], R], items: Iterable[T], parallel: int) -> Iterator[R]:
    """The results of some work, in order, by several processes with one thread each."""
    import torch  # not needed to read records

    if parallel == 1:
        torch.set_num_threads(1)
        yield from map(work, items)
        return
    # A forked process would wait forever for the threads that torch has in this one.
    with ProcessPoolExecutor(
        parallel, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        yield from pool.map(work, items)


def clone(
    model: Path,
    teacher: Path,
    out: Path,
    shared: Sequence[str],
    *,
    passes: int,
    rate: float,
    batch: int = 32,
    eval_every: int = 125,
) -> Path:
    """A model after some passes of `sft` on all of a teacher's episodes; a finished run is kept."""
    episodes = teacher.read_bytes()
    options = flags(learn_from="all", teacher=teacher, episodes=episodes.count(b"\n"), epochs=passes, lr=rate)
    options += flags(lr_warmup=50, batch_size=batch, save_every=250, eval_every=eval_every)
    command = train_command("sft", model, out, [*options, *shared])
    # A run resumes whatever its teacher's file holds now, so the mark has the file's digest.
    ended = {"command": command, "teacher": hashlib.sha256(episodes).hexdigest()}
    if not (mark := out / "ended.json").exists() or read_json(mark) != ended:
        python(command)
        write_json(mark, ended)
    return last_policy(out)


def clone_until(share: float, model: Path, out: Path, shared: Sequence[str]) -> Path:
    """A model after as many passes of `sft` as it takes to reach a share of successful test episodes."""
    for passes in range(1, 20):
        reached = curve(out, "eval_success")[1] if (out / "log.jsonl").exists() else []
        if any(success >= share for success in reached):
            break
        python(train_command("sft", model, out, [*shared, *flags(epochs=passes)]))
    return last_policy(out)


def play_fresh(env: str, policy: Any, episodes: int, reply: int, **more: Any) -> list[Episode]:
    """Always the same episodes of a policy, with other random tasks and tokens than runs and evaluations.

    `reply` is the maximum tokens of a reply; `more` are other arguments of `memenvs.collect`.
    """
    return collect(env, policy, group_seeds(0, 0, 4, episodes), max_new_tokens=reply, **more)


# Records


def read_record(file: Path) -> Any:
    """A record of `research/results`.

    Raises:
        ValueError: it is damaged; and where a field is read that it does not have.
    """
    fix = "make it again by its command in research/reproductions.md"

    class Fields(dict[str, Any]):
        def __missing__(self, name: str) -> Any:
            raise ValueError(f"{file} has no {name!r}; {fix}")

    return json.loads(json.dumps(read_json(file, fix)), object_hook=Fields)


def curve(out: Path, name: str) -> tuple[list[int], list[float]]:
    """Steps and values of a number in a run's log."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    points = [(line["step"], line[name]) for line in lines if name in line]
    return [step for step, _ in points], [value for _, value in points]


def last_policy(out: Path) -> Path:
    """The policy of a run's last checkpoint."""
    return out / "last" / "policy"


def shown(values: Sequence[float], digits: int = 3) -> str:
    """A mean over seeds, with the smallest and the largest where there are several."""
    mean, low, high = (f"{f(values):.{digits}f}" for f in (np.mean, min, max))
    return mean if len(values) == 1 else f"{mean} ({low} to {high})"


def markdown(head: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A Markdown table; each row follows its name."""
    return "\n".join(markdown_table(head, [[name, *cells] for name, cells in rows.items()]))


def shares_table(shares: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """A Markdown table of each method's means over seeds, a column for each share."""
    columns = list(next(iter(shares.values()))[0])
    rows = {
        method: [f"{np.mean([seed[column] for seed in seeds]):.3f}" for column in columns]
        for method, seeds in shares.items()
    }
    return markdown(("method", *columns), rows)


def draw_band(
    axis: Any,
    steps: Sequence[float],
    middle_low_high: Sequence[Any],
    style: Mapping[str, Any],
    label: str | None = None,
) -> None:
    """Draw a line and its band."""
    middle, low, high = middle_low_high
    axis.plot(steps, middle, label=label, **style)
    axis.fill_between(steps, low, high, color=style["color"], alpha=0.15, linewidth=0)


def seed_range(curves: Sequence[Any]) -> tuple[list[int], tuple[Any, Any, Any]]:
    """The steps of a method's recorded curves, and the mean, the lowest and the highest of its seeds."""
    values = np.array([value for _, value in curves])
    return curves[0][0], (values.mean(0), values.min(0), values.max(0))


def draw(file: Path, record: Mapping[str, Any]) -> None:
    """Draw a record, one panel per metric: each method's mean as a line and its seeds' range."""
    curves = record["curves"]
    metrics = list(next(iter(curves.values())))
    learning = [method for method, by_metric in curves.items() if len(by_metric[metrics[0]][0][0]) > 1]
    fixed = [method for method in curves if method not in learning]
    few = len(learning) <= 4  # more bands would overlap, so then a bar at the last step shows the range
    rows, columns = -(-len(metrics) // 2), min(len(metrics), 2)
    figure = new_figure(8.0, 2.9 * rows + 1.2)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, metric in zip(axes, metrics, strict=False):
        for method, by_metric in curves.items():
            if metric not in by_metric:  # from an older record
                continue
            steps, (mean, low, high) = seed_range(by_metric[metric])
            if method in fixed:  # it does not train
                dashes = ("dashed", "dotted")[fixed.index(method) % 2]
                axis.axhline(mean.mean(), label=method, color="gray", linestyle=dashes)
                continue
            place = learning.index(method)
            style = line_style(place)
            if few:
                draw_band(axis, steps, (mean, low, high), style, method)
            else:
                axis.plot(steps, mean, label=method, **style)
                x = steps[-1] + (place + 1) * 0.02 * (steps[-1] - steps[0])
                axis.vlines(x, low[-1], high[-1], color=style["color"], linewidth=2)
        axis.set_xlabel("training step", fontsize=9)
        axis.set_ylabel(metric.removeprefix("eval_").replace("_", " "), fontsize=9)
        plain_axis(axis)
    bars = "lines: mean of the seeds; bars at the right: from the lowest to the highest seed at the last step"
    figure.supxlabel(BAND if few else bars, fontsize=9)
    entries = axes[0].get_legend_handles_labels()  # placed where they cover no curve
    look = {"frameon": False, "fontsize": 8, "handlelength": 3}
    if len(axes) > len(metrics):
        axes[-1].axis("off")
        axes[-1].legend(*entries, loc="center", **look)
        figure.suptitle(record["title"], fontsize=10)
    else:
        beside = 4 if max(map(len, entries[1])) <= LABEL else 3
        figure.legend(*entries, ncols=beside, loc="outside upper center", title=record["title"], **look)
    save_figure(figure, file)
