"""Make the agents that ship: `python -m research.agent reader runs/reader` writes `data/smollm2-reader`.

`reader` reads chunk by chunk with a memory, `caller` makes one tool call. The script builds questions about
another world than the bundled one and warms SmolLM2-135M-Instruct up on a teacher that knows what is needed
and makes some mistakes: on its lessons (`research.lessons`) or on its episodes (`careful`). Reinforcement
then trains the adapter further. The agent is scored on the unseen test world before and after, and its card
is written. A stage takes at most three hours on two cores and resumes where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from memenvs.commands.build import main as build
from memenvs.core.files import whole_folder
from memenvs.data import bundled
from memenvs.evaluation.run import evaluate
from memenvs.models.packaged import AGENT, write_card
from memenvs.models.settings import ModelOptions
from memenvs.tasks.taskset import open_tasks
from research.demonstrations import write_demonstrations
from research.lessons import Lessons

BASE = "smollm2"
PROCESSES = 2  # training processes, one per core
SHARED = "--num-envs 16 --max-new-tokens 192 --micro-batch-tokens 4096 --save-every 10 --keep 1 --resume"


class Test(NamedTuple):
    """What an agent is scored on: a task set, and environment arguments that differ from training."""

    tasks: str
    env_args: Mapping[str, Any] = MappingProxyType({})
    samples: int = 4
    temperature: float = 0.3


class Agent(NamedTuple):
    """How an agent is made.

    `worlds` has the flags of `memenvs build world` for each task set; `warm` those of `sft` on the set
    `warm`, from the model `start`; `learn` those of `grpo` on the set `learn_on`. With `texts` of 0 the
    teacher of the warm-up, which the flags name, plays episodes; otherwise its lessons are about this many
    texts.
    """

    env: str
    env_args: Mapping[str, Any]
    worlds: Mapping[str, str]
    warm: str
    learn: str
    learn_on: str
    tests: Mapping[str, Test]
    texts: int = 0
    start: str = BASE


LONG = {"n_documents": 20, "chunk_size": 400, "max_memory": 192}
READING = {
    "chunk_size": 300,
    "cut_at": "document",
    "max_memory": 128,
    "max_answer": 32,
    "template": "short",
    "tokenizer": "world",
}
AGENTS = {
    "reader": Agent(
        env="MemChunkQA-v0",
        env_args={"n_documents": 6, **READING},
        worlds={
            "warm": "--split train --seed 1 --num-tasks 40000 --entities 3000 --documents 20 "
            "--tokenizer world",
            "learn": "--split train --seed 2 --num-tasks 4000 --entities 3000 --documents 20 "
            "--tokenizer world",
        },
        texts=600,
        warm="--no-shuffle --episodes 100000 --batch-size 20 --lora-rank 8 "
        "--lr 1e-3 --lr-warmup 10 --lr-end 0.1",
        learn="--reward outcome --groups 4 --group-size 8 --steps 52 --lr 2e-4 --lr-warmup 2 "
        "--temperature 0.8",
        learn_on="learn",
        tests={
            "6 documents": Test("world-test"),
            "6 documents, temperature 1": Test("world-test", temperature=1.0),
            "20 documents": Test("world-test", LONG, samples=1),
        },
    ),
    # One call answers a one-hop question; a quarter of `world-test` are one-hop questions.
    "caller": Agent(
        env="MemToolQA-v0",
        env_args={"k": 3, "tokenizer": "world"},
        worlds={
            "warm": "--split train --seed 1 --num-tasks 4000 --entities 6000 --documents 20 --hops 1 "
            "--tokenizer world",
            "test": "--split test --seed 0 --num-tasks 128 --entities 1000 --documents 20 --hops 1 "
            "--tokenizer world",
        },
        start="smollm2-reader",
        warm="--teacher research.lessons:fact_caller --episodes 480 --batch-size 8 "
        "--lr 5e-4 --lr-warmup 5 --lr-end 0.1",
        learn="--reward turn --group-size 8 --groups 4 --steps 60 --lr 2e-4 --lr-warmup 5",
        learn_on="warm",
        tests={"one hop": Test("test"), "world-test": Test("world-test", samples=1)},
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Make the agent that is named."""
    parser = argparse.ArgumentParser(prog="python -m research.agent", description=__doc__.splitlines()[0])
    parser.add_argument("agent", choices=sorted(AGENTS))
    parser.add_argument("out", type=Path, help="folder for the runs")
    parser.add_argument("--stage", choices=("warm", "learn"), default="learn", help="last stage to train")
    parser.add_argument("--hotpotqa", help="also score on this task set, built from HotpotQA's file")
    args = parser.parse_args(argv)
    agent, out = AGENTS[args.agent], args.out
    for name, flags in agent.worlds.items():
        folder = out / "tasks" / name
        if not (folder / "card.json").is_file() and build(["world", *flags.split(), "--out", str(folder)]):
            return 1
    warm, flags = tasks_of(agent, "warm", out), agent.warm
    if agent.texts:
        if not (file := out / "lessons.jsonl").is_file():
            write_demonstrations(file, Lessons(open_tasks(warm)).draw(agent.texts))
        flags += f" --teacher {file}"
    shipped = train("sft", agent, flags, agent.start, warm, out / "warm")
    policies = {"untrained": BASE, "warm-up": str(shipped)}
    if args.stage == "learn":
        tasks = tasks_of(agent, agent.learn_on, out)
        shipped = train("grpo", agent, agent.learn, str(shipped), tasks, out / "learn")
        policies["learned"] = str(shipped)
    tests = {
        name: test._replace(tasks=tasks_of(agent, test.tasks, out)) for name, test in agent.tests.items()
    }
    if args.hotpotqa and agent.env == "MemChunkQA-v0":
        tests["HotpotQA"] = Test(args.hotpotqa, LONG, samples=1)
    scores = {
        f"{name}, {stage}": score(agent, policy, test, out / "scores" / f"{name}-{stage}")
        for name, test in tests.items()
        for stage, policy in policies.items()
    }
    ship(args.agent, agent, shipped, hours(out), scores)
    return 0


def tasks_of(agent: Agent, name: str, out: Path) -> str:
    """A task set by name: the folder of a built one, or a bundled one."""
    return str(out / "tasks" / name) if name in agent.worlds else name


def train(learner: str, agent: Agent, flags: str, model: str, tasks: str, out: Path) -> Path:
    """Run a learner to its end, resuming if it stopped; return its adapter."""
    given = json.dumps({**agent.env_args, "tasks": tasks})
    where = ["--env", agent.env, "--env-args", given, "--out", str(out)]
    command = ["--model", model, "--dtype", "bfloat16", *where, *SHARED.split(), *flags.split()]
    launch = [
        "torch.distributed.run",
        "--nproc-per-node",
        str(PROCESSES),
        "-m",
        *("memenvs", "train", learner),
    ]
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // PROCESSES))}
    if subprocess.run([sys.executable, "-m", *launch, *command], env={**os.environ, **threads}).returncode:
        raise SystemExit(1)
    return out / "last" / "policy"


def score(agent: Agent, policy: str, test: Test, out: Path) -> dict[str, Any]:
    """Means of an evaluation with their 95% intervals; the untrained model plays each task once."""
    samples = 1 if policy == BASE else test.samples
    summary = evaluate(
        agent.env,
        f"hf:{policy}",
        env_args={**agent.env_args, **test.env_args, "tasks": test.tasks},
        samples=samples,
        concurrency=32,
        out=out,
        options=ModelOptions(temperature=test.temperature, max_new_tokens=256, dtype="bfloat16"),
    )
    shown = {
        name: [round(float(part), 4) for part in summary.metrics[name].interval]
        for name in ("em", "f1", "format")
    }
    setting = {"tasks": Path(test.tasks).name, "env_args": dict(test.env_args)}
    return {**setting, "samples": samples, "temperature": test.temperature, **shown}


def hours(out: Path) -> dict[str, float]:
    """Hours of each trained stage, from its log."""
    logs = {stage: out / stage / "log.jsonl" for stage in ("warm", "learn")}
    return {
        stage: round(sum(json.loads(line)["seconds"] for line in log.read_text().splitlines()) / 3600, 2)
        for stage, log in logs.items()
        if log.is_file()
    }


def ship(name: str, agent: Agent, policy: Path, hours: dict[str, float], scores: dict[str, Any]) -> None:
    """Copy an adapter and its card to the shipped data."""
    only = "" if "learn" in hours else " --stage warm"
    card = {
        "model": BASE,
        "start": agent.start,
        "env": agent.env,
        "env_args": dict(agent.env_args),
        "command": f"python -m research.agent {name} runs/{name}{only}",
        "worlds": dict(agent.worlds),
        "warm-up": agent.warm,
        "texts": agent.texts,
        "learning": agent.learn if "learn" in hours else "",
        "hours": hours,
        "scores": scores,
    }
    with whole_folder(bundled("world-train").parent / f"smollm2-{name}") as fresh:
        for file in ("adapter_model.safetensors", "adapter_config.json", "policy.json"):
            shutil.copyfile(policy / file, fresh / file)
        write_card(fresh, AGENT, card)


if __name__ == "__main__":
    sys.exit(main())
