"""Encode a corpus to `vectors.npy`, in batches of like length; a killed build goes on where it stopped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from memenvs.files import read_json, write_json
from memenvs.retrieval.corpus import Corpus
from memenvs.retrieval.encoder import Encoder

VECTORS, PROGRESS = "vectors.npy", "progress.json"
WINDOW = 65_536  # rows sorted by length together: near enough to a full sort, and the disk is read in order
CHUNK = 512  # rows encoded between two notes of progress: what a killed build loses


def encode_corpus(
    corpus: Corpus, encoder: Encoder, folder: Path, progress: bool = True
) -> NDArray[np.float32]:
    """The (N, d) unit vectors of all passages, memory-mapped; encodes those that the folder lacks.

    Args:
        corpus: N passages.
        encoder: to d dimensions.
        folder: gets `vectors.npy` (4 N d bytes) and `progress.json`.
        progress: whether to show a bar.

    Raises:
        ValueError: the folder's vectors are of another corpus or encoder.
    """
    plan = {
        "corpus": corpus.sha256,
        "count": len(corpus),
        "encoder": encoder.fingerprint,
        "dimension": encoder.dimension,
    }
    done = refuse_other(folder, plan)
    if done < len(corpus):
        _encode_from(done, corpus, encoder, folder, plan, progress)
    return open_vectors(folder, len(corpus), encoder.dimension)


def open_vectors(folder: Path, count: int, dimension: int) -> NDArray[np.float32]:
    """Map the (count, dimension) vectors of a folder.

    Raises:
        FileNotFoundError: there are none.
        ValueError: they have another shape or type.
    """
    path = folder / VECTORS
    if not path.exists():
        raise FileNotFoundError(f"no vectors at {path}; build the index again")
    vectors: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
    if vectors.shape != (count, dimension) or vectors.dtype != np.float32:
        raise ValueError(
            f"{path} holds {vectors.dtype} vectors of shape {vectors.shape}, "
            f"the corpus and the encoder ask for float32 of ({count}, {dimension}); build the index again"
        )
    return vectors.view(np.ndarray)


def _encode_from(
    done: int, corpus: Corpus, encoder: Encoder, folder: Path, plan: dict[str, Any], progress: bool
) -> None:
    partial = folder / (VECTORS + ".partial")
    shape = (len(corpus), encoder.dimension)
    fresh = not (done and partial.exists())
    done = 0 if fresh else done
    vectors = np.lib.format.open_memmap(
        partial, "w+" if fresh else "r+", np.float32, shape if fresh else None
    )
    with tqdm(total=len(corpus), initial=done, unit="passage", disable=not progress) as bar:
        for rows in _chunks(corpus.lengths(), done):
            vectors[rows] = encoder.passages([corpus.passage(row).contents for row in rows.tolist()])
            vectors.flush()  # before the note that counts them
            done += len(rows)
            write_json(folder / PROGRESS, {**plan, "done": done})
            bar.update(len(rows))
    del vectors
    os.replace(partial, folder / VECTORS)


def _chunks(lengths: NDArray[np.int64], done: int) -> Iterator[NDArray[np.intp]]:
    """The rows still to do, windows in file order, longest first within a window (memory peaks at once)."""
    for start in range(0, len(lengths), WINDOW):
        window = start + np.argsort(-lengths[start : start + WINDOW], kind="stable")
        for first in range(start, start + len(window), CHUNK):
            if first >= done:
                yield window[first - start : first - start + CHUNK]


def refuse_other(folder: Path, plan: dict[str, Any]) -> int:
    """How many passages the folder's vectors cover, 0 if it has none.

    Raises:
        ValueError: they were made by another plan (corpus, count, encoder, dimension); both values are named.
    """
    if not (folder / PROGRESS).exists():
        return 0
    noted = read_json(folder / PROGRESS)
    for name, value in plan.items():
        if noted.get(name) != value:
            raise ValueError(
                f"{folder} holds vectors of {name} {noted.get(name)}, this build has {name} {value}; "
                "choose another folder, or delete this one"
            )
    return int(noted["done"])
