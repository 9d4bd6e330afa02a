"""Build a search index, a folder: `memenvs build index --corpus FILE --index flat --out DIR`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from memenvs.core.address import without_secrets
from memenvs.core.data import checked
from memenvs.core.files import check_written, read_json, whole_folder, write_json
from memenvs.core.inputs import input_files
from memenvs.retrieval.corpus import Corpus, read_corpus, write_corpus
from memenvs.retrieval.dense import (
    INDEX,
    PROGRESS,
    SEED,
    VECTORS,
    Nearest,
    build_faiss,
    check_encoded,
    encode_corpus,
    index_settings,
    open_faiss,
    recall,
)
from memenvs.retrieval.encoder import Encoder, PrefixedEncoder
from memenvs.retrieval.index import CARD, IndexCard
from memenvs.retrieval.lexical import BM25, contents_of, index_words
from memenvs.retrieval.protocol import Passage
from memenvs.retrieval.vectors import import_vectors

IndexName = Literal["lexical", "flat", "hnsw", "ivfpq"]
PROBES, PROBE_K = 200, 10  # queries and depth of the recall that is measured
SOURCE = "source.json"


@checked
def build_index(
    corpus: Path | str | Corpus,
    out: Path | str,
    index: IndexName = "flat",
    encoder: PrefixedEncoder | None = None,
    workers: Literal["ray"] | None = None,
    vectors: Path | str | None = None,
) -> IndexCard:
    """Build an index folder for `load_retriever`; a killed build resumes where it stopped.

    The folder may already hold vectors of the same corpus and encoder: they are used, so a second kind of
    index over them costs no encoding.

    Args:
        corpus: a file, folder or glob of `read_corpus`, or a corpus, which is copied.
        out: the folder; made if there is none.
        index: `"lexical"` (BM25), `"flat"` (exact), `"hnsw"` or `"ivfpq"`.
        encoder: of a dense index; None: `Encoder()`, E5.
        workers: `"ray"`: the passages are encoded by the workers of a Ray cluster, each with the model of
            that name; otherwise in this process.
        vectors: a file with the vectors of all passages, which are then not encoded (`import_vectors`).

    Raises:
        ValueError: the corpus is malformed or empty, the folder holds vectors of another corpus or encoder,
            or the file's vectors do not fit.
    """
    if vectors is not None and index == "lexical":
        raise ValueError(f"a lexical index has no vectors; choose another index, or leave {vectors} out")
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    mapped = _map_corpus(corpus, out)
    if index == "lexical":
        return _build_lexical(mapped, out)
    encoder = encoder or Encoder()
    if vectors is not None:
        import_vectors(Path(vectors), mapped, encoder, out)
    return _build_dense(mapped, out, index, encoder, workers)


def _map_corpus(corpus: Path | str | Corpus, out: Path) -> Corpus:
    """Write the corpus beside its index, unless it is there from an earlier build."""
    if isinstance(corpus, Corpus):
        source: dict[str, Any] = {"sha256": corpus.sha256}
        passages: Iterable[Passage] = (corpus.passage(row) for row in range(len(corpus)))
    else:
        facts = [file.stat() for file in input_files(corpus, "a corpus")]
        size, modified = sum(file.st_size for file in facts), max(file.st_mtime_ns for file in facts)
        source = {"path": str(Path(corpus).resolve()), "bytes": size, "modified": modified}
        passages = read_corpus(corpus)
    fix = "delete it and build the index again"
    if (out / SOURCE).exists() and read_json(out / SOURCE, fix) == source:
        return Corpus.open(out / "corpus")
    with whole_folder(out / "corpus") as new:
        check_encoded(out, {"corpus": write_corpus(passages, new).sha256})
        (out / SOURCE).unlink(missing_ok=True)
    write_json(out / SOURCE, source)
    return Corpus.open(out / "corpus")


def _build_lexical(corpus: Corpus, out: Path) -> IndexCard:
    import bm25s  # here, because importing it is slow

    with whole_folder(out / BM25) as new:
        index_words(contents_of(corpus), new).save(new, show_progress=False)
        with check_written():
            bm25s.BM25.load(new, mmap=True)
        (out / CARD).unlink(missing_ok=True)
    return IndexCard("lexical", "bm25", len(corpus), corpus.sha256).write(out, out / BM25)


def _build_dense(
    corpus: Corpus, out: Path, index: str, encoder: PrefixedEncoder, workers: Literal["ray"] | None
) -> IndexCard:
    how = index_settings(index, len(corpus), encoder.dimension)  # refuses before an hour of encoding
    vectors = encode_corpus(corpus, encoder, out, workers)
    measured: dict[str, float] = {}
    (out / CARD).unlink(missing_ok=True)
    if index != "flat":
        build_faiss(index, vectors, how, out / INDEX)
        exact = Nearest(open_faiss("flat", vectors, {}, out), vectors, corpus.rank, exact=True)
        approximate = Nearest(
            open_faiss(index, vectors, how, out / INDEX), vectors, corpus.rank, False, how["rescore"]
        )
        # Titles of passages drawn from a seed, or the first words of those without one.
        rows = np.random.default_rng(SEED).choice(len(corpus), min(PROBES, len(corpus)), replace=False)
        passages = [corpus.passage(int(row)) for row in rows]
        queries = encoder.queries([passage.title or passage.text[:64] for passage in passages])
        measured = {
            "k": PROBE_K,
            "queries": len(queries),
            "recall": recall(approximate, exact, queries, PROBE_K),
        }
    noted = read_json(out / PROGRESS, "build the index again")
    extra = {"vectors": noted["vectors"]} if "vectors" in noted else {}
    encoded_by = without_secrets(encoder.arguments()) | extra
    card = IndexCard("dense", index, len(corpus), corpus.sha256, encoded_by, encoder.dimension, how, measured)
    return card.write(out, out / VECTORS, *([] if index == "flat" else [out / INDEX]))
