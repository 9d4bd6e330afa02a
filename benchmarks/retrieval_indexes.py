"""BM25, flat, HNSW and IVF-PQ over N passages: size, memory, time, recall; then extrapolated to a larger N.

    python -m benchmarks.retrieval_indexes --dense DIR --questions nq_open_gold.jsonl.gz --sizes 11043 100000
    python -m benchmarks.retrieval_indexes --dimension 768 --sizes 10000 100000 1000000

DIR is a flat index. Vectors beyond its own are its own with noise (cosine about 0.8 to the original), so that
they crowd as real ones do; passages beyond its own are the first half of one, the second half of another and
new words, so that the vocabulary grows by Heaps' law. Queries are real questions. Without `--dense`, 2,000
random unit vectors take the place of its vectors, and 2,000 passages of 100 words drawn by Zipf's law that of
its passages; queries are vectors with noise, and five of the rarer words. Times are processor time of one
thread, so that other work does not count.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import CPU, alone, anonymous, cost, print_head, print_row, read_gzip, run, timed
from memenvs.core.optional import require
from memenvs.retrieval.build import build_index
from memenvs.retrieval.corpus import Corpus, write_corpus
from memenvs.retrieval.dense import (
    VECTORS,
    DenseRetriever,
    Nearest,
    build_faiss,
    index_settings,
    open_faiss,
    recall,
)
from memenvs.retrieval.lexical import BM25, LexicalRetriever, words
from memenvs.retrieval.protocol import Passage

QUERIES, K = 200, 10
NOT_SAID = float("nan")  # recall of BM25; and of copies: more copies of a vector than HNSW keeps candidates
MADE, WORDS, VOCABULARY = 2_000, 100, 30_000  # made passages, words in each, and different words to draw from
STOP_WORDS, ASKED = 100, 5  # the most frequent words, and the others in a made question
HEAPS = 0.65  # exponent of the vocabulary: 0.62 to 0.72 between 1,380 and 11,043 Wikipedia passages
COLUMNS = (
    *("N", "index", "build, s", "build's memory, MB", "file, MB", "own memory, MB", "one query, ms"),
    *("by 64, queries/s", "recall@10"),
)


class Case(NamedTuple):
    """An index to measure, over the vectors of a file and the passages of a folder made of them."""

    index: str
    count: int
    vectors: Path
    corpus: Path  # of the real passages
    questions: list[str]
    queries: NDArray[np.float32]

    @property
    def path(self) -> Path:
        """The file or folder of the index."""
        if self.index == "bm25":
            return self.vectors.with_suffix("") / BM25
        return self.vectors if self.index == "flat" else self.vectors.with_suffix("." + self.index)


class IndexCost(NamedTuple):
    """What an index costs, in the order of COLUMNS."""

    build: float
    build_memory: float
    size: float
    memory: float
    latency: float
    rate: float
    recall: float


GROWTH: dict[str, Callable[[float], IndexCost]] = {
    "bm25": lambda n: IndexCost(n, n**HEAPS, n, n**HEAPS, n, 1 / n, 1),
    "flat": lambda n: IndexCost(1, 1, n, 1, n, 1 / n, 1),
    "hnsw": lambda n: IndexCost(n * np.log(n), n, n, 1, np.log(n), 1 / np.log(n), 1),
    # It has 4 sqrt(N) lists, learns them from 64 vectors each in ten rounds, compares every vector with every
    # list, keeps 56 bytes of a vector of 384 dimensions (1,536 bytes) and 104 of 768, and searches 128 lists.
    "ivfpq": lambda n: IndexCost(2560 * n + n**1.5, 7000 * n**0.5 + n, n, 1, n**0.5, n**-0.5, 1),
}
"""How the costs grow with N, up to a factor."""


def crowd(vectors: NDArray[np.float32], count: int, path: Path) -> None:
    """Write `count` unit vectors: the given ones, then noisy copies of some of them."""
    rng = np.random.default_rng(0)
    file = np.lib.format.open_memmap(path, "w+", np.float32, (count, vectors.shape[1]))
    file[: len(vectors)] = vectors[:count]
    for start in range(len(vectors), count, 65_536):
        rows = rng.choice(len(vectors), min(65_536, count - start))
        file[start : start + len(rows)] = noisy(vectors[rows], rng)
    file.flush()


def noisy(vectors: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Unit vectors with a cosine of about 0.8 to the given ones."""
    moved = vectors + rng.normal(size=vectors.shape) * 0.75 / np.sqrt(vectors.shape[1])
    return (moved / np.linalg.norm(moved, axis=1, keepdims=True)).astype(np.float32)


def make(dimension: int, folder: Path) -> tuple[NDArray[np.float32], NDArray[np.float32], list[str]]:
    """Random unit vectors, queries near some of them, and questions; passages go into a folder."""
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(MADE, dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    odds = 1 / (np.arange(VOCABULARY) + 2.7)  # Mandelbrot's form of Zipf's law
    texts = rng.choice(VOCABULARY, (MADE, WORDS), p=odds / odds.sum())
    write_corpus(
        (Passage(str(row), " ".join(f"w{word}" for word in text)) for row, text in enumerate(texts)), folder
    )
    odds[:STOP_WORDS] = 0
    asked = rng.choice(VOCABULARY, (QUERIES, ASKED), p=odds / odds.sum())
    questions = [" ".join(f"w{word}" for word in question) for question in asked]
    return vectors.astype(np.float32), noisy(vectors[:QUERIES], rng), questions


def passages(corpus: Corpus, count: int) -> Iterator[Passage]:
    """The passages of a corpus, then halves of two of them, with a new word now and then."""
    rng = np.random.default_rng(0)
    texts = [corpus.passage(row).contents for row in range(len(corpus))]
    known = len({word for text in texts for word in words(text)})
    yield from (Passage(str(number), text) for number, text in enumerate(texts[:count]))
    for number in range(len(texts), count):
        first, second = (texts[row].split(" ") for row in rng.integers(len(texts), size=2))
        before, after = (known * (n / len(texts)) ** HEAPS for n in (number, number + 1))
        new = [f"word{word}" for word in range(int(before), int(after))]
        yield Passage(str(number), " ".join(first[: len(first) // 2] + new + second[len(second) // 2 :]))


def speed(search: Callable[[slice], object]) -> tuple[float, float]:
    """Median milliseconds of a single query, and queries a second in batches of 64."""
    search(slice(8))
    single = [timed(partial(search, slice(row, row + 1)), CPU) for row in range(64)]
    batches = [timed(partial(search, slice(start, start + 64)), CPU) for start in range(0, QUERIES, 64)]
    return 1000 * statistics.median(single), QUERIES / sum(batches)


def open_vectors(case: Case) -> tuple[NDArray[np.float32], dict[str, int]]:
    """The vectors of a case and the settings of its index, on one thread."""
    require("faiss", "search").omp_set_num_threads(1)
    vectors = np.load(case.vectors, mmap_mode="r").view(np.ndarray)
    return vectors, index_settings(case.index, *vectors.shape)


def build(case: Case) -> tuple[float, float]:
    """Build the index of a case; what it took."""
    if case.index == "bm25":
        given = Corpus.from_passages(passages(Corpus.open(case.corpus), case.count))
        built = cost(lambda: build_index(given, case.path.parent, "lexical"), anonymous, 0.1)
        return built.cpu, built.memory
    vectors, how = open_vectors(case)
    if case.index == "flat":
        return 0.0, 0.0
    built = cost(lambda: build_faiss(case.index, vectors, how, case.path), anonymous, 0.1)
    return built.cpu, built.memory


def measure(case: Case, built: tuple[float, float]) -> IndexCost:
    """The cost of an index that is built."""
    before = anonymous()
    if case.index == "bm25":
        retriever = LexicalRetriever.open(case.path.parent)
        speeds = speed(lambda some: retriever.search(case.questions[some], K))
        size = sum(file.stat().st_size for file in case.path.iterdir())
        return IndexCost(*built, size / 1e6, anonymous() - before, *speeds, NOT_SAID)
    vectors, how = open_vectors(case)
    rank = np.arange(len(vectors), dtype=np.uint32)
    find = open_faiss(case.index, vectors, how, case.path)
    mine = Nearest(find, vectors, rank, case.index == "flat", how.get("rescore", 0))
    exact = Nearest(open_faiss("flat", vectors, {}, case.path), vectors, rank, True)
    speeds = speed(lambda some: mine.search(case.queries[some], K))
    memory, made = anonymous() - before, case.count > len(Corpus.open(case.corpus))
    found = NOT_SAID if made else recall(mine, exact, case.queries, K)
    return IndexCost(*built, case.path.stat().st_size / 1e6, memory, *speeds, found)


def show(count: int, index: str, found: IndexCost, about: str = "") -> None:
    """Print a row of the table."""
    numbers = [f"{about}{value:,.0f}" if value >= 100 else f"{about}{value:.3g}" for value in found]
    print_row(
        f"{count:,}",
        index,
        *("" if np.isnan(one) else text for text, one in zip(numbers, found, strict=True)),
    )


def main(
    dense: str = "",
    questions: str = "",
    dimension: int = 768,
    indexes: tuple[str, ...] = tuple(GROWTH),
    sizes: tuple[int, ...] = (11_043, 100_000),
    to: tuple[int, ...] = (21_015_324,),
) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as made:
        if dense:
            texts = [record["question"] for record in read_gzip(questions)[:QUERIES]]
            queries = DenseRetriever(dense, device="cpu").encoder.queries(texts)
            real, corpus = np.load(Path(dense) / VECTORS, mmap_mode="r"), Path(dense) / "corpus"
        else:
            corpus = Path(made) / "corpus"
            real, queries, texts = make(dimension, corpus)
        print_head(*COLUMNS)
        last: dict[str, tuple[int, IndexCost]] = {}
        for count in sizes:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"{count}.npy"
                crowd(real, count, path)
                for index in indexes:
                    case = Case(index, count, path, corpus, texts, queries)
                    measured = alone(measure, case, alone(build, case))
                    show(count, index, measured)
                    last[index] = count, measured
    for count in to:
        for index, (here, measured) in last.items():
            growth = zip(measured, GROWTH[index](count), GROWTH[index](here), strict=True)
            show(count, index, IndexCost(*(value * far / near for value, far, near in growth)), "≈ ")


if __name__ == "__main__":
    run(main)
