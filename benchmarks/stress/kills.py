"""Kill what writes files, or let the disk fail, at every write; start it again; compare: `make kills`.

Each case is a command that writes below one folder. It runs once undisturbed. Then it runs again and again
in a forked process in which the n-th change of that folder (a file opened for writing, a write, a rename, …)
goes wrong in one of these ways, for every n or as many n as asked, evenly spread:

| fault | the n-th change | afterwards |
| --- | --- | --- |
| kill | does not happen: SIGKILL | |
| torn | a write gets half of its bytes to the file: SIGKILL | |
| full | a write gets half of its bytes to the file | nothing more fits on the disk (ENOSPC) |
| error | fails once (EIO) | |
| limit | no file may be longer than so many bytes, whoever writes it (a library in C, too) | |
| moment | | SIGKILL of the process and its workers after a random time |

After each, no visible file may be half-written. An error must be one line and leave no temporary file. Then
the command runs undisturbed and must end with the same files as the first run.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from chat_stub import ChatStub

from benchmarks.harness import run

FAULTS = ("kill", "torn", "full", "error", "limit", "moment")
CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.symlink", "os.truncate"}
TAKES_ROOM = {"open", "write", "os.mkdir", "os.symlink"}
LONGEST = 300.0  # seconds of a run, which then hangs
VOLATILE = re.compile(rb'"(time|[a-z_/]*seconds[a-z_]*|[a-z_/]*per_second)": ?[-0-9.e+]+')


class Case(NamedTuple):
    """A command, given the folder that it may change, and what fills that folder before."""

    run: Callable[[Path], int]
    prepare: Callable[[Path], int] = lambda folder: 0


class Faults:
    """Counts the changes below a folder in this process; with a fault the n-th goes wrong."""

    def __init__(self, root: Path, fault: str = "", n: int = 0) -> None:
        self.root, self.fault, self.n, self.count = f"{root}/", fault, n, 0
        self.full = False

    def install(self) -> None:
        """From now on, until the process ends."""
        sys.addaudithook(self._audit)
        builtins.open = io.open = self._open  # type: ignore[assignment]

    def change(self, what: str) -> bool:
        """Count a change; whether half of it is to be done before `fail`."""
        self.count += 1
        if self.full and what in TAKES_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.count != self.n:
            return False
        if self.fault in ("torn", "full") and what == "write":
            return True
        self.fail(what)
        return False

    def fail(self, what: str) -> None:
        """Do what the fault says."""
        if self.fault in ("kill", "torn"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "full":
            self.full = True
            if what in TAKES_ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.fault == "error":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _inside(self, path: Any, folder: int = -1) -> bool:
        if isinstance(path, int):
            path = os.readlink(f"/proc/self/fd/{path}")
        elif folder >= 0:
            path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), os.fsdecode(path))
        return os.path.abspath(os.fsdecode(path)).startswith(self.root)

    def _audit(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = given
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and path is not None and self._inside(path):
                self.change("open")
        elif event in CHANGES:
            path, folder = given[0], given[-1]
            if event == "os.symlink":
                path = given[1]
            if event in ("os.rename", "os.truncate"):
                folder = -1
            if self._inside(path, folder):
                self.change(event)

    def _open(self, file: Any, mode: str = "r", buffering: int = -1, *args: Any, **more: Any) -> Any:
        """As `io.open`, with writes that are counted."""
        if not set(mode) & set("wax+") or isinstance(file, int) or more.get("opener"):
            return _io_open(file, mode, buffering, *args, **more)
        raw = _File(file, mode.replace("b", "").replace("t", ""))
        raw.faults = self if self._inside(file) else None
        binary: Any = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
        if "b" in mode:
            return raw if buffering == 0 else binary
        text = io.TextIOWrapper(binary, *args, **more)
        text.mode = mode  # type: ignore[misc]
        return text


class _File(io.FileIO):
    """A file whose writes and truncations are counted."""

    faults: Faults | None = None

    def write(self, data: Any) -> int:  # type: ignore[override]
        if self.faults and self.faults.change("write"):
            super().write(memoryview(data)[: len(data) // 2])
            self.faults.fail("write")
        return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        if self.faults:
            self.faults.change("truncate")
        return super().truncate(size)


_io_open = io.open


class Outcome(NamedTuple):
    """How a forked run ended: its exit status (negative: a signal), its error stream, changes, seconds."""

    status: int
    said: str
    count: int
    seconds: float


def forked(case: Case, folder: Path, fault: str = "", n: float = 0) -> Outcome:
    """Run a case in a process of its own that shares what this one has imported."""
    began, said = time.monotonic(), bytearray()
    ours, theirs = os.pipe()  # unlike a file it has no limit
    sys.stdout.flush()
    if not (pid := os.fork()):
        status = 70
        try:
            os.setpgid(0, 0)
            os.dup2(theirs, 1)
            os.dup2(theirs, 2)
            faults = Faults(folder, fault, int(n))
            if fault == "limit":
                resource.setrlimit(resource.RLIMIT_FSIZE, (int(n), -1))
            elif fault != "moment":
                faults.install()
            status = case.run(folder)
            sys.stderr.write(f"\n{faults.count}")
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    os.setpgid(pid, pid)
    os.close(theirs)
    os.set_blocking(ours, False)
    ended = status = 0
    while not ended:
        if time.monotonic() > began + (n if fault == "moment" else LONGEST):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(BlockingIOError):
            said += os.read(ours, 65_536)
        time.sleep(0.002)
        ended, status = os.waitpid(pid, os.WNOHANG)
    seconds = time.monotonic() - began
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # workers that a killed process left
    os.set_blocking(ours, True)
    while part := os.read(ours, 65_536):
        said += part
    os.close(ours)
    text = said.decode(errors="replace")
    count = re.search(r"\n(\d+)\n?$", text)
    return Outcome(os.waitstatus_to_exitcode(status), text, int(count[1]) if count else 0, seconds)


def contents(folder: Path) -> dict[str, bytes]:
    """Every visible file and link below a folder, without times and seconds."""
    return {str(path.relative_to(folder)): VOLATILE.sub(b"", data) for path, data in visible(folder)}


def visible(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Files that are not hidden, nor in a hidden folder, with their bytes; of links where they lead."""
    for path in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue
        if path.is_symlink():
            yield path, os.readlink(path).encode()
        elif path.is_file():
            yield path, path.read_bytes()


def differing(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    """Names of files that are not the same."""
    return sorted(n for n in found.keys() | expected.keys() if found.get(n) != expected.get(n))


def temporary(folder: Path) -> list[str]:
    """Names of temporary files and folders."""
    return [str(path.relative_to(folder)) for path in folder.rglob(".*") if ".partial-" in path.name]


def half_written(folder: Path, sizes: dict[str, set[int]]) -> list[str]:
    """Visible files that are neither whole nor logs with an unfinished last line."""
    found = []
    for path, data in visible(folder):
        name = str(path.relative_to(folder))
        lines = data.split(b"\n")[:-1] if path.suffix == ".jsonl" else [data] * (path.suffix == ".json")
        try:
            for line in lines:
                json.loads(line)
        except ValueError:
            found.append(f"{name}: {data[-80:]!r}")
        if not lines and path.suffix != ".jsonl" and name in sizes and len(data) not in sizes[name]:
            found.append(f"{name}: {len(data)} bytes, not {sizes[name]}")
    return found


class Disturbed:
    """A case, run once undisturbed in an empty folder.

    `counts` has the runs by fault, those that did not feel it (with exit status 0), and what was wrong.
    """

    def __init__(self, name: str, case: Case, made: Path) -> None:
        self.name, self.case, self.counts = name, case, Counter[str]()
        self.before, self.folder = made / "before", made / "folder"
        self.before.mkdir()
        forked(Case(case.prepare), self.before)
        self.start_over()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            case.run(self.folder)  # what it imports and remembers is shared with the forked processes
        self.start_over()
        self.whole = forked(case, self.folder)
        assert self.whole.status == 0, (name, self.whole)
        self.expected = contents(self.folder)
        self.sizes: dict[str, set[int]] = {}
        for folder in (self.before, self.folder):
            for path, data in visible(folder):
                self.sizes.setdefault(str(path.relative_to(folder)), set()).add(len(data))

    def start_over(self) -> None:
        """Undo what a run did."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.before, self.folder, symlinks=True)

    def points(self, fault: str, kills: int, rng: random.Random) -> list[float]:
        """When a fault happens: at which changes, at which size, after how many seconds."""
        if fault == "moment":
            return [rng.uniform(0, self.whole.seconds) for _ in range(kills)]
        places = list(range(1, self.whole.count + 1))
        if fault == "limit":  # in the middle of every file, and before its last byte
            sizes = set().union(*self.sizes.values()) - {0}
            places = sorted({size // 2 for size in sizes} | {size - 1 for size in sizes})
        return sorted({float(places[len(places) * k // kills]) for k in range(kills)})

    def wrong(self, fault: str, n: float) -> list[str]:
        """Disturb a run, start it again, and say what was wrong."""
        self.start_over()
        first = forked(self.case, self.folder, fault, n)
        self.counts[fault if first.status else f"{fault} unfelt"] += 1
        found = half_written(self.folder, self.sizes)
        if first.status == 0 and (differ := differing(contents(self.folder), self.expected)):
            found.append(f"success with other files: {differ}")
        if first.status > 0:
            lines = [line for line in first.said.splitlines() if ": error: " in line]
            if first.status != 2 or len(lines) != 1 or "Traceback" in first.said:
                found.append(f"exit status {first.status}, said {first.said[-1500:]}")
            found += [f"left {place}" for place in temporary(self.folder)]
        again = forked(self.case, self.folder)
        if again.status != 0:
            found.append(f"the next start: exit status {again.status}, said {again.said[-1500:]}")
        elif differ := differing(contents(self.folder), self.expected):
            found.append(f"other files after the next start: {differ}")
        return found


def disturb(name: str, case: Case, faults: list[str], kills: int, seed: int) -> Counter[str]:
    """Run a case under each fault, and tell what was wrong (three of each fault at most)."""
    rng = random.Random(f"{seed} {name}")
    with tempfile.TemporaryDirectory(prefix="kills-") as made:
        runs = Disturbed(name, case, Path(os.path.realpath(made)))
        for fault in faults:
            told = 0
            for n in runs.points(fault, kills, rng):
                for line in runs.wrong(fault, n):
                    runs.counts["wrong"] += 1
                    told += 1
                    if told <= 3:
                        say(f"{name}, {fault} {n:g}: {line}")
        say(f"{name}: {runs.whole.count} changes, {runs.whole.seconds:.1f} s, {dict(runs.counts)}")
    return runs.counts


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def command(*arguments: str) -> Callable[[Path], int]:
    """A command of memenvs; `{}` in an argument is the folder."""

    def run(folder: Path) -> int:
        import memenvs.commands

        return memenvs.commands.main([one.replace("{}", str(folder)) for one in arguments])

    return run


def learner(name: str, models: Path, *flags: str) -> Case:
    """A learner that saves each of two steps, and then removes the first."""
    model = ["--model", str(models / "tiny"), "--env", "MemSokoban-v0", "--env-args", "max_turns=2"]
    settings = "--max-new-tokens 8 --save-every 1 --keep 2 --resume --track --out {}/run"
    return Case(command("train", name, *model, *settings.split(), *flags))


def judged(folder: Path) -> int:
    """Twelve replies of a judge, kept in its cache."""
    from memenvs.core.terminal import report_error
    from memenvs.wrappers import Judge

    with ChatStub(lambda fields: (200, fields["messages"][0]["content"] * 500)) as stub:
        judge = Judge(stub.url, "m", cache=str(folder / "cache"))
        try:
            for number in range(12):
                judge.ask(f"prompt {number}", lambda reply: [(float(len(reply)), "")])
        except OSError as error:
            return report_error("judge", error)
    return 0


def converted(folder: Path) -> int:
    """A packaged model, converted into the cache; the conversion itself writes three files."""
    from memenvs.core.terminal import report_error
    from memenvs.models import packaged

    def convert(model: Any, file: Path, fresh: Path) -> None:
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            (fresh / name).write_text(json.dumps([name] * 5000))

    packaged._convert, packaged._find = convert, lambda model: Path()
    packaged.require = lambda module, extra: None  # type: ignore[assignment]
    os.environ[packaged.CACHE] = str(folder / "cache")
    try:
        packaged.check_files(packaged.resolve("smollm2"), packaged.CONVERTED)
    except (OSError, ValueError) as error:
        return report_error("cache", error)
    return 0


def cases(models: Path) -> dict[str, Case]:
    """Every case by its name; `models` has a tiny language model and a tiny encoder."""
    world = ["build", "world", "--entities", "40", "--documents", "4", "--out", "{}/set"]
    corpus = models / "corpus.jsonl"
    index = ["build", "index", "--corpus", str(corpus), "--out", "{}/index"]
    dense = [*index, "--encoder", str(models / "encoder"), "--index"]
    evaluate = ["evaluate", "run", "--env", "MemChunkQA-v0", "--env-args", "tasks=world-test"]
    evaluated = [*evaluate, "--task", "0:6", "--policy", "lexical", "--concurrency", "3", "--out", "{}/run"]
    old = command(*world, "--num-tasks", "9", "--seed", "7")
    lexical = command(*index, "--index", "lexical")
    return {
        "world": Case(command(*world, "--num-tasks", "12", "--export", "jsonl", "hf")),
        "world over another": Case(command(*world, "--num-tasks", "12"), old),
        "world, 2 workers": Case(command(*world, "--num-tasks", "300", "--workers", "2"), old),
        "levels": Case(command("build", "sokoban", "--levels", "40", "--out", "{}/levels.npz")),
        "lexical index": Case(lexical),
        "lexical index again": Case(lexical, lexical),
        "flat index": Case(command(*dense, "flat")),
        "hnsw index over a flat one": Case(command(*dense, "hnsw"), command(*dense, "flat")),
        "evaluation": Case(command(*evaluated)),
        "grpo": learner("grpo", models, "--steps", "2", "--groups", "2", "--group-size", "2"),
        "sft": learner("sft", models, "--episodes", "4", "--batch-size", "3", "--learn-from", "all"),
        "judge": Case(judged),
        "model cache": Case(converted),
    }


def make_models(folder: Path) -> Path:
    """A tiny language model, a tiny encoder and a corpus of 600 passages, two chunks."""
    from tiny_model import save_tiny_bert, save_tiny_model

    save_tiny_model(folder / "tiny")
    save_tiny_bert(folder / "encoder")
    rng = random.Random(0)
    words = "the engine of a moth query passage compiler london night program insect".split()
    with (folder / "corpus.jsonl").open("w") as file:
        for number in range(600):
            text = " ".join(rng.choices(words, k=rng.randint(3, 12)))
            file.write(json.dumps({"id": str(number), "contents": f'"{text[:9]}"\n{text}'}) + "\n")
    return folder


def killed_ray_workers(kills: int) -> int:
    """Kill the worker of Ray under every tenth job of `map_jobs`."""
    from memenvs.core.processes import connect_ray, map_jobs

    def job(number: int) -> int:
        first = folder / str(number)
        if number % 10 == 0 and not first.exists():
            first.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number

    connect_ray()
    with tempfile.TemporaryDirectory(prefix="kills-") as made:
        folder = Path(made)
        results = list(map_jobs(job, range(10 * kills), "ray"))
    wrong = results != [number * number for number in range(10 * kills)]
    say(f"ray: {kills} workers killed under jobs, wrong: {wrong}")
    return int(wrong)


def import_everything() -> None:
    """Import what the cases need, once, before any fork."""
    import bm25s  # noqa: F401
    import faiss
    import sentence_transformers  # noqa: F401
    import torch
    import tqdm

    import memenvs.baselines.grpo
    import memenvs.baselines.sft
    import memenvs.commands.build
    import memenvs.evaluation.run  # noqa: F401

    tqdm.tqdm.set_lock(threading.RLock())  # its own is shared by forked processes, a killed one keeps it
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)


def main(
    kills: int = 100,
    case: tuple[str, ...] = (),
    fault: tuple[str, ...] = tuple(FAULTS),
    seed: int = 0,
    ray: bool = False,
) -> int:
    """Disturb the cases that were asked for; 1 if anything was wrong."""
    if ray:
        return killed_ray_workers(kills)
    import_everything()
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="kills-models-") as models:
        all_cases = cases(make_models(Path(models)))
        for name in case or all_cases:
            total += disturb(name, all_cases[name], list(fault), kills, seed)
    say(f"in all {dict(total)}, seed {seed}")
    return int(total["wrong"] > 0)


if __name__ == "__main__":
    run(main)
