"""Indexes over vectors that were computed elsewhere."""

from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pytest

pytest.importorskip("faiss")
pytest.importorskip("sentence_transformers")

import faiss

from memenvs.commands import main
from memenvs.retrieval import Corpus
from memenvs.retrieval import vectors as vectors_module
from memenvs.retrieval.build import build_index
from memenvs.retrieval.dense import DenseRetriever
from memenvs.retrieval.encoder import Encoder

WORDS = "engine moth compiler london night program insect wing river town".split()
DOCUMENTS = [
    (f"d{i}", first, f"{first} and {second}") for i, (first, second) in enumerate(itertools.pairwise(WORDS))
]
QUERIES = ["a moth at night", "the engine of london"]


@pytest.fixture(scope="module")
def encoder(tiny_bert):
    return Encoder(str(tiny_bert), device="cpu")


@pytest.fixture(scope="module")
def corpus():
    return Corpus.from_documents(DOCUMENTS)


@pytest.fixture(scope="module")
def vectors(corpus, encoder):
    return encoder.passages([corpus.passage(row).contents for row in range(len(corpus))])


@pytest.fixture(scope="module")
def encoded(corpus, encoder, tmp_path_factory):
    """What a search finds in an index whose passages were encoded here."""
    folder = tmp_path_factory.mktemp("encoded")
    build_index(corpus, folder, "flat", encoder)
    return DenseRetriever(folder, encoder).search(QUERIES, 4)


def save_flat(path, vectors, kind=None):
    index = kind or faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    faiss.write_index(index, str(path))


def trained(index, vectors):
    index.train(vectors)
    return index


def ivf(vectors):
    return trained(faiss.IndexIVFFlat(QUANTIZER, 32, 2, faiss.METRIC_INNER_PRODUCT), vectors)


def save_ids(path, vectors, ids, index):
    """Vectors in the reverse order of the corpus, each under the id of its row."""
    index.add_with_ids(vectors[::-1].copy(), np.array(ids[::-1], np.int64))
    faiss.write_index(index, str(path))


QUANTIZER = faiss.IndexFlatIP(32)
SAVE = {
    "float32.npy": np.save,
    "double.npy": lambda path, vectors: np.save(path, vectors.astype(np.float64)),
    "columns.npy": lambda path, vectors: np.save(path, np.asfortranarray(vectors)),
    "longer.npy": lambda path, vectors: np.save(path, 3 * vectors),
    "one.npz": lambda path, vectors: np.savez(path, embeddings=vectors),
    "emb_e5.memmap": lambda path, vectors: vectors.tofile(path),
    "e5_Flat.index": save_flat,
    "l2.faiss": lambda path, vectors: save_flat(path, vectors, faiss.IndexFlatL2(vectors.shape[1])),
    "upper.NPZ": lambda path, vectors: (
        np.savez(path.with_suffix(".npz"), vectors),
        path.with_suffix(".npz").rename(path),
    ),
    "ivf.index": lambda path, vectors: save_flat(path, vectors, ivf(vectors)),
    "half.index": lambda path, vectors: save_flat(
        path,
        vectors,
        faiss.IndexScalarQuantizer(32, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT),
    ),
    "rows.index": lambda path, vectors: save_ids(
        path, vectors, range(9), faiss.IndexIDMap(faiss.IndexFlatIP(32))
    ),
    "e5_HNSW64.index": lambda path, vectors: save_flat(
        path, vectors, faiss.IndexHNSWFlat(vectors.shape[1], 64, faiss.METRIC_INNER_PRODUCT)
    ),
}


@pytest.mark.parametrize("name", SAVE)
def test_an_index_over_imported_vectors_finds_what_one_over_encoded_passages_finds(
    name, corpus, encoder, vectors, encoded, tmp_path, monkeypatch
):
    monkeypatch.setattr(vectors_module, "BLOCK", 4)  # the nine vectors are read in three blocks
    SAVE[name](tmp_path / name, vectors)
    card = build_index(corpus, tmp_path / "index", "flat", encoder, vectors=tmp_path / name)
    hits = DenseRetriever(tmp_path / "index", encoder).search(QUERIES, 4)
    assert (hits.ids, card.encoder["vectors"]) == (encoded.ids, name)
    np.testing.assert_allclose(hits.scores, encoded.scores, atol=2e-4 if name == "half.index" else 2e-6)


NUMBERS = [30 - 3 * row for row in range(9)]
WITH_IDS = {
    "flat": lambda vectors: faiss.IndexIDMap(faiss.IndexFlatIP(32)),
    "two ways": lambda vectors: faiss.IndexIDMap2(faiss.IndexFlatIP(32)),
    "hnsw": lambda vectors: faiss.IndexIDMap(faiss.IndexHNSWFlat(32, 16, faiss.METRIC_INNER_PRODUCT)),
    "ivf": ivf,
    "map over ivf": lambda vectors: faiss.IndexIDMap(ivf(vectors)),
}


@pytest.mark.parametrize("kind", WITH_IDS)
def test_the_ids_of_an_index_are_those_of_the_passages(kind, encoder, vectors, encoded, tmp_path):
    corpus = Corpus.from_documents(
        (str(number), title, text) for number, (_, title, text) in zip(NUMBERS, DOCUMENTS, strict=True)
    )
    save_ids(tmp_path / "ids.index", vectors, NUMBERS, WITH_IDS[kind](vectors))
    build_index(corpus, tmp_path / "index", "flat", encoder, vectors=tmp_path / "ids.index")
    hits = DenseRetriever(tmp_path / "index", encoder).search(QUERIES, 4)
    assert hits.ids == [[str(NUMBERS[int(id[1:])]) for id in ids] for ids in encoded.ids]


def test_half_precision_is_enough(corpus, encoder, vectors, encoded, tmp_path):
    np.save(tmp_path / "half.npy", vectors.astype(np.float16))
    build_index(corpus, tmp_path / "index", "flat", encoder, vectors=tmp_path / "half.npy")
    hits = DenseRetriever(tmp_path / "index", encoder).search(QUERIES, 4)
    np.testing.assert_allclose(hits.scores, encoded.scores, atol=1e-3)


def test_a_second_kind_of_index_uses_imported_vectors(corpus, encoder, vectors, encoded, tmp_path):
    np.save(tmp_path / "v.npy", vectors)
    build_index(corpus, tmp_path / "index", "flat", encoder, vectors=tmp_path / "v.npy")
    card = build_index(corpus, tmp_path / "index", "hnsw", encoder)
    assert (card.index, card.encoder["vectors"]) == ("hnsw", "v.npy")
    assert DenseRetriever(tmp_path / "index", encoder).search(QUERIES, 4) == encoded


def damaged(vectors):
    vectors = vectors.copy()
    vectors[5, 3] = np.nan
    return vectors


BAD = {
    "rows.npy": (lambda path, v: np.save(path, v[:-1]), r"shape \(8, 32\), .* need \(9, 32\)"),
    "columns.npy": (lambda path, v: np.save(path, v[:, :8]), r"shape \(9, 8\), .* need \(9, 32\)"),
    "flat.npy": (lambda path, v: np.save(path, v.ravel()), r"shape \(288,\)"),
    "nan.npy": (lambda path, v: np.save(path, damaged(v)), "vector 5 of .* is not finite"),
    "whole.npy": (lambda path, v: np.save(path, v.astype(int)), "holds int64, not floats"),
    "pickle.npy": (lambda path, v: np.save(path, np.array([{}])), "cannot read vectors"),
    "two.npz": (lambda path, v: np.savez(path, a=v, b=v), r"\['a', 'b'\]"),
    "text.index": (lambda path, v: path.write_text("vectors"), "cannot read vectors"),
    "pickled.npy": (lambda path, v: path.write_bytes(pickle.dumps(v)), "pickle"),
    "empty.npy": (lambda path, v: path.write_bytes(b""), "cannot read vectors"),
    "lossy.index": (lambda path, v: save_flat(path, v, faiss.IndexLSH(32, 64)), "IndexLSH keeps .* loss"),
    "eight bits.index": (
        lambda path, v: save_flat(path, v, trained(faiss.IndexScalarQuantizer(32, 0), v)),
        "IndexScalarQuantizer keeps .* loss",
    ),
    "map over pq.index": (
        lambda path, v: save_ids(path, v, range(9), faiss.IndexIDMap(trained(faiss.IndexPQ(32, 4, 2), v))),
        "IndexIDMap over IndexPQ keeps .* loss",
    ),
    "rotated.index": (
        lambda path, v: save_flat(path, v, trained(faiss.index_factory(32, "PCA8,Flat"), v)),
        "IndexPreTransform",
    ),
    "other ids.index": (
        lambda path, v: save_ids(path, v, range(70, 79), faiss.IndexIDMap(faiss.IndexFlatIP(32))),
        r"ids \(\[78, 77, 76\]",
    ),
    "cut.index": (
        lambda path, v: (save_flat(path, v), path.write_bytes(path.read_bytes()[:-40])),
        "cannot read vectors",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_vectors_that_do_not_fit_are_refused_in_one_line(name, corpus, encoder, vectors, tmp_path):
    save, reason = BAD[name]
    save(tmp_path / name, vectors)
    with pytest.raises(ValueError, match=reason) as refused:
        build_index(corpus, tmp_path / "index", "flat", encoder, vectors=tmp_path / name)
    assert "\n" not in str(refused.value)


def test_vectors_in_another_order_are_warned_about(corpus, encoder, vectors, tmp_path):
    np.save(tmp_path / "v.npy", np.roll(vectors, 1, axis=0))
    with pytest.warns(UserWarning, match="are nearest to their own vectors"):
        build_index(corpus, tmp_path / "index", "flat", encoder, vectors=tmp_path / "v.npy")


def test_the_command_imports_vectors_and_prints_the_prefixes_in_use(corpus, tiny_bert, tmp_path, capsys):
    texts = [corpus.passage(row).contents for row in range(len(corpus))]
    records = [{"id": id, "contents": text} for (id, _, _), text in zip(DOCUMENTS, texts, strict=True)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, records)))
    encoder = Encoder(str(tiny_bert), "find: ", "text: ", device="cpu")
    save_flat(tmp_path / "e5_Flat.index", encoder.passages(texts))
    options = {
        "corpus": tmp_path / "corpus.jsonl",
        "vectors": tmp_path / "e5_Flat.index",
        "encoder": tiny_bert,
        "query-prefix": "find: ",
        "passage-prefix": "text: ",
        "device": "cpu",
        "out": tmp_path / "index",
    }
    words = [f"--{name}={value}" for name, value in options.items()]
    assert main(["build", "index", *words]) == 0
    printed = capsys.readouterr().out
    assert "'find: '" in printed
    assert "'text: '" in printed
    assert DenseRetriever(tmp_path / "index", device="cpu").encoder.query_prefix == "find: "
