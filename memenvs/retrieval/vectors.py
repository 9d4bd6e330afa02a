"""Vectors of a corpus that were computed elsewhere: files of NumPy, and FAISS indexes."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.core.data import shown
from memenvs.core.errors import error_line
from memenvs.core.files import whole_file, write_json
from memenvs.core.inputs import NPY, NPZ, open_input
from memenvs.core.optional import require
from memenvs.core.progress import Progress
from memenvs.retrieval.corpus import Corpus
from memenvs.retrieval.dense import BLOCK, PROGRESS, SEED, VECTORS, Vectors, check_encoded, encoding_plan
from memenvs.retrieval.encoder import PrefixedEncoder
from memenvs.retrieval.index import CARD

SAMPLE = 32  # passages that are encoded to see whether the vectors are theirs
FORMS = ".npy, .npz or .memmap of floats, or a flat, HNSW or IVF-Flat index of FAISS"


def import_vectors(path: Path, corpus: Corpus, encoder: PrefixedEncoder, folder: Path) -> None:
    """Write the vectors in a file, scaled to unit length, as those of a corpus into the folder of an index.

    Args:
        path: `.npy`, `.npz` with one array, `.memmap` (float32 without a header, as FlashRAG saves it), or a
            FAISS index that keeps whole vectors (flat, HNSW, IVF-Flat, 16-bit floats). Row i is of the
            corpus's passage i; ids of an index are those of passages, or their rows. An `.npz` is read at
            once, other files in blocks.
        corpus: N passages.
        encoder: encodes queries; it has the dimension of the vectors.
        folder: gets `vectors.npy` and `progress.json`.

    Raises:
        ValueError: the file is none of these, has another number or dimension of vectors, or one that is not
            finite; or the folder has vectors of another corpus or encoder.
    """
    plan = encoding_plan(corpus, encoder)
    check_encoded(folder, plan)
    loaded = _open(path, corpus, encoder.dimension)
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


def _open(path: Path, corpus: Corpus, dimension: int) -> _Given:
    if not path.is_file():
        raise FileNotFoundError(f"no vectors at {path}; give {FORMS}")
    try:
        if path.suffix.lower() == ".memmap":
            array: Any = np.memmap(path, np.float32, mode="r")
            array = array.reshape(-1, dimension) if array.size % dimension == 0 else array
        else:
            with open_input(path, NPY, NPZ) as (_, kind):
                pass
            if not kind:
                return _open_faiss(path, corpus)
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            if kind == NPZ:
                with array as archive:
                    names = archive.files
                    if len(names) != 1:
                        raise ValueError(f"it holds the arrays {names}, not one")
                    array = archive[names[0]]
        if array.dtype.kind != "f":
            raise ValueError(f"it holds {array.dtype}, not floats")
    except (ValueError, EOFError, OSError, RuntimeError) as error:
        raise ValueError(f"cannot read vectors from {path} ({error_line(error)}); give {FORMS}") from error
    return _Given(array.shape, lambda start, stop: array[start:stop])


def _open_faiss(path: Path, corpus: Corpus) -> _Given:
    faiss = require("faiss", "search")
    index = inner = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    keys = ids = np.arange(index.ntotal)
    if mapped := isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2)):
        inner, ids = faiss.downcast_index(index.index), faiss.vector_to_array(index.id_map)
    halves = faiss.ScalarQuantizer.QT_fp16, faiss.ScalarQuantizer.QT_bf16
    whole = isinstance(inner, (faiss.IndexFlat, faiss.IndexHNSWFlat, faiss.IndexIVFFlat))
    if not whole and not (hasattr(inner, "sq") and inner.sq.qtype in halves):
        over = f" over {type(inner).__name__}" if mapped else ""
        raise ValueError(f"{type(index).__name__}{over} keeps its vectors changed or compressed with a loss")
    if isinstance(inner, faiss.IndexIVF):
        inner.set_direct_map_type(faiss.DirectMap.Hashtable)
        sizes = [inner.invlists.list_size(number) for number in range(inner.nlist)]
        lists = [faiss.rev_swig_ptr(inner.invlists.get_ids(i), size) for i, size in enumerate(sizes) if size]
        keys = np.concatenate([*lists, keys[:0]])
        ids = ids[keys] if mapped else keys
    numbers = np.arange(len(corpus))
    if len(ids) == len(corpus) and not np.array_equal(np.sort(ids), numbers):
        with contextlib.suppress(KeyError):
            ids = np.array([corpus.row(str(id)) for id in ids.tolist()])
        if not np.array_equal(np.sort(ids), numbers):
            raise ValueError(
                f"its ids ({shown(ids.tolist()[:3])} …) are neither those of passages nor their rows"
            )
    rows = keys[np.argsort(ids)]

    def read(start: int, stop: int, owner: Any = index) -> Any:  # `inner` is freed with its owner
        return inner.reconstruct_batch(rows[start:stop])

    return _Given((index.ntotal, index.d), read)


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
