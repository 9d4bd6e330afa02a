"""Dense retrieval: vectors of a corpus, FAISS indexes and exact search.

`memenvs build index --corpus FILE --index flat --encoder MODEL --out INDEX`.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.core.errors import counted
from memenvs.core.files import check_written, read_json, reserve, whole_file, write_json
from memenvs.core.optional import require
from memenvs.core.processes import map_on_ray
from memenvs.core.progress import Progress
from memenvs.core.terminal import say
from memenvs.retrieval.corpus import Corpus, CorpusRetriever
from memenvs.retrieval.encoder import PrefixedEncoder, encode_passages, load_encoder
from memenvs.retrieval.index import open_index_folder
from memenvs.retrieval.protocol import DECIMALS, Ranked, ordered

Vectors = NDArray[np.float32]
Find = Callable[[Vectors, int], NDArray[np.int64]]
"""From (B, d) queries and n to the rows of n candidates each (B, n), -1 where there are fewer."""

VECTORS, PROGRESS, INDEX = "vectors.npy", "progress.json", "index.faiss"
WINDOW = 65_536  # rows sorted by length together: near enough to a full sort, and the disk is read in order
CHUNK = 512  # rows encoded between two writes of the progress: what a killed build loses
BLOCK = 65_536  # vectors added to an index at a time
SEED = 0
PQ_TRAINING = 256  # vectors: product quantisation learns 256 centroids a part
SPARE = 8  # candidates beyond k, so that a tie at k is mostly seen at the first try


class DenseRetriever(CorpusRetriever):
    """Passages by the inner product of unit vectors; a `Retriever`.

    Whatever the index, its candidates are scored with their full vectors in float64, to six decimals, so
    scores of flat, HNSW and IVF-PQ compare. A flat index is exact, also in its ties; an approximate one
    may miss a passage, and breaks ties among those it found.

    Args:
        folder: what `memenvs.retrieval.build.build_index` made.
        encoder: None: the one that the index was built with, by its name. A name or folder: the same
            encoder at another place.
        device: torch device; None: a GPU if there is one.

    Raises:
        FileNotFoundError: the index, or a part of it, is missing.
        ValueError: corpus, index and encoder do not fit together; both values are named.
    """

    def __init__(
        self, folder: Path | str, encoder: str | PrefixedEncoder | None = None, device: str | None = None
    ):
        folder = Path(folder)
        card, self.corpus = open_index_folder(folder, "dense")
        self.card = card
        if not isinstance(encoder, PrefixedEncoder):
            names = ("query_prefix", "passage_prefix", "max_tokens")
            encoder = load_encoder(
                encoder or card.encoder["model"], *(card.encoder[name] for name in names), device
            )
        self.encoder = encoder
        if encoder.fingerprint != card.encoder["fingerprint"]:
            raise ValueError(
                f"the index in {folder} was built with an encoder of fingerprint "
                f"{card.encoder['fingerprint']} ({card.encoder['model']}), {encoder.model} has fingerprint "
                f"{encoder.fingerprint}; give the encoder of the index, or build the index again"
            )
        vectors = open_vectors(folder)
        find = open_faiss(card.index, vectors, card.settings, folder / INDEX)
        exact = card.index == "flat"
        self._nearest = Nearest(find, vectors, self.corpus.rank, exact, card.settings.get("rescore", 0))

    def _rank(self, queries: list[str], k: int) -> list[Ranked]:
        vectors = self.encoder.queries(queries)
        readable = (vectors != 0).any(axis=1)  # the others were refused
        ranked = iter(self._nearest.search(vectors[readable], k) if readable.any() else ())
        nothing = np.empty(0), np.empty(0, np.int64)
        return [next(ranked) if has_vector else nothing for has_vector in readable]


class Nearest(NamedTuple):
    """An index over vectors, with what scores and orders its candidates.

    Attributes:
        find: the candidates of the index.
        vectors: (N, d), float32, unit length.
        rank: (N,) place of each row's id among the sorted ids.
        exact: whether `find` misses nothing: then more candidates are fetched until no tie at k is left.
        rescore: least number of candidates to score.
    """

    find: Find
    vectors: Vectors
    rank: NDArray[np.uint32]
    exact: bool
    rescore: int = 0

    def search(self, queries: Vectors, k: int, fetch: int = 0) -> list[Ranked]:
        """Scores and rows, best first, of the k nearest to each of (B, d) queries.

        `fetch` is the number of candidates to start with; by default a few more than k.
        """
        fetch = min(len(self.vectors), fetch or max(k + SPARE, self.rescore))
        rows = self.find(queries, fetch)
        answers, tied = [], []
        for place, (query, candidates) in enumerate(zip(queries, rows, strict=True)):
            candidates = candidates[candidates >= 0]
            scores = inner(self.vectors, candidates, query)
            answers.append(ordered(scores, candidates, self.rank, k))
            if (
                self.exact
                and fetch < len(self.vectors)
                and scores.min() + 10.0**-DECIMALS >= answers[-1][0][-1]
            ):
                tied.append(place)
        if tied:
            for place, answer in zip(tied, self.search(queries[tied], k, 4 * fetch), strict=True):
                answers[place] = answer
        return answers


def recall(approximate: Nearest, exact: Nearest, queries: Vectors, k: int) -> float:
    """Mean share, over (B, d) queries, of the k exact answers that score no better than what was found.

    Counting scores, not rows: a passage as near as the k-th is as good an answer.
    """
    shares = []
    for (scores, _), (best, _) in zip(approximate.search(queries, k), exact.search(queries, k), strict=True):
        shares.append(float(np.mean(scores[: len(best)] >= best[-1])) * len(scores) / len(best))
    return float(np.mean(shares))


def inner(vectors: Vectors, rows: NDArray[np.int64], query: Vectors) -> NDArray[np.float64]:
    """Inner products (C,) of the vectors (N, d) at rows (C,) with a query (d,), in float64.

    FAISS sums in another order for one query than for a batch of them, and at the end of a block than in
    its middle: equal passages could score unequally.
    """
    products: NDArray[np.float64] = (vectors[rows].astype(np.float64) * query).sum(axis=1)
    return products


def index_settings(index: str, count: int, dimension: int) -> dict[str, int]:
    """How an index over N vectors is built and searched.

    `rescore` candidates of an approximate index are scored again with their full vectors.

    Raises:
        ValueError: fewer vectors than the index can learn from.
    """
    if index == "hnsw":
        return {"links": 32, "ef_construction": 200, "ef_search": 128, "rescore": 32}
    if index == "ivfpq":
        if count < PQ_TRAINING:
            raise ValueError(
                f"ivfpq learns from at least {PQ_TRAINING} vectors, the corpus has {count}; use flat"
            )
        lists = max(1, min(int(4 * math.sqrt(count)), count // 39))
        # Probing a sixteenth of the lists found 80% of 11,000 real passages' neighbours.
        probes = min(lists, max(16, min(lists // 4, 128)))
        parts = math.gcd(dimension, dimension // 8)
        return {"lists": lists, "parts": parts, "probes": probes, "rescore": 128}
    return {}


def build_faiss(index: str, vectors: Vectors, how: Mapping[str, int], path: Path) -> None:
    """Build an HNSW or IVF-PQ index over (N, d) vectors and write it."""
    faiss = require("faiss", "search")
    count, dimension = vectors.shape
    if index == "hnsw":
        # Half precision halves memory and file; the candidates are scored again with their full vectors.
        half = faiss.ScalarQuantizer.QT_fp16
        built = faiss.IndexHNSWSQ(dimension, half, how["links"], faiss.METRIC_INNER_PRODUCT)
        built.hnsw.efConstruction = how["ef_construction"]
    else:
        coarse = faiss.IndexFlatIP(dimension)
        built = faiss.IndexIVFPQ(coarse, dimension, how["lists"], how["parts"], 8, faiss.METRIC_INNER_PRODUCT)
        built.pq.cp.min_points_per_centroid = 1  # otherwise it warns for each part
        sample = min(count, 64 * max(how["lists"], PQ_TRAINING))
        chosen = np.random.default_rng(SEED).choice(count, sample, replace=False)
        built.train(np.ascontiguousarray(vectors[np.sort(chosen)]))
    for start in range(0, count, BLOCK):
        built.add(np.ascontiguousarray(vectors[start : start + BLOCK]))
    with whole_file(path) as partial:
        faiss.write_index(built, str(partial))
        with check_written():
            faiss.read_index(str(partial), faiss.IO_FLAG_MMAP_IFC)


def open_faiss(index: str, vectors: Vectors, how: Mapping[str, int], path: Path) -> Find:
    """Open what finds the candidates of queries among (N, d) vectors.

    A flat index is the vectors themselves and has no file.
    """
    faiss = require("faiss", "search")
    if index == "flat":
        return lambda queries, n: faiss.knn(queries, vectors, n, metric=faiss.METRIC_INNER_PRODUCT)[1]
    mapped = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)

    def find(queries: Vectors, n: int) -> NDArray[np.int64]:
        if index == "hnsw":
            effort = faiss.SearchParametersHNSW(efSearch=max(how["ef_search"], n))
        else:
            effort = faiss.SearchParametersIVF(nprobe=how["probes"])
        rows: NDArray[np.int64] = mapped.search(queries, n, params=effort)[1]
        return rows

    return find


def encode_corpus(
    corpus: Corpus, encoder: PrefixedEncoder, folder: Path, workers: Literal["ray"] | None = None
) -> Vectors:
    """The (N, d) unit vectors of all passages, memory-mapped; encodes the missing ones.

    Args:
        corpus: N passages.
        encoder: to d dimensions.
        folder: gets `vectors.npy` (4 N d bytes) and `progress.json`.
        workers: `"ray"`: of a Ray cluster; otherwise this process encodes.

    Raises:
        ValueError: the folder's vectors are of another corpus or encoder.
    """
    plan = encoding_plan(corpus, encoder)
    done = check_encoded(folder, plan)
    partial = folder / (VECTORS + ".partial")
    if not partial.exists() and not (folder / VECTORS).exists():
        (folder / PROGRESS).unlink(missing_ok=True)  # its rows are gone
        done = 0
    if done < len(corpus):
        if not done:
            with whole_file(partial) as fresh:
                np.lib.format.open_memmap(fresh, "w+", np.float32, (len(corpus), encoder.dimension))
                with fresh.open("r+b") as file:
                    reserve(file, fresh.stat().st_size)
        vectors = np.lib.format.open_memmap(partial, "r+")
        if done:
            say(f"{counted(len(corpus), 'passage')}: {done:,} kept, {len(corpus) - done:,} to encode")
        with Progress(len(corpus), "passages", done=done, leave=True) as progress:
            chunks = list(_chunks(corpus.lengths(), done))
            texts = ([corpus.passage(row).contents for row in rows.tolist()] for rows in chunks)
            encoded: Iterator[Vectors] = map(encoder.passages, texts)
            if workers == "ray":
                encoded = map_on_ray(functools.partial(encode_passages, encoder.arguments()), texts, gpu=True)
            for rows, part in zip(chunks, encoded, strict=True):
                vectors[rows] = part
                vectors.flush()  # before the progress that counts them
                done += len(rows)
                write_json(folder / PROGRESS, {**plan, "done": done})
                progress.add(len(rows))
        del vectors
    if partial.exists():  # also where the build was killed after its last passage
        os.replace(partial, folder / VECTORS)
    return open_vectors(folder)


def open_vectors(folder: Path) -> Vectors:
    """The (N, d) vectors of a folder, memory-mapped; plain arrays are faster to index than `np.memmap`."""
    vectors: Vectors = np.load(folder / VECTORS, mmap_mode="r")
    return vectors.view(np.ndarray)


def _chunks(lengths: NDArray[np.int64], done: int) -> Iterator[NDArray[np.intp]]:
    """The rows still to do, windows in file order, longest first within a window (memory peaks at once)."""
    for start in range(0, len(lengths), WINDOW):
        window = start + np.argsort(-lengths[start : start + WINDOW], kind="stable")
        for first in range(start, start + len(window), CHUNK):
            if first >= done:
                yield window[first - start : first - start + CHUNK]


def encoding_plan(corpus: Corpus, encoder: PrefixedEncoder) -> dict[str, Any]:
    """What vectors are of; those of another plan are not continued."""
    return {
        "corpus": corpus.sha256,
        "count": len(corpus),
        "encoder": encoder.fingerprint,
        "dimension": encoder.dimension,
    }


def check_encoded(folder: Path, plan: dict[str, Any]) -> int:
    """How many passages the folder's vectors cover, 0 if it has none.

    Raises:
        ValueError: they were made by another plan (corpus, count, encoder, dimension); both values are named.
    """
    if not (folder / PROGRESS).exists():
        return 0
    noted = read_json(folder / PROGRESS, "delete it and build the index again")
    for name, value in plan.items():
        if noted.get(name) != value:
            raise ValueError(
                f"{folder} holds vectors of {name} {noted.get(name)}, this build has {name} {value}; "
                "choose another folder, or delete this one"
            )
    return int(noted["done"])
