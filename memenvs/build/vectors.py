"""Vectors of a corpus that were computed elsewhere: files of NumPy, and FAISS indexes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.core.errors import error_line
from memenvs.core.files import whole_file, write_json
from memenvs.core.optional import require
from memenvs.core.progress import Progress
from memenvs.retrieval.corpus import Corpus
from memenvs.retrieval.dense import BLOCK, PROGRESS, SEED, VECTORS, Vectors, check_encoded, encoding_plan
from memenvs.retrieval.encoder import PrefixedEncoder
from memenvs.retrieval.index import CARD

SAMPLE = 32  # passages that are encoded to see whether the vectors are theirs
FORMS = ".npy, .npz or .memmap of floats, or a flat or HNSW index of FAISS"


def import_vectors(path: Path, corpus: Corpus, encoder: PrefixedEncoder, folder: Path) -> None:
    """Write the vectors in a file, scaled to unit length, as those of a corpus into the folder of an index.

    Args:
        path: `.npy`, `.npz` with one array, `.memmap` (float32 without a header, as FlashRAG saves it), or a
            FAISS index that keeps whole vectors (flat or HNSW). Row i is of the corpus's passage i. An `.npz`
            is read at once, other files in blocks.
        corpus: N passages.
        encoder: encodes queries; it has the dimension of the vectors.
        folder: gets `vectors.npy` and `progress.json`.

    Raises:
        ValueError: the file is none of these, has another number or dimension of vectors, or one that is not
            finite; or the folder has vectors of another corpus or encoder.
    """
    plan = encoding_plan(corpus, encoder)
    check_encoded(folder, plan)
    loaded = _open(path, encoder.dimension)
    shape = len(corpus), encoder.dimension
    if loaded.shape != shape:
        raise ValueError(
            f"{path} holds vectors of shape {loaded.shape}, but the corpus and {encoder.model} need {shape}; "
            "give the corpus and the encoder they were made with"
        )
    for old in (CARD, PROGRESS, f"{VECTORS}.partial"):
        (folder / old).unlink(missing_ok=True)
    with (
        whole_file(folder / VECTORS) as partial,
        partial.open("wb") as file,
        Progress(len(corpus), "vectors") as bar,
    ):
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(corpus), BLOCK):
            block = _unit(loaded.read(start, min(start + BLOCK, len(corpus))))
            if not np.isfinite(block).all():
                row = start + int(np.flatnonzero(~np.isfinite(block).all(axis=1))[0])
                raise ValueError(f"vector {row} of {path} is not finite; compute it again")
            file.write(block.tobytes())
            bar.add(len(block))
    _compare(path, loaded, corpus, encoder)
    write_json(folder / PROGRESS, {**plan, "done": len(corpus), "vectors": path.name})


class _Given(NamedTuple):
    shape: tuple[int, ...]
    read: Callable[[int, int], NDArray[Any]]
    """The rows from one number to another."""


def _open(path: Path, dimension: int) -> _Given:
    if not path.is_file():
        raise FileNotFoundError(f"no vectors at {path}; give {FORMS}")
    try:
        if path.suffix == ".memmap":
            array: Any = np.memmap(path, np.float32, mode="r")
            array = array.reshape(-1, dimension) if array.size % dimension == 0 else array
        elif path.suffix in (".npy", ".npz"):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            if path.suffix == ".npz":
                with array as archive:
                    names = archive.files
                    if len(names) != 1:
                        raise ValueError(f"it holds the arrays {names}, not one")
                    array = archive[names[0]]
        else:
            return _open_faiss(path)
        if array.dtype.kind != "f":
            raise ValueError(f"it holds {array.dtype}, not floats")
    except (ValueError, EOFError, OSError, RuntimeError) as error:
        raise ValueError(f"cannot read vectors from {path} ({error_line(error)}); give {FORMS}") from error
    return _Given(array.shape, lambda start, stop: array[start:stop])


def _open_faiss(path: Path) -> _Given:
    faiss = require("faiss", "search")
    index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    if not isinstance(index, (faiss.IndexFlat, faiss.IndexHNSWFlat)):
        raise ValueError(f"a FAISS index of type {type(index).__name__}, which keeps no whole vectors by row")
    return _Given((index.ntotal, index.d), lambda start, stop: index.reconstruct_n(start, stop - start))


def _unit(vectors: NDArray[Any]) -> Vectors:
    vectors = vectors.astype(np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def _compare(path: Path, loaded: _Given, corpus: Corpus, encoder: PrefixedEncoder) -> None:
    """Warn unless most of some passages, encoded here, are nearest to their own vectors."""
    rows = np.random.default_rng(SEED).choice(len(corpus), min(SAMPLE, len(corpus)), replace=False).tolist()
    stored = _unit(np.concatenate([loaded.read(row, row + 1) for row in rows]))
    products = encoder.passages([corpus.passage(row).contents for row in rows]) @ stored.T
    agree = int((products.diagonal() >= products.max(axis=1) - 1e-3).sum())
    if agree <= len(rows) / 2:
        warnings.warn(
            f"{agree} of {len(rows)} passages that {encoder.model} encoded with {encoder.instructions()} are "
            f"nearest to their own vectors in {path}; check the encoder, its prefixes and the corpus's order",
            stacklevel=2,
        )
