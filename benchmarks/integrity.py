"""The cost of checking a task set's SHA-256 when it is opened, against opening it unchecked.

python -m benchmarks.integrity [--gigabytes 4]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import print_head, print_row, run
from memenvs.build.draft import Documents, Draft
from memenvs.build.write import write_task_set
from memenvs.core.files import VERIFY
from memenvs.data import bundled
from memenvs.tasks.taskset import Card, Layout, Task, open_tasks
from memenvs.tasks.tokens import load_tokenizer

RUNS = 5
OPEN = """
import sys, time
from memenvs.tasks.taskset import open_tasks
open_tasks("niah")  # imports and page cache that both ways share
started = time.perf_counter()
open_tasks(sys.argv[1])
print(time.perf_counter() - started)
"""


def main(gigabytes: float = 4.0) -> None:
    """Measure and print one table."""
    with tempfile.TemporaryDirectory() as folder:
        large = large_set(Path(folder) / "set", gigabytes)
        print_head("set", "GB", "unchecked, s", "checked, s", "more, s")
        for name, path in {"world-train": bundled("world-train"), "large": large}.items():
            size = sum(file.stat().st_size for file in path.iterdir()) / 1e9
            without, checked = (median(path, switch) for switch in ("0", "1"))
            print_row(name, *(f"{one:.4f}" for one in (size, without, checked, checked - without)))


def large_set(out: Path, gigabytes: float) -> Path:
    """A set of this many gigabytes: documents of a megabyte, ten a task."""
    tokenizer = load_tokenizer("world")
    prose = "\n".join(open_tasks("world-train").document_texts(range(500)))
    text = (prose * (1_000_000 // len(prose) + 1))[:1_000_000]
    one = Documents.tokenized([("", text)], tokenizer)
    count = int(gigabytes * 1e9 / (len(text.encode()) + one.gaps[0].nbytes))
    documents = Documents([""] * count, [text] * count, one.gaps * count)
    tasks = [
        Task(f"t{i}", "Which?", (("this",),), tuple(range(i, i + 10)), (i,)) for i in range(0, count - 10, 10)
    ]
    return write_task_set(out, Draft(documents, tasks, Layout()), Card("made"), tokenizer).path


def median(path: Path, switch: str) -> float:
    """Seconds to open a set for the first time in a process."""
    command, environment = [sys.executable, "-c", OPEN, str(path)], {**os.environ, VERIFY: switch}
    return statistics.median(
        float(subprocess.check_output(command, env=environment, text=True)) for _ in range(RUNS)
    )


if __name__ == "__main__":
    run(main)
