"""Lexical retrieval: BM25, its order, and the index on disk."""

from __future__ import annotations

import json
import math

import bm25s
import numpy as np
import pytest
from full_disk import files_up_to
from small_world import WORLD

from memenvs.commands import main
from memenvs.retrieval import Corpus, lexical, load_retriever
from memenvs.retrieval.build import build_index
from memenvs.retrieval.lexical import LexicalRetriever, rank, words


@pytest.fixture(scope="module")
def world() -> LexicalRetriever:
    return LexicalRetriever(Corpus.from_documents(WORLD))


def test_scores_are_bm25_by_hand():
    corpus = Corpus.from_passages([("a", "cat"), ("b", "dog dog fish"), ("c", "bird bird")])
    hits = LexicalRetriever(corpus).search(["dog"], 3)
    # idf = ln(1 + (3 - 1 + 0.5)/(1 + 0.5)); tf = 2; length 3, mean length 2: k1 (1 - b + b 3/2) = 1.5 * 1.375
    idf = math.log(1 + 2.5 / 1.5)
    assert hits.ids == [["b"]]
    assert hits.scores[0][0] == pytest.approx(idf * 2 / (2 + 1.5 * 1.375), abs=1e-6)


@pytest.mark.parametrize("on_disk", [False, True])
def test_an_index_counted_in_blocks_is_that_of_bm25s(on_disk, tmp_path, monkeypatch):
    monkeypatch.setattr(lexical, "BATCH", 3)
    texts = ["a b a", "", "b", "c c c d", "a", "e f a b", "a a"]
    ours = lexical.index_words(texts, tmp_path if on_disk else None)
    theirs = bm25s.BM25()
    theirs.index([words(text) for text in texts], show_progress=False)
    for word in "abcdef":
        np.testing.assert_allclose(ours.get_scores([word]), theirs.get_scores([word]), rtol=1e-6)
    assert not [*tmp_path.iterdir()]


def test_texts_are_ranked_by_rare_words_and_short_texts_first():
    texts = ["the the the", "the engine of the mill", "the engine"]
    assert rank("the engine", texts) == [2, 1, 0]
    assert rank("moth", texts) == rank("", texts) == rank("moth", ["", "!"]) == []
    assert rank("mill", ["a mill", "one mill"]) == [1, 0]  # of equal ones the later


def test_the_best_passage_comes_first(world):
    assert [ids[0] for ids in world.search(["first compiler", "night insect"], 2).ids] == ["p2", "p0"]


def test_equal_scores_are_ordered_by_id_also_where_k_cuts():
    ids = [f"d{(i * 37) % 500}" for i in range(500)]
    retriever = LexicalRetriever(Corpus.from_documents([(id, "same", "words here") for id in ids]))
    for k in (1, 3, 100, 500):
        assert retriever.search(["words"], k).ids == [sorted(ids)[:k]]


def test_a_query_without_a_known_word_finds_nothing(world):
    assert world.search(["xyzzy", "", "!?"], 3).ids == [[], [], []]


def test_stop_words_count_only_in_a_query_of_nothing_else(world):
    assert world.search(["the moth"], 9) == world.search(["moth"], 9)
    assert set(world.search(["the"], 9).ids[0]) == {"p1", "p2", "p3"}


def test_case_and_accents_do_not_matter(world):
    assert world.search(["BEYONCE", "beyoncé"], 1).ids == [["p10"], ["p10"]]
    assert words("Čapek's R.U.R.") == ["capek", "s", "r", "u", "r"]


MANY = [
    ("zh", "故宫", "故宫博物院位于北京市中心，建于1420年。"),
    ("ja", "東京", "東京都は日本の首都である。"),
    ("th", "กรุงเทพ", "กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย"),
    ("ko", "서울", "서울은 대한민국의 수도이다."),
    ("hi", "दिल्ली", "दिल्ली भारत की राजधानी है।"),
    ("ar", "السد", "بُنِيَ السَّدُّ من قبل آنا لي."),
    ("de", "Straße", "Die Straße führt nach Köln."),
]


@pytest.mark.parametrize(
    ("query", "id"),
    [
        ("故宫在哪里", "zh"),
        ("首都", "ja"),
        ("เมืองหลวง", "th"),
        ("수도", "ko"),
        ("राजधानी", "hi"),
        ("من بنى السد؟", "ar"),
        ("STRASSE", "de"),
        ("１４２０", "zh"),
    ],
)
def test_a_passage_is_found_in_any_language(query, id):
    assert LexicalRetriever(Corpus.from_documents(MANY)).search([query], 1).ids == [[id]]


@pytest.mark.parametrize("noise", ["x" * 100_000, "moth \ud800 \udfff", "moth\x00\x1b[31m", "moth " * 40_000])
def test_any_string_is_a_query(world, noise):
    assert len(world.search([noise], 3).ids) == 1


def test_a_batch_gives_the_same_as_single_calls(world):
    queries = ["engine", "moth", "engine", "London compiler"]
    batch = world.search(queries, 2)
    assert batch.ids == [world.search([query], 2).ids[0] for query in queries]


def test_a_bare_string_is_not_a_list_of_queries(world):
    with pytest.raises(TypeError, match="wrap it in a list"):
        world.search("moth", 3)


def test_an_index_on_disk_answers_like_one_in_memory(world, tmp_path):
    build_index(world.corpus, tmp_path / "index", "lexical")
    queries = ["engine", "first moth", "Houston"]
    assert LexicalRetriever.open(tmp_path / "index").search(queries, 3) == world.search(queries, 3)


def test_two_builds_are_equal_to_the_byte(world, tmp_path):
    for name in ("one", "two"):
        build_index(world.corpus, tmp_path / name, "lexical")
    files = [p.relative_to(tmp_path / "one") for p in (tmp_path / "one").rglob("*") if p.is_file()]
    assert files
    assert all((tmp_path / "one" / f).read_bytes() == (tmp_path / "two" / f).read_bytes() for f in files)


def test_an_index_whose_end_does_not_fit_on_the_disk_leaves_the_one_before(tmp_path):
    corpus = Corpus.from_passages([(str(number), "the moth engine") for number in range(1_000)])
    build_index(corpus, tmp_path, "lexical")
    size = (tmp_path / "bm25" / "data.csc.index.npy").stat().st_size
    with files_up_to(size - 100), pytest.raises(OSError, match="bm25"):
        build_index(corpus, tmp_path, "lexical")
    LexicalRetriever.open(tmp_path)  # the index before


def test_a_corpus_with_another_hash_is_refused_with_both_hashes(world, tmp_path):
    changed = Corpus.from_documents([*WORLD[:4], ("p0", "Moth", "changed")])
    build_index(world.corpus, tmp_path / "a", "lexical")
    build_index(changed, tmp_path / "b", "lexical")
    (tmp_path / "a" / "corpus").rename(tmp_path / "a" / "gone")
    (tmp_path / "b" / "corpus").rename(tmp_path / "a" / "corpus")
    with pytest.raises(ValueError, match=f"{world.corpus.sha256}.*{changed.sha256}"):
        LexicalRetriever.open(tmp_path / "a")


def test_a_retriever_is_loaded_once_a_process(world, tmp_path):
    build_index(world.corpus, tmp_path / "index", "lexical")
    spec = f"lexical:{tmp_path / 'index'}"
    assert load_retriever(spec) is load_retriever(spec)


@pytest.mark.parametrize("spec", ["", "bm25", "lexical:", "dense", "ftp://x", "faiss:dir"])
def test_an_unknown_spec_names_the_forms(spec):
    with pytest.raises(ValueError, match="lexical:INDEX_OR_TASK_SET"):
        load_retriever(spec)


def test_a_folder_of_shards_is_searched_and_indexed_as_one_corpus(tmp_path):
    (tmp_path / "shards").mkdir()
    for number, word in enumerate(("engine", "moth")):
        record = json.dumps({"id": word, "text": f"the {word}"})
        (tmp_path / "shards" / f"part-{number}.jsonl").write_text(record)
    assert load_retriever(f"lexical:{tmp_path}/shards").search(["moth"], 1).ids == [["moth"]]
    assert load_retriever(f"lexical:{tmp_path}/shards/part-*.jsonl").search(["engine"], 1).ids == [["engine"]]
    arguments = ["--corpus", f"{tmp_path}/shards", "--index", "lexical", "--out", f"{tmp_path}/index"]
    assert main(["build", "index", *arguments]) == 0
    assert load_retriever(f"lexical:{tmp_path}/index").search(["moth"], 1).ids == [["moth"]]


def test_a_folder_without_an_index_names_the_command(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"memenvs build index"):
        load_retriever(f"lexical:{tmp_path}")


def test_a_file_too_large_for_memory_names_the_command(tmp_path):
    with (tmp_path / "huge.jsonl").open("wb") as file:
        file.truncate(300_000_000)
    with pytest.raises(ValueError, match=r"300,000,000 bytes.*--index lexical"):
        load_retriever(f"lexical:{tmp_path / 'huge.jsonl'}")


def test_a_task_sets_folder_is_searched_by_its_documents():
    from memenvs.data import bundled
    from memenvs.tasks.taskset import open_tasks

    tasks = open_tasks("world-test")
    title = tasks.titles([7])[0]
    retriever = load_retriever(f"lexical:{bundled('world-test')}")
    ids = retriever.search([title], 1).ids[0]
    assert retriever.passages(ids)[0].title == title
