"""Bytes of environments, tasks and records; one task set in many processes; a large set built and opened.

python -m benchmarks.memory [--environments 10000] [--tasks 100000] [--documents 0] [--processes 16]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import gymnasium as gym

from benchmarks import reading
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--environments", type=int, default=10_000, help="in one process")
    parser.add_argument("--tasks", type=int, default=100_000, help="of 200 documents, built and opened")
    parser.add_argument(
        "--documents", type=int, default=0, help="of a sentence each, for the set to draw from"
    )
    parser.add_argument("--processes", type=int, default=16, help="that open the same set")
    args = parser.parse_args()
    for name in ENV_IDS:
        print(f"{name}: {bytes_of(name) / 1e3:,.1f} kB an environment beside others", flush=True)
    before, started = resident(), time.process_time()
    venv = TextVectorEnv([lambda: gym.make("MemChunkQA-v0")] * args.environments)
    venv.reset(seed=0)
    venv.step(["The mayor is Vino Nokemi."] * args.environments)
    print(
        f"{args.environments:,} MemChunkQA-v0, reset and stepped: {(resident() - before) / 1e6:,.0f} MB, "
        f"{time.process_time() - started:.1f} CPU s"
    )
    venv.close()
    with tempfile.TemporaryDirectory() as folder:
        turns, size = record(Path(folder) / "episodes.jsonl")
        print(f"an episode of reading of {turns} turns: {size:,} bytes a record")
        reading.TASKS = args.tasks
        cpu = processor()
        more = [(f"Mile {i}", f"The stone at mile {i} is {i % 97} feet high.") for i in range(args.documents)]
        tasks, seconds = reading.build(None, Path(folder) / "set", more)
        cpu = processor() - cpu
        print(
            f"{args.tasks:,} tasks of 200 of {tasks.n_documents:,} documents: built in {seconds:.0f} s "
            f"({cpu:.0f} CPU s)",
            flush=True,
        )
        for one in (open_tasks("world-train"), tasks):
            of_tasks, of_documents = (
                one.card.files[f"{name}.arrow"]["bytes"] for name in ("tasks", "documents")
            )
            print(
                f"{one.name}: {of_tasks / len(one):,.0f} bytes a task, "
                f"{of_documents / one.n_documents:,.0f} a document"
            )
        in_processes(tasks, args.processes)


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
    command, environment = (
        [sys.executable, "-c", READ, str(tasks.path)],
        {**os.environ, "MEMENVS_VERIFY": "0"},
    )
    for number in (1, count):
        processes = [
            subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for _ in range(number)
        ]
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


def resident() -> int:
    """Bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def processor() -> float:
    """Seconds of processor time of this process and its ended children."""
    uses = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in uses)


if __name__ == "__main__":
    main()
