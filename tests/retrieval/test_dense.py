"""Dense retrieval: exact order, approximate indexes, and builds that are killed and resumed."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
from full_disk import files_up_to

pytest.importorskip("faiss")
pytest.importorskip("sentence_transformers")

from memenvs.retrieval import Corpus
from memenvs.retrieval.build import build_index
from memenvs.retrieval.dense import (
    DenseRetriever,
    Nearest,
    encode_corpus,
    index_settings,
    recall,
)
from memenvs.retrieval.encoder import Encoder
from memenvs.retrieval.lexical import LexicalRetriever
from memenvs.retrieval.protocol import Passage

WORDS = "the engine of a moth query passage compiler london night program insect".split()
RNG = np.random.default_rng(0)
DOCUMENTS = [
    (f"d{i}", " ".join(RNG.choice(WORDS, 2)), " ".join(RNG.choice(WORDS, RNG.integers(1, 40))))
    for i in range(1_200)
]


@pytest.fixture(scope="module")
def encoder(tiny_bert) -> Encoder:
    return Encoder(str(tiny_bert), device="cpu")


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.from_documents(DOCUMENTS)


@pytest.fixture(scope="module")
def folder(corpus, encoder, tmp_path_factory):
    """A flat index of 1,200 passages; tests that change it copy it."""
    out = tmp_path_factory.mktemp("dense") / "index"
    build_index(corpus, out, "flat", encoder)
    return out


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of the index, to be changed."""
    return shutil.copytree(folder, tmp_path / "index")


class Dying:
    """An encoder that notes what it encodes, and dies after so many calls."""

    def __init__(self, encoder: Encoder, calls: int = 1_000_000):
        self.encoder, self.calls, self.encoded = encoder, calls, 0
        self.fingerprint, self.dimension = encoder.fingerprint, encoder.dimension

    def passages(self, texts):
        if self.calls == 0:
            raise KeyboardInterrupt
        self.calls -= 1
        self.encoded += len(texts)
        return self.encoder.passages(texts)

    def __getattr__(self, name):
        return getattr(self.encoder, name)


def test_a_flat_index_gives_the_order_of_all_inner_products(folder, encoder, corpus):
    queries = ["the engine of london", "a moth at night", "compiler"]
    texts = [corpus.passage(row).contents for row in range(len(corpus))]
    products = encoder.queries(queries).astype(np.float64) @ encoder.passages(texts).astype(np.float64).T
    hits = DenseRetriever(folder, encoder).search(queries, 5)
    best = -np.sort(-products, axis=1)[:, :5]
    np.testing.assert_allclose(hits.scores, best, atol=2e-6)


def test_equal_passages_are_ordered_by_id_also_where_k_cuts(encoder, tmp_path):
    ids = [f"d{(i * 37) % 120}" for i in range(120)]
    same = Corpus.from_documents([(id, "moth", "the same engine") for id in ids])
    build_index(same, tmp_path / "i", "flat", encoder)
    retriever = DenseRetriever(tmp_path / "i", encoder)
    for k in (1, 3, 50, 120):
        assert retriever.search(["engine"] * 2, k).ids == [sorted(ids)[:k]] * 2


def test_a_batch_gives_the_order_of_single_calls(folder, encoder):
    retriever, queries = DenseRetriever(folder, encoder), [" ".join(RNG.choice(WORDS, 4)) for _ in range(64)]
    batch = retriever.search(queries, 10)
    assert batch.ids == [retriever.search([query], 10).ids[0] for query in queries]


def test_more_passages_than_there_are_gives_all(folder, encoder):
    ids = DenseRetriever(folder, encoder).search(["moth"], 5_000).ids[0]
    assert sorted(ids) == sorted(id for id, _, _ in DOCUMENTS)


def test_passages_come_from_the_mapped_corpus(folder, encoder):
    passage = DenseRetriever(folder, encoder).passages(["d7"])[0]
    assert (passage.id, passage.title, passage.text) == DOCUMENTS[7]


@pytest.mark.parametrize("index", ["hnsw", "ivfpq"])
def test_an_approximate_index_has_its_recall_measured_and_the_exact_scores(
    folder, copy, corpus, encoder, index
):
    assert build_index(corpus, copy, index, encoder).recall["recall"] > 0.9
    flat = DenseRetriever(folder, encoder).search(["the engine"], 1)
    assert DenseRetriever(copy, encoder).search(["the engine"], 1).scores == flat.scores


def test_recall_is_the_share_of_the_exact_answers_by_hand():
    vectors = np.eye(4, dtype=np.float32)
    query = np.array([[0.9, 0.3, 0.2, 0.1]], dtype=np.float32)
    rank = np.arange(4, dtype=np.uint32)
    exact = Nearest(lambda q, n: np.array([[0, 1, 2, 3][:n]]), vectors, rank, exact=True)
    poor = Nearest(lambda q, n: np.array([[0, 3, -1, -1]]), vectors, rank, exact=False)
    assert recall(poor, exact, query, 2) == 0.5  # found 0 and 3; the best two are 0 and 1


def test_a_killed_build_resumes_where_it_stopped(corpus, encoder, folder, tmp_path):
    dying, later = Dying(encoder, calls=2), Dying(encoder)
    with pytest.raises(KeyboardInterrupt):
        build_index(corpus, tmp_path, "flat", dying)
    with pytest.raises(FileNotFoundError, match="no index in"):
        DenseRetriever(tmp_path, encoder)
    build_index(corpus, tmp_path, "flat", later)
    assert (dying.encoded, later.encoded) == (1_024, 176)
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), np.load(folder / "vectors.npy"), atol=1e-5)


def test_a_build_killed_after_its_last_passage_encodes_nothing_again(corpus, encoder, folder, copy):
    counting = Dying(encoder)
    (copy / "index.json").unlink()
    (copy / "vectors.npy").rename(copy / "vectors.npy.partial")
    build_index(corpus, copy, "flat", counting)
    assert (counting.encoded, sorted(path.name for path in copy.iterdir())) == (
        0,
        sorted(path.name for path in folder.iterdir()),
    )


def test_rows_that_were_deleted_with_their_file_are_encoded_again(corpus, encoder, folder, tmp_path):
    for dies_after in (2, 0):
        with pytest.raises(KeyboardInterrupt):
            build_index(corpus, tmp_path, "flat", Dying(encoder, calls=dies_after))
        if dies_after:
            (tmp_path / "vectors.npy.partial").unlink()
    build_index(corpus, tmp_path, "flat", encoder)
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), np.load(folder / "vectors.npy"), atol=1e-5)


def test_the_vectors_have_their_room_on_the_disk_before_the_first_is_encoded(corpus, encoder, tmp_path):
    if not hasattr(os, "posix_fallocate"):
        pytest.skip("this system cannot reserve room on a disk")
    dying = Dying(encoder, calls=0)
    with pytest.raises(KeyboardInterrupt):
        build_index(corpus, tmp_path, "flat", dying)
    status = (tmp_path / "vectors.npy.partial").stat()
    assert status.st_blocks * 512 >= status.st_size > 4 * 1_200 * encoder.dimension


def test_an_index_whose_end_does_not_fit_on_the_disk_is_an_error(corpus, encoder, copy):
    build_index(corpus, copy, "hnsw", encoder)
    size = (copy / "index.faiss").stat().st_size
    (copy / "index.faiss").unlink()
    with files_up_to(size - 100), pytest.raises(OSError, match=r"is the disk full.*index\.faiss"):
        build_index(corpus, copy, "hnsw", encoder)
    assert not list(copy.glob("*index.*"))
    build_index(corpus, copy, "hnsw", encoder)
    DenseRetriever(copy, encoder)


def test_a_second_kind_of_index_needs_no_encoding(copy, corpus, encoder):
    counting = Dying(encoder)
    build_index(corpus, copy, "hnsw", counting)
    assert counting.encoded == 0


def test_building_over_the_vectors_of_another_corpus_is_refused_and_changes_nothing(copy, corpus, encoder):
    other = Corpus.from_documents(DOCUMENTS[:300])
    with pytest.raises(ValueError, match=f"corpus {corpus.sha256}, this build has corpus {other.sha256}"):
        build_index(other, copy, "flat", encoder)
    assert DenseRetriever(copy, encoder).search(["moth"], 1).ids


def test_building_with_another_encoder_is_refused_with_both_fingerprints(folder, corpus, encoder, tiny_bert):
    other = Encoder(str(tiny_bert), max_tokens=64, device="cpu")
    with pytest.raises(
        ValueError, match=f"encoder {encoder.fingerprint}, this build has encoder {other.fingerprint}"
    ):
        encode_corpus(corpus, other, folder)


def test_an_encoder_of_another_fingerprint_is_refused_with_both(folder, encoder, tiny_bert):
    other = Encoder(str(tiny_bert), query_prefix="q: ", device="cpu")
    with pytest.raises(
        ValueError, match=f"fingerprint {encoder.fingerprint}.*fingerprint {other.fingerprint}"
    ):
        DenseRetriever(folder, other)


@pytest.mark.parametrize("kind", ["lexical", "flat", "hnsw"])
def test_a_flipped_bit_in_an_index_is_refused_in_one_line_or_changes_nothing(kind, encoder, tmp_path):
    passages = [Passage(str(i), f'"Thing {i}"\nwith code {i * 7}') for i in range(40)]
    index = tmp_path / "index"
    build_index(Corpus.from_passages(passages), index, kind, encoder)

    def answers(folder):
        opened = LexicalRetriever.open(folder) if kind == "lexical" else DenseRetriever(folder, encoder)
        hits = opened.search(["code 21", "thing 9"], 3)
        return hits, opened.passages([id for row in hits.ids for id in row])

    before, rng = answers(index), np.random.default_rng(0)
    files = [file.relative_to(index) for file in sorted(index.rglob("*")) if file.is_file()]
    refused = dict.fromkeys(files, 0)
    for file in files:
        for bit in rng.integers(0, 8 * (index / file).stat().st_size, 15).tolist():
            copy = shutil.copytree(index, tmp_path / "copy", copy_function=os.link)
            data = bytearray((index / file).read_bytes())
            data[bit // 8] ^= 1 << bit % 8
            (copy / file).unlink()
            (copy / file).write_bytes(data)
            try:
                found = answers(copy)
            except ValueError as error:
                refused[file] += "\n" not in str(error)
            else:
                refused[file] += found == before
            shutil.rmtree(copy)
    assert refused == dict.fromkeys(files, 15)


def test_an_index_opens_with_its_encoder_at_another_place(folder, tiny_bert, tmp_path):
    moved = shutil.copytree(tiny_bert, tmp_path / "moved")
    assert DenseRetriever(folder, str(moved), device="cpu").search(["moth"], 2).ids[0]


def test_ivfpq_over_too_few_vectors_is_refused():
    with pytest.raises(ValueError, match="at least 256 vectors, the corpus has 100; use flat"):
        index_settings("ivfpq", 100, 32)


def test_a_lexical_folder_is_not_opened_as_dense(corpus, tmp_path, encoder):
    build_index(corpus, tmp_path, "lexical")
    with pytest.raises(ValueError, match="holds a lexical index, not a dense one"):
        DenseRetriever(tmp_path, encoder)


def test_a_card_of_another_format_is_refused_with_both(copy, encoder):
    card = json.loads((copy / "index.json").read_text())
    (copy / "index.json").write_text(json.dumps({**card, "format": 99}))
    with pytest.raises(ValueError, match="format 99, this memenvs reads 1"):
        DenseRetriever(copy, encoder)
