"""Bytes of environments, tasks and records; one task set in many processes; a large set built and opened.

python -m benchmarks.memory [--environments 10000] [--tasks 100000] [--documents 0] [--processes 16]
python -m benchmarks.memory --build 1000 10000 100000

So many environments in one process; tasks of 200 documents, drawn also from so many documents of a sentence;
processes that open the same set. `--build` only builds sets of so many needle tasks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import gymnasium as gym

from benchmarks import reading
from benchmarks.harness import CPU, cpu_seconds, resident, run
from memenvs import ENV_IDS, TextVectorEnv, collect, open_tasks
from memenvs.core.episode_file import EpisodeWriter
from memenvs.models import ScriptedPolicy
from memenvs.tasks.taskset import TaskSet

SOME = 32  # environments of each id
READ = """
import sys, time
from memenvs import open_tasks
started = time.process_time()
tasks = open_tasks(sys.argv[1])
seconds = time.process_time() - started
for i in range(0, len(tasks), 97):
    tasks.texts(tasks[i].documents)
print(seconds, flush=True)
sys.stdin.readline()
shares = {"Rss:": 0, "Pss:": 0}
for line in open("/proc/self/smaps"):
    first, *rest = line.split()
    if "-" in first:
        counted = line.rstrip().endswith(".arrow")
    elif counted and first in shares:
        shares[first] += int(rest[0])
print(*shares.values(), flush=True)
sys.stdin.readline()
"""


def main(
    environments: int = 10_000,
    tasks: int = 100_000,
    documents: int = 0,
    processes: int = 16,
    build: tuple[int, ...] = (),
) -> None:
    """Measure and print."""
    for count in build:
        build_needles(count)
    if build:
        return
    for name in ENV_IDS:
        print(f"{name}: {bytes_of(name) / 1e3:,.1f} kB an environment beside others", flush=True)
    before, started = resident(), CPU()
    venv = TextVectorEnv([lambda: gym.make("MemChunkQA-v0")] * environments)
    venv.reset(seed=0)
    venv.step(["The mayor is Vino Nokemi."] * environments)
    print(
        f"{environments:,} MemChunkQA-v0, reset and stepped: {resident() - before:,.0f} MB, "
        f"{CPU() - started:.1f} CPU s"
    )
    venv.close()
    with tempfile.TemporaryDirectory() as folder:
        turns, size = record(Path(folder) / "episodes.jsonl")
        print(f"an episode of reading of {turns} turns: {size:,} bytes a record")
        reading.TASKS = tasks
        cpu = cpu_seconds()
        more = [(f"Mile {i}", f"The stone at mile {i} is {i % 97} feet high.") for i in range(documents)]
        task_set, seconds = reading.build("", Path(folder) / "set", more)
        cpu = cpu_seconds() - cpu
        print(
            f"{tasks:,} tasks of 200 of {task_set.n_documents:,} documents: built in {seconds:.0f} s "
            f"({cpu:.0f} CPU s)",
            flush=True,
        )
        for one in (open_tasks("world-train"), task_set):
            of_tasks, of_documents = (
                one.card.files[f"{name}.arrow"]["bytes"] for name in ("tasks", "documents")
            )
            print(
                f"{one.name}: {of_tasks / len(one):,.0f} bytes a task, "
                f"{of_documents / one.n_documents:,.0f} a document"
            )
        in_processes(task_set, processes)


def build_needles(count: int) -> None:
    """Build needles of 8,192 tokens in a process of its own; its processor time and peak memory."""
    with tempfile.TemporaryDirectory() as folder:
        size = ("--tokens", "8192", "--num-tasks", str(count), "--out", f"{folder}/set")
        command = [sys.executable, "-m", "memenvs", "build", "niah", *size]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        print(
            f"{count:,} tasks: {used.ru_maxrss / 1e3:,.0f} MB at most, "
            f"{used.ru_utime + used.ru_stime:.0f} CPU s",
            flush=True,
        )


def bytes_of(name: str) -> float:
    """Bytes of one more environment, reset, beside others of its kind."""
    first = gym.make(name)
    first.reset(seed=0)
    tracemalloc.start()
    made = [gym.make(name) for _ in range(SOME)]
    for seed, env in enumerate(made):
        env.reset(seed=seed)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken / SOME


def record(path: Path) -> tuple[int, int]:
    """Turns of an episode, and bytes of its record on disk."""
    policy = ScriptedPolicy(lambda prompt: "The mayor is Vino Nokemi.")
    (episode,) = collect("MemChunkQA-v0", policy, [0])
    with EpisodeWriter(path) as writer:
        writer.write(episode)
    return len(episode.turns), path.stat().st_size


def in_processes(tasks: TaskSet, count: int) -> None:
    """Open and read a set in several processes; what its files take in all of them, and alone."""
    size = sum(facts["bytes"] for facts in tasks.card.files.values()) / 1e6
    command = [sys.executable, "-c", READ, str(tasks.path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    pipes["env"] = {**os.environ, "MEMENVS_VERIFY": "0"}
    for number in (1, count):
        processes = [subprocess.Popen(command, **pipes) for _ in range(number)]
        opened = [float(one.stdout.readline()) for one in processes]  # all have read before any is measured
        mapped = []
        for one in processes:
            one.stdin.write("\n")
            one.stdin.flush()
            mapped.append([int(kb) / 1e3 for kb in one.stdout.readline().split()])
        for one in processes:
            one.communicate("\n")
        rss, pss = (sum(column) for column in zip(*mapped, strict=True))
        print(
            f"{number} processes, {size:,.0f} MB of files: {rss:,.0f} MB mapped, {pss:,.0f} MB of memory; "
            f"opened unchecked in {min(opened) * 1e3:.1f} CPU ms"
        )


if __name__ == "__main__":
    run(main)
