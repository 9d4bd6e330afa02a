"""Flat, HNSW and IVF-PQ over N vectors: size, memory, latency, recall; a table to extrapolate from.

    python benchmarks/retrieval_indexes.py --dense DIR --questions nq_open_gold.jsonl.gz --sizes 11043 100000

Additional vectors are those of the index with noise (cosine about 0.8 to the original), so that they are as
dense as real ones. Queries are real questions.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.retrieval.dense import (
    VECTORS,
    DenseRetriever,
    Nearest,
    build_faiss,
    index_settings,
    open_faiss,
    recall,
)

QUERIES, K = 200, 10
COLUMNS = ("N", "index", "build, s", "file, MB", "own MB", "one query, ms", "by 64, queries/s", "recall@10")


class Case(NamedTuple):
    """An index to measure, over vectors in a file."""

    index: str
    vectors: Path
    queries: NDArray[np.float32]


def crowd(vectors: NDArray[np.float32], count: int, path: Path) -> None:
    """Write `count` unit vectors: the given ones, then noisy copies of some of them."""
    rng = np.random.default_rng(0)
    file = np.lib.format.open_memmap(path, "w+", np.float32, (count, vectors.shape[1]))
    file[: len(vectors)] = vectors[:count]
    for start in range(len(vectors), count, 65_536):
        rows = rng.choice(len(vectors), min(65_536, count - start))
        noise = rng.normal(size=(len(rows), vectors.shape[1])) * 0.75 / np.sqrt(vectors.shape[1])
        noisy = vectors[rows] + noise
        file[start : start + len(rows)] = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
    file.flush()


def resident() -> int:
    """Megabytes that only this process uses (Linux)."""
    return int(re.findall(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())[0]) // 1024


def speed(nearest: Nearest, queries: NDArray[np.float32]) -> tuple[float, float]:
    """Median milliseconds of a single query, and queries a second in batches of 64."""
    nearest.search(queries[:8], K)
    single = []
    for row in range(64):
        began = time.perf_counter()
        nearest.search(queries[row : row + 1], K)
        single.append(1000 * (time.perf_counter() - began))
    began = time.perf_counter()
    for start in range(0, len(queries), 64):
        nearest.search(queries[start : start + 64], K)
    return statistics.median(single), len(queries) / (time.perf_counter() - began)


def seconds_to_build(case: Case) -> float:
    """Build the index of a case next to its vectors."""
    vectors = np.load(case.vectors, mmap_mode="r").view(np.ndarray)
    began = time.perf_counter()
    if case.index != "flat":
        how = index_settings(case.index, *vectors.shape)
        build_faiss(case.index, vectors, how, case.vectors.with_suffix("." + case.index))
    return time.perf_counter() - began


def measure(case: Case, seconds: float) -> str:
    """The table row of a case whose index is built."""
    vectors = np.load(case.vectors, mmap_mode="r").view(np.ndarray)
    how = index_settings(case.index, *vectors.shape)
    rank = np.arange(len(vectors), dtype=np.uint32)
    path = case.vectors.with_suffix("." + case.index)
    before = resident()
    mine = Nearest(
        open_faiss(case.index, vectors, how, path), vectors, rank, case.index == "flat", how.get("rescore", 0)
    )
    exact = Nearest(open_faiss("flat", vectors, {}, path), vectors, rank, True)
    latency, rate = speed(mine, case.queries)
    size = (path if case.index != "flat" else case.vectors).stat().st_size / 1e6
    cells = (
        f"{len(vectors):,}",
        case.index,
        f"{seconds:.1f}",
        f"{size:.1f}",
        f"{resident() - before}",
        f"{latency:.2f}",
        f"{rate:,.0f}",
        f"{recall(mine, exact, case.queries, K):.3f}",
    )
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Index kinds by size")
    parser.add_argument("--dense", required=True)
    parser.add_argument("--questions", required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[11_043, 100_000])
    args = parser.parse_args()
    with gzip.open(args.questions, "rt", encoding="utf-8") as lines:
        questions = [json.loads(line)["question"] for line in lines][:QUERIES]
    queries = DenseRetriever(args.dense, device="cpu").encoder.queries(questions)
    real = np.load(Path(args.dense) / VECTORS, mmap_mode="r")
    print("| " + " | ".join(COLUMNS) + " |\n" + "| --- " * len(COLUMNS) + "|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for size in args.sizes:
            path = Path(folder) / f"{size}.npy"
            crowd(real, size, path)
            for index in ("flat", "hnsw", "ivfpq"):
                case = Case(index, path, queries)
                seconds = alone(seconds_to_build, case)
                print(alone(measure, case, seconds), flush=True)


def alone(work: Callable[..., Any], *arguments: object) -> Any:
    """Run a function in its own process, so that its memory is its own; return its result."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


if __name__ == "__main__":
    main()
