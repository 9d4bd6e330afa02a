"""Run training commands, and write their curves, a table with intervals and a picture to research/results."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memenvs.core.files import read_json, write_json
from memenvs.evaluation.plots import BAND, line_style, new_figure, plain_axis, save_figure
from memenvs.evaluation.summary import markdown_table

RESULTS = Path(__file__).parents[1] / "results"
LABEL = 25  # characters of a method's name in a legend, so that four names fit the picture's width


class LearnerJob(NamedTuple):
    """A training run.

    Attributes:
        method: its name in the table.
        seed: its seed.
        out: its folder.
        command: arguments of `python`.
    """

    method: str
    seed: int
    out: Path
    command: list[str]


def make_parser(
    description: str | None, *, seeds: int, parallel: int, steps: int = 100, add: str = ""
) -> argparse.ArgumentParser:
    """The command line of a reproduction.

    Args:
        description: of the command.
        seeds: default number.
        parallel: default.
        steps: default.
        add: what `--add` keeps from the record; without it there is no such flag.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path, help="for models and runs; runs in it are resumed")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--parallel", type=int, default=parallel, help="runs at once")
    if add:
        parser.add_argument(
            "--add", action="store_true", help=f"keep the {add} of the record and make the missing ones"
        )
    return parser


def python(command: Sequence[str]) -> None:
    """Run Python on one thread, and stop if it fails."""
    subprocess.run([sys.executable, *command], check=True, env=_environment())


def run_all(jobs: Sequence[LearnerJob], parallel: int) -> None:
    """Run all jobs, several at once; finished runs are not repeated.

    Raises:
        RuntimeError: runs failed; raised after all others have ended, with the paths of their output.
    """
    waiting, running, failed = (
        list(jobs),
        dict[int, tuple[LearnerJob, subprocess.Popen[bytes]]](),
        list[LearnerJob](),
    )
    while waiting or running:
        while waiting and len(running) < parallel:
            job = waiting.pop(0)
            job.out.mkdir(parents=True, exist_ok=True)
            with (job.out / "stderr.txt").open("ab") as log:
                process = subprocess.Popen([sys.executable, *job.command], stderr=log, env=_environment())
            running[process.pid] = (job, process)
        time.sleep(0.5)
        for pid, (job, process) in list(running.items()):
            if process.poll() is not None:
                del running[pid]
                failed += [job] if process.returncode else []
                print(f"{job.method} seed {job.seed}: exit {process.returncode}", file=sys.stderr, flush=True)
    if failed:
        raise RuntimeError(
            f"{len(failed)} runs failed; see {[str(job.out / 'stderr.txt') for job in failed]}"
        )


def seeded_jobs(
    folder: Path, warm: Path, methods: Mapping[str, Sequence[str]], seeds: int, flags: Sequence[str]
) -> list[LearnerJob]:
    """A run for each method and seed; all methods of a seed come before the next seed.

    Args:
        folder: its `runs` holds theirs.
        warm: the policy that all start from.
        methods: learner and flags of each, by its name in the table.
        seeds: number of seeds.
        flags: of all.
    """
    made = []
    for seed in range(seeds):
        for name, (learner, *own) in methods.items():
            out = folder / "runs" / f"{name.replace(', ', '-').replace(' ', '')}-{seed}"
            command = ["-m", "memenvs", "train", learner, "--model", str(warm), "--out", str(out)]
            command += ["--seed", str(seed), "--resume", *flags, *own]
            made.append(LearnerJob(name, seed, out, command))
    return made


def steps_flags(steps: int, every: int) -> list[str]:
    """Flags for a run's length, regular evaluations, and checkpoints every hundred steps and at the end."""
    return ["--steps", str(steps), "--save-every", str(min(steps, 100)), "--eval-every", str(every)]


GROUPS = ["--groups", "8", "--group-size", "8"]
UNCHANGED = {"warmed up": ["grpo", *steps_flags(1, 1), "--lr", "0"]}
"""A run that does not train: its one evaluation is of the policy that the others start from."""


def clone(
    model: Path,
    teacher: Path,
    out: Path,
    flags: Sequence[str],
    *,
    passes: int,
    rate: float,
    batch: int = 32,
    eval_every: int = 125,
) -> Path:
    """A model after `sft` on all of a teacher's episodes, for a number of passes.

    Args:
        model: initial model.
        teacher: file of its episodes.
        out: folder of the run, which is resumed; a finished run is kept.
        flags: of the environment and its evaluation.
        passes: over the episodes.
        rate: learning rate.
        batch: sequences a step.
        eval_every: steps; 0 for no evaluation.
    """
    command = [
        "-m",
        "memenvs",
        "train",
        "sft",
        "--model",
        str(model),
        "--out",
        str(out),
        "--learn-from",
        "all",
    ]
    episodes = teacher.read_bytes()
    command += ["--teacher", str(teacher), "--episodes", str(episodes.count(b"\n"))]
    command += ["--epochs", str(passes), "--lr", str(rate), "--lr-warmup", "50"]
    command += ["--batch-size", str(batch), "--save-every", "250", "--eval-every", str(eval_every)]
    command += ["--resume", *flags]
    ended = {"command": command, "teacher": hashlib.sha256(episodes).hexdigest()}
    if not (mark := out / "ended.json").exists() or read_json(mark) != ended:
        python(command)
        write_json(mark, ended)
    return last_policy(out)


def clone_until(share: float, command: Sequence[str], out: Path) -> Path:
    """A model after as many passes of `sft` as it takes to reach a share of successful test episodes.

    Args:
        share: success in one evaluation that ends the training.
        command: flags of `sft`, without the number of passes.
        out: folder of the run, which is resumed.
    """
    for passes in range(1, 20):
        known = curve(out, "eval_success")[1] if (out / "log.jsonl").exists() else []
        if any(success >= share for success in known):
            break
        python(
            [
                "-m",
                "memenvs",
                "train",
                "sft",
                "--out",
                str(out),
                *command,
                "--epochs",
                str(passes),
                "--resume",
            ]
        )
    return last_policy(out)


def env_flags(
    env: str, args: Mapping[str, Any], test: Path, *, episodes: int, reply: int, num_envs: int
) -> list[str]:
    """A learner's flags for its environment and its evaluation environment.

    Args:
        env: environment id.
        args: its arguments.
        test: task set of an evaluation.
        episodes: of an evaluation.
        reply: maximum tokens of a reply.
        num_envs: environments played at once.
    """
    flags = [
        "--env",
        env,
        "--env-args",
        json.dumps(args),
        "--eval-env-args",
        json.dumps({"tasks": str(test)}),
    ]
    flags += ["--eval-episodes", str(episodes), "--max-new-tokens", str(reply)]
    return [*flags, "--num-envs", str(num_envs)]


def curve(out: Path, name: str) -> tuple[list[int], list[float]]:
    """Steps and values of a number in a run's log."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    known = [(line["step"], line[name]) for line in lines if name in line]
    return [step for step, _ in known], [value for _, value in known]


def last_policy(out: Path) -> Path:
    """The policy of a run's last checkpoint."""
    return out / "last" / "policy"


def finish(
    file: str,
    title: str,
    jobs: Sequence[LearnerJob],
    metrics: Sequence[str],
    last: int = 3,
    training: Sequence[str] = (),
    kept: Mapping[str, Any] | None = None,
) -> str:
    """Write `FILE.json` and `FILE.png`; return a Markdown table of each method's mean over seeds.

    A run counts with the mean of its last `last` evaluations; brackets have the lowest and the highest seed.

    Args:
        file: name of the record.
        title: of the picture.
        jobs: the runs.
        metrics: of evaluations, a column and a panel each.
        last: number of evaluations.
        training: metrics of every training step to record too.
        kept: a record whose methods are included; a metric that it lacks is left out.

    Raises:
        ValueError: a method's runs were evaluated at different steps, or the warmed-up policy's evaluations
            differ from those in `kept`, so that its runs started from another policy.
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
        method: {metric: [[*curve(job.out, metric)] for job in members] for metric in metrics}
        for method, members in made.items()
    }
    if training:
        record["training"] = {
            method: {metric: [curve(job.out, metric) for job in members] for metric in training}
            for method, members in made.items()
        }
    for method, curves in record["curves"].items():
        if len({tuple(steps) for steps, _ in curves[metrics[0]]}) > 1:
            raise ValueError(f"the seeds of {method} were evaluated at different steps; run them again")
    if kept:
        _check_start(file, kept["curves"], record["curves"])
        record |= {part: kept[part] | record[part] for part in ("last", "curves")}
    write_json(RESULTS / f"{file}.json", record)
    draw(RESULTS / f"{file}.png", record)
    return record_table(record)


def record_table(record: Mapping[str, Any]) -> str:
    """The Markdown table of a record of `finish`; a metric that a method lacks is left empty."""
    found = record["last"]
    metrics = list(dict.fromkeys(name for numbers in found.values() for name in numbers))
    rows = {
        method: [shown(numbers[name]) if name in numbers else "" for name in metrics]
        for method, numbers in found.items()
    }
    return markdown(("method", *metrics), rows)


def kept_record(file: str, seeds: int, steps: int) -> dict[str, Any]:
    """The record that `--add` continues.

    Raises:
        ValueError: its runs have another number of seeds or steps.
    """
    record = read_json(RESULTS / f"{file}.json")
    lengths = {made[-1] for found in record["curves"].values() for made, _ in next(iter(found.values()))}
    known = len(record["seeds"]), max(lengths)
    if known != (seeds, steps):
        raise ValueError(
            f"--add: {file}.json has runs of {known[0]} seeds and {known[1]} steps, not {seeds} and {steps}; "
            f"give --seeds {known[0]} --steps {known[1]}"
        )
    return record


def _check_start(file: str, kept: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Raise a ValueError unless the runs that do not train have the same curves as in the record."""
    for method in kept.keys() & made.keys():
        for name, curves in kept[method].items():
            if curves != made[method][name]:
                raise ValueError(
                    f"{name} of {method!r} is {made[method][name]}, but {curves} in {file}.json; "
                    "leave out --add to make all runs here"
                )


def shown(values: Sequence[float], digits: int = 3) -> str:
    """A mean over seeds, with the smallest and the largest where there are several."""
    mean, low, high = (f"{f(values):.{digits}f}" for f in (np.mean, min, max))
    return mean if len(values) == 1 else f"{mean} ({low} to {high})"


def markdown(head: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    """A Markdown table; each row follows its name."""
    return "\n".join(markdown_table(head, [[name, *cells] for name, cells in rows.items()]))


def shares_table(found: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """A Markdown table of each method's means over seeds, a column for each share."""
    columns = list(next(iter(found.values()))[0])
    rows = {
        method: [f"{np.mean([one[column] for one in seeds]):.3f}" for column in columns]
        for method, seeds in found.items()
    }
    return markdown(("method", *columns), rows)


def draw(file: Path, record: Mapping[str, Any]) -> None:
    """Draw what `finish` records, one panel per metric: each method's mean as a line and its seeds' range.

    With up to four methods the range is a band, otherwise a bar at the last step, since more bands would
    overlap.
    """
    curves = record["curves"]
    metrics = list(next(iter(curves.values())))
    learning = [method for method, found in curves.items() if len(found[metrics[0]][0][0]) > 1]
    fixed = [method for method in curves if method not in learning]
    rows, columns = -(-len(metrics) // 2), min(len(metrics), 2)
    figure = new_figure(8.0, 2.9 * rows + 1.2)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, metric in zip(axes, metrics, strict=False):
        for method, found in curves.items():
            if metric not in found:  # from an older record
                continue
            steps, values = found[metric][0][0], np.array([known for _, known in found[metric]])
            if method in fixed:  # it does not train
                dashes = ("dashed", "dotted")[fixed.index(method) % 2]
                axis.axhline(values.mean(), label=method, color="gray", linestyle=dashes)
                continue
            place = learning.index(method)
            style = line_style(place)
            axis.plot(steps, values.mean(0), label=method, **style)
            low, high = values.min(0), values.max(0)
            if len(learning) <= 4:
                axis.fill_between(steps, low, high, color=style["color"], alpha=0.15, linewidth=0)
            else:
                x = steps[-1] + (place + 1) * 0.02 * (steps[-1] - steps[0])
                axis.vlines(x, low[-1], high[-1], color=style["color"], linewidth=2)
        axis.set_xlabel("training step", fontsize=9)
        axis.set_ylabel(metric.removeprefix("eval_").replace("_", " "), fontsize=9)
        plain_axis(axis)
    bars = "lines: mean of the seeds; bars at the right: from the lowest to the highest seed at the last step"
    figure.supxlabel(BAND if len(learning) <= 4 else bars, fontsize=9)
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


def _environment() -> dict[str, str]:
    quiet = {"OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    return {**os.environ, **quiet}
