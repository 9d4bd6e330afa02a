"""RULER-HotpotQA and chunked reading, against tokenising every whole sample.

python -m benchmarks.reading [--source hotpot_dev.json]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import gymnasium as gym

import memenvs  # noqa: F401
from benchmarks.harness import CPU, print_head, print_row, run, timed
from memenvs.build.examples import among_distractors
from memenvs.build.readers.hotpotqa import read_hotpotqa
from memenvs.build.worldgen import WorldOptions, world
from memenvs.build.write import write_task_set
from memenvs.tasks.context import Reader
from memenvs.tasks.taskset import Card, TaskSet
from memenvs.tasks.tokens import load_tokenizer, pack

TASKS, DOCUMENTS, PLAIN_SAMPLES = 32_768, 200, 20
TOKENIZER = load_tokenizer("world")
MEMORY = "The mayor of the town of Talnitsa is Vino Nokemi, who was born in 1903. " * 4


def main(source: str = "") -> None:
    """Measure and print one table.

    Args:
        source: HotpotQA's JSON; by default questions of a generated world.
    """
    with tempfile.TemporaryDirectory() as folder:
        tasks, seconds = build(source, Path(folder) / "set")
        plain = plain_rate(tasks)
        ours = sum(lengths(tasks)) / seconds
        size = sum(facts["bytes"] for facts in tasks.card.files.values()) / 1e6
        row("build, tokens/s", plain, ours, f"{len(tasks):,} tasks in {seconds:.1f} s and {size:.0f} MB")
        reading(tasks)
    imports()


def build(source: str, out: Path, more: Sequence[tuple[str, str]] = ()) -> tuple[TaskSet, float]:
    """The whole build, including reading and writing; `more`: titles and texts of other documents to draw."""
    started = time.perf_counter()
    pool = read_hotpotqa(source) if source else world(WorldOptions())
    draft = among_distractors(
        pool.examples,
        tokenizer=TOKENIZER,
        split="dev",
        seed=0,
        documents=DOCUMENTS,
        count=TASKS,
        extra=[*pool.extra, *more],
        workers=2,
    )
    tasks = write_task_set(out, draft, Card("benchmark"), TOKENIZER)
    return tasks, time.perf_counter() - started


def plain_rate(tasks: TaskSet) -> float:
    """Tokens a second of assembling a sample's text and tokenising the whole of it."""
    started, tokens = time.perf_counter(), 0
    for i in range(PLAIN_SAMPLES):
        texts = tasks.document_texts(tasks[i].documents)
        text = "\n\n".join(f"Document {n}:\n{body}" for n, body in enumerate(texts, 1))
        tokens += len(TOKENIZER.backend.encode(text, add_special_tokens=False).ids)
    return tokens / (time.perf_counter() - started)


def lengths(tasks: TaskSet) -> list[int]:
    """Tokens of every task, from a sample of them."""
    reader = Reader(tasks, TOKENIZER)
    sample = [len(reader.context(tasks[i].documents).gaps) for i in range(0, len(tasks), len(tasks) // 100)]
    return [round(statistics.mean(sample))] * len(tasks)


def reading(tasks: TaskSet) -> None:
    """Reset, chunks and steps of one environment, in processor time."""
    env = gym.make("MemChunkQA-v0", tasks=str(tasks.path), disable_env_checker=True).unwrapped
    resets: list[float] = []
    steps: dict[str, list[float]] = {"100-token": [], "900-token": []}
    for task in range(200):
        resets.append(timed(lambda task=task: env.reset(options={"task": task}), CPU))  # type: ignore[misc]
        written, kind = (MEMORY, "100-token") if task % 2 else (MEMORY * 9, "900-token")
        while not env.state.end:
            steps[kind].append(timed(lambda written=written: env.step(written), CPU))  # type: ignore[misc]
    text = env._reading.context.text
    plain = timed(lambda: [pack(gaps, 5000) for gaps in TOKENIZER.gaps([text])], CPU)
    ms = statistics.median(resets) * 1e3
    row("reset and all chunks, per s", 1 / plain, 1e3 / ms, f"median {ms:.2f} ms; plain: tokenise it and cut")
    for kind, times in steps.items():
        print_row(f"step, {kind} memory", "", "", "", f"median {statistics.median(times) * 1e3:.3f} ms")


def imports() -> None:
    """Time of `import memenvs` compared with its dependencies."""

    def cost(code: str) -> float:
        runs = [timed(lambda: subprocess.run([sys.executable, "-c", code], check=True)) for _ in range(7)]
        return statistics.median(runs)

    beyond = cost("import numpy, gymnasium, memenvs") - cost("import numpy, gymnasium")
    print_row("import memenvs", "", "", "", f"{beyond:.2f} s beyond gymnasium and numpy")


def row(name: str, plain: float, ours: float, text: str) -> None:
    """One line of the table."""
    print_row(name, f"{plain:,.0f}", f"{ours:,.0f}", f"{ours / plain:,.0f}x", text)


if __name__ == "__main__":
    print_head("work", "plain", "memenvs", "ratio", "")
    run(main)
