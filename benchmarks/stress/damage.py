"""Damaged files of ours for as long as you like: every reader answers with its result or with one line.

`python -m benchmarks.stress.damage --tries 5000` changes bytes and values of files that commands read
(episodes, settings, results, logs, cards, arguments, suites), one at a time, and runs the commands that read
them. It fails where one raises, or reports an error in more than a line or without the file's name and line.
`make soak` runs it. MEMENVS_VERIFY=0 lets cards through whose seal no longer fits.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import run
from memenvs import evaluate
from memenvs.commands import main as main_command
from memenvs.core.files import write_json, write_text
from memenvs.data import bundled
from memenvs.retrieval.build import build_index
from memenvs.tasks import taskset

VALUES = [None, True, False, 0, -1, 7, 10**30, 0.5, -1e308, float("nan"), float("inf"), "", "x", "\ud800"]
VALUES += ["0", [], [None], [[]], [0, 1], {}, {"a": 1}, [["x"]], [{}], {"": None}, [1, 2, 3, 4]]
SCORE = {"metric": "em", "mean": 0.5, "low": 0.2, "high": 0.8, "tasks": 2, "failed": 0}
SUITE = {"suite": "small", "version": 2, "samples": 1, "date": "", "memenvs": "0", "scores": {"part": SCORE}}


@contextlib.contextmanager
def inside(folder: str | Path) -> Iterator[None]:
    """Make a folder the working directory."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def make_runs(folder: Path) -> None:
    """Two evaluations with signals, results of a suite, two training runs, a task set and an index."""
    options: dict[str, Any] = {"tasks": "0:2", "methods": ["InfoMem"], "scorer": "lexical"}
    shutil.copytree(bundled("world-test"), folder / "set")
    with inside(folder):
        for policy in ("gold", "lexical"):
            reading = {"tasks": "set", "chunk_size": 1200}
            evaluate("MemChunkQA-v0", policy, env_args=reading, out=f"runs/{policy}", **options)
            evaluate("MemSearchQA-v0", policy, tasks="0:2", out=f"suites/{policy}/part")
            write_json(Path(f"suites/{policy}/suite.json"), {**SUITE, "policy": policy})
        for seed in range(2):
            args = {"learner": "grpo", "model": "none", "env": "MemSokoban-v0", "seed": seed, "env_args": {}}
            write_json(Path(f"train/{seed}/args.json"), {**args, "methods": [["InfoMem", {}]]})
            rows = [{"step": step, "time": 1.5, "return": 0.5} for step in range(3)]
            write_text(Path(f"train/{seed}/log.jsonl"), "".join(f"{json.dumps(row)}\n" for row in rows))
        documents = [{"id": str(row), "contents": f"title {row}\na text"} for row in range(20)]
        write_text(Path("corpus.jsonl"), "".join(f"{json.dumps(row)}\n" for row in documents))
        build_index("corpus.jsonl", "index", "lexical")


PLAY = "evaluate run --env MemChunkQA-v0 --env-args tasks=set chunk_size=1200"
RUN = f"{PLAY} --methods InfoMem --scorer lexical"
SEARCH = "play --env MemSearchQA-v0 --env-args tasks=set retriever=lexical:index"
COMMANDS = {
    "runs/gold/episodes.jsonl": (
        "view runs/gold --terminal",
        "view runs/gold --terminal --episode 0",
        "view runs/gold runs/lexical --out page.html",
        "evaluate compare runs/gold runs/lexical",
        "evaluate signals InfoMem runs/gold",
        "evaluate by hops runs/gold",
        f"{PLAY} --policy replay:runs/gold --task 0:2",
        f"{RUN} --policy gold --task 0:2 --out runs/gold",
    ),
    "runs/gold/results.json": (
        "evaluate compare runs/gold runs/lexical",
        "evaluate by type runs/gold",
        "evaluate by depth runs/gold",
        "evaluate signals InfoMem runs/lexical runs/gold",
        "evaluate table memagent runs",
    ),
    "runs/gold/setting.json": (
        "view runs/gold --out page.html",
        f"{RUN} --policy gold --task 0:2 --out runs/gold",
    ),
    "runs/gold/cost.json": (
        "view runs/gold --out page.html",
        f"{RUN} --policy gold --task 0:2 --out runs/gold",
    ),
    "suites/gold/suite.json": ("evaluate compare suites/gold suites/lexical",),
    "train/0/log.jsonl": ("view train --curves --out curves.svg",),
    "train/0/args.json": ("view train --curves --out curves.svg",),
    "set/card.json": (f"{RUN} --policy gold --task 0:1", "evaluate by hops runs/gold", SEARCH),
    "index/index.json": (SEARCH,),
    "index/corpus/corpus.json": (SEARCH,),
    "index/source.json": ("build index --corpus corpus.jsonl --index lexical --out index",),
}
"""Commands by the file that they read, both in a folder of `make_runs`."""
SLOW = {
    "train/0/args.json": ("train --recipe train/0/args.json",),  # it loads torch
    "runs/gold/results.json": ("evaluate compare runs/lexical runs/gold --out comparison",),
}
"""More of them."""


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value with a key of it, or an index."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in [(value, key), *places(value[key])]]


def damaged(text: bytes, rng: np.random.Generator) -> bytes:
    """The text with one byte, or one value of its JSON, changed."""
    if rng.random() < 0.3:
        start = int(rng.integers(len(text)))
        end = start + int(rng.choice([0, 1, 1, 5, len(text)]))
        return text[:start] + rng.choice([b"", b"\xff", b'"', b"0", b"}", b"\n", b"e9"]) + text[end:]
    value = json.loads(text)
    container, key = (found := places(value))[int(rng.integers(len(found)))]
    kind = rng.random()
    if kind < 0.25:
        del container[key]
    elif kind < 0.35 and isinstance(container, dict):
        container[f"{key}x"] = container.pop(key)
    elif kind < 0.4 and isinstance(container, list):
        container.append(container[key])
    else:
        container[key] = VALUES[int(rng.integers(len(VALUES)))]
    end = b"\n" if text.endswith(b"\n") else b""
    return (json.dumps(value) if rng.random() < 0.9 else json.dumps(value, indent=1)).encode() + end


def damage(path: Path, rng: np.random.Generator) -> None:
    """Damage a line of a file, or a file that is one value."""
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True) if path.suffix == ".jsonl" else [whole]
    number = int(rng.integers(len(lines)))
    lines[number] = damaged(lines[number], rng)
    path.write_bytes(b"".join(lines))


def fault(command: str, name: str) -> str:
    """What a command does wrong about a damaged file; empty for a result or an error in one line."""
    out, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            status = main_command(command.split())
    except SystemExit as end:
        status = end.code
    except Exception:
        return traceback.format_exc(limit=-3)
    line = errors.getvalue()
    if status == 2 and (line.count("error: ") != 1 or line.partition("error: ")[2].count("\n") > 1):
        return f"more than a line: {line}"
    wanted = [name, Path(name).parent.name] if name.endswith(".json") else [f"{Path(name).name}:"]
    fits = (
        command.startswith("train") or "cannot be compared" in line
    )  # a valid file that says something else
    if status == 2 and not (fits or any(part in line for part in wanted)):
        return f"no file: {line}"
    return ""


def soak(folder: Path, tries: int, seed: int, commands: dict[str, Sequence[str]]) -> Counter[str]:
    """Damage files and run their commands in the working directory, a copy of `folder`.

    Returns:
        How often each fault was seen.
    """
    rng, faults = np.random.default_rng(seed), Counter[str]()
    for number in range(tries):
        name = list(commands)[number % len(commands)]
        command = str(rng.choice(commands[name]))
        top = Path(name).parts[0]
        damage(Path(name), rng)
        taskset._open_set.cache_clear()
        if text := fault(command, name):
            faults[f"{command}\n{text}"] += 1
        shutil.rmtree(top)
        shutil.copytree(folder / top, top)
    return faults


def main(tries: int = 5000, seed: int = 0, only: str = "") -> None:
    """Damage files for some tries, and say what went wrong."""
    commands: dict[str, Sequence[str]] = {
        name: [*lines, *SLOW.get(name, ())] for name, lines in COMMANDS.items() if only in name
    }
    with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as copy:
        make_runs(Path(whole))
        shutil.copytree(whole, copy, dirs_exist_ok=True)
        with inside(copy):
            faults = soak(Path(whole), tries, seed, commands)
    for text, times in faults.most_common():
        sys.stdout.write(f"{times} times: {text}\n")
    sys.stdout.write(f"{tries} files damaged, {sum(faults.values())} faults\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    run(main)
