"""Indexes over vectors, built and opened by name: flat, HNSW or IVF-PQ, memory-mapped."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memenvs.extras import require
from memenvs.files import whole_file

Vectors = NDArray[np.float32]
Find = Callable[[Vectors, int], NDArray[np.int64]]

INDEX = "index.faiss"
BLOCK = 65_536  # vectors added at a time
SEED = 0
PQ_TRAINING = 256  # vectors: product quantisation learns 256 centroids a part


def settings(
    index: str, count: int, dimension: int, given: Mapping[str, int] | None = None
) -> dict[str, int]:
    """How an index over N vectors is built and searched: what is given, else values that suit N.

    `rescore` candidates of an approximate index are scored again with their full vectors.

    Raises:
        ValueError: no such index or setting, or fewer vectors than the index can learn from.
    """
    how = _defaults(index, count, dimension)
    for name, value in (given or {}).items():
        if name not in how:
            raise ValueError(f"{index} has no setting {name!r}; it has {', '.join(how) or 'none'}")
        how[name] = value
    return how


def _defaults(index: str, count: int, dimension: int) -> dict[str, int]:
    if index == "flat":
        return {}
    if index == "hnsw":
        return {"links": 32, "ef_construction": 200, "ef_search": 128, "rescore": 32}
    if index != "ivfpq":
        raise ValueError(f"no index {index!r}; choose lexical, flat, hnsw or ivfpq")
    if count < PQ_TRAINING:
        raise ValueError(
            f"ivfpq learns from at least {PQ_TRAINING} vectors, the corpus has {count}; use flat"
        )
    lists = max(1, min(int(4 * math.sqrt(count)), count // 39))
    probes = min(
        lists, max(16, min(lists // 4, 128))
    )  # a sixteenth found 80% of 11,000 real passages' neighbours
    return {"lists": lists, "parts": math.gcd(dimension, dimension // 8), "probes": probes, "rescore": 128}


def build(index: str, vectors: Vectors, how: Mapping[str, int], path: Path) -> None:
    """Build an HNSW or IVF-PQ index over (N, d) vectors and write it."""
    faiss = require("faiss", "search")
    count, dimension = vectors.shape
    if index == "hnsw":
        made = faiss.IndexHNSWFlat(dimension, how["links"], faiss.METRIC_INNER_PRODUCT)
        made.hnsw.efConstruction = how["ef_construction"]
    else:
        coarse = faiss.IndexFlatIP(dimension)
        made = faiss.IndexIVFPQ(coarse, dimension, how["lists"], how["parts"], 8, faiss.METRIC_INNER_PRODUCT)
        made.pq.cp.min_points_per_centroid = 1  # else a warning a part: the recall that is measured says more
        sample = min(count, 64 * max(how["lists"], PQ_TRAINING))
        chosen = np.random.default_rng(SEED).choice(count, sample, replace=False)
        made.train(np.ascontiguousarray(vectors[np.sort(chosen)]))
    for start in range(0, count, BLOCK):
        made.add(np.ascontiguousarray(vectors[start : start + BLOCK]))
    with whole_file(path) as partial:
        faiss.write_index(made, str(partial))


def open_index(index: str, vectors: Vectors, how: Mapping[str, int], path: Path) -> Find:
    """A function from (B, d) queries and n to the rows of n candidates each (B, n), -1 where there are fewer.

    A flat index is the vectors themselves and has no file.

    Raises:
        FileNotFoundError: an approximate index has no file.
        ValueError: its file holds another number of vectors, or of another dimension.
    """
    faiss = require("faiss", "search")
    if index == "flat":
        return lambda queries, n: faiss.knn(queries, vectors, n, metric=faiss.METRIC_INNER_PRODUCT)[1]
    if not path.exists():
        raise FileNotFoundError(f"no {index} index at {path}; build the index again")
    mapped = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    if (mapped.ntotal, mapped.d) != vectors.shape:
        raise ValueError(
            f"{path} holds {mapped.ntotal} vectors of dimension {mapped.d}, "
            f"the corpus and the encoder have {vectors.shape[0]} of {vectors.shape[1]}; build the index again"
        )

    def find(queries: Vectors, n: int) -> NDArray[np.int64]:
        rows: NDArray[np.int64] = mapped.search(queries, n, params=_effort(faiss, index, how, n))[1]
        return rows

    return find


def _effort(faiss: Any, index: str, how: Mapping[str, int], n: int) -> Any:
    if index == "hnsw":
        return faiss.SearchParametersHNSW(efSearch=max(how["ef_search"], n))
    return faiss.SearchParametersIVF(nprobe=how["probes"])
