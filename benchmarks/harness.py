"""What the benchmarks share: clocks, runs in turns, memory, a process of its own, tables, small models.

costs = in_turns({"plain": plain, "ours": ours}, rounds=3)
print_head("way", "CPU s")
for way, seconds in costs.items():
    print_row(way, f"{min(seconds):.2f}")
"""

from __future__ import annotations

import ctypes
import gc
import gzip
import json
import multiprocessing
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from memenvs.core.arguments import parse

if TYPE_CHECKING:
    import transformers

CPU = time.process_time  # other work on the machine does not count
Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T")


def run(main: Callable[..., int | None]) -> NoReturn:
    """Run a benchmark with the options of the command line; its help shows the docstring of the module."""
    module: Any = sys.modules["__main__"]
    sys.exit(parse(main, sys.argv[1:], f"python -m {module.__spec__.name}", about=module.__doc__)())


def timed(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that some work takes by a clock, such as `CPU` on a busy machine."""
    started = clock()
    work()
    return clock() - started


def fastest(work: Callable[[], object], rounds: int = 3) -> float:
    """Processor seconds of some work, the fastest of some rounds."""
    return min(timed(work, CPU) for _ in range(rounds))


def in_turns(
    ways: Mapping[Key, Callable[[], object]], rounds: int, clock: Callable[[], float] = CPU
) -> dict[Key, list[float]]:
    """Seconds of each way in each round."""
    seconds: dict[Key, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        # Each way comes first as often as last, so that a machine that gets busier slows all of them down.
        for name in list(ways)[:: 1 if number % 2 else -1]:
            seconds[name].append(timed(ways[name], clock))
    return seconds


def cpu_seconds() -> float:
    """Processor seconds of this process and its ended children."""
    uses = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def resident() -> float:
    """Megabytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def anonymous() -> float:
    """Megabytes of this process that nothing else can use, so without mapped files (Linux)."""
    return int(re.findall(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[0]) * 1024 / 1e6


def peak() -> float:
    """Gigabytes of this process that were in memory at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class Cost(NamedTuple):
    """Some work's result, its processor and wall-clock seconds, and the most megabytes that it added."""

    result: Any
    cpu: float
    clock: float
    memory: float


def cost(work: Callable[[], object], memory: Callable[[], float] = resident, every: float = 0.005) -> Cost:
    """Do some work, and watch its memory meanwhile, each time after some seconds."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # otherwise it may reuse memory that earlier work freed
    most, before, done = 0.0, memory(), threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(every):
            most = max(most, memory() - before)

    watching = threading.Thread(target=watch)
    watching.start()
    cpu, clock = CPU(), time.perf_counter()
    result = work()
    cpu, clock = CPU() - cpu, time.perf_counter() - clock
    done.set()
    watching.join()
    return Cost(result, cpu, clock, most)


def alone(work: Callable[..., T], *arguments: object) -> T:
    """Run a function of a module in a process of its own, so that its memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def print_head(*columns: str) -> None:
    """Print the head of a table in Markdown."""
    print_row(*columns)
    print("| --- " * len(columns) + "|")


def print_row(*cells: object) -> None:
    """Print a row at once, as the next one may take minutes."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def processor() -> str:
    """The name of the processor and the number of its cores."""
    name = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{name[1] if name else '?'}, {os.cpu_count()} cores"


def read_gzip(file: str) -> list[dict[str, Any]]:
    """The records of a gzipped file of JSON Lines, such as the questions of NQ."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def random_qwen3(**shape: Any) -> transformers.Qwen3ForCausalLM:
    """A random Qwen3 with tied embeddings and no token that ends a reply, by settings of its config."""
    import torch
    import transformers

    torch.manual_seed(0)
    ends = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    config = transformers.Qwen3Config(**ends, tie_word_embeddings=True, **shape)
    return transformers.Qwen3ForCausalLM(config).eval()


def world_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """The bundled tokenizer of the world, as transformers has tokenizers."""
    import transformers

    from memenvs.data import bundled

    return transformers.PreTrainedTokenizerFast(tokenizer_file=str(bundled("tokenizers/world.json")))
