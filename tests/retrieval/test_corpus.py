"""The corpus: JSONL in, passages by row and by id out."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_world import WORLD

from memenvs.retrieval.corpus import BATCH, Corpus, read_corpus, write_corpus
from memenvs.retrieval.protocol import Passage


def lines(*records: object) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


@pytest.mark.parametrize(
    ("contents", "title", "text"),
    [
        ('"Title"\nbody', "Title", "body"),
        ("\nno title", "", "no title"),
        ('"A"\n', "A", ""),
        ("T\nbody\nmore", "T", "body\nmore"),
        ('""Weird Al" Yankovic"\nsings', '"Weird Al" Yankovic', "sings"),
        ("one line", "", "one line"),
    ],
)
def test_a_passage_is_its_title_line_and_the_rest(contents, title, text):
    passage = Passage("0", contents)
    assert (passage.title, passage.text) == (title, text)


def test_gzip_and_plain_files_are_one_corpus(tmp_path):
    records = lines({"id": "a", "contents": '"A"\nx'}, {"id": 7, "contents": '"B"\ny'})
    (tmp_path / "c.jsonl").write_bytes(records + b"\n")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(records))
    plain, packed = (Corpus.from_passages(read_corpus(tmp_path / name)) for name in ("c.jsonl", "c.jsonl.gz"))
    assert plain.sha256 == packed.sha256
    assert plain.passages(["7", "a"]) == [Passage("7", '"B"\ny'), Passage("a", '"A"\nx')]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=20))
def test_contents_come_back_to_the_character(texts):
    corpus = Corpus.from_passages(Passage(str(i), text) for i, text in enumerate(texts))
    assert [corpus.passage(row).contents for row in range(len(corpus))] == texts


def test_passages_are_found_by_id_across_batches(tmp_path):
    ids = [f"{(i * 7919) % (BATCH + 50)}" for i in range(BATCH + 50)]
    corpus = write_corpus((Passage(id, f"text of {id}") for id in ids), tmp_path / "corpus")
    assert [p.contents for p in corpus.passages(ids[-60:])] == [f"text of {id}" for id in ids[-60:]]


def test_an_unknown_id_is_named():
    with pytest.raises(KeyError, match="no passage 'p9'"):
        Corpus.from_documents(WORLD).passages(["p1", "p9"])


def test_an_id_that_comes_twice_is_refused():
    with pytest.raises(ValueError, match="id 'p1' comes more than once"):
        Corpus.from_documents([*WORLD, ("p1", "again", "")])


def test_an_empty_corpus_is_refused():
    with pytest.raises(ValueError, match="no passages"):
        Corpus.from_documents([])


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b'{"id": "2"}', b'{"id": null, "contents": ""}', b"\xff", b"[" * 100_000]
)
def test_a_malformed_line_is_refused_by_its_number(tmp_path, line):
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines({"id": "1", "contents": "x"}) + line)
    with pytest.raises(ValueError, match=r"c\.jsonl.*\b2: "):
        list(read_corpus(path))


@pytest.mark.parametrize(
    ("name", "content", "passage"),
    [
        ("beir.jsonl", '{"_id": "1", "title": "T", "text": "One."}', Passage("1", '"T"\nOne.')),
        ("beir.jsonl", '\ufeff{"_id": "1", "title": "", "text": "One."}\r\n', Passage("1", "One.")),
        ("bcp.jsonl", '{"docid": "1", "text": "One.\\nTwo.", "url": "u"}', Passage("1", "\nOne.\nTwo.")),
        ("wiki.jsonl", '{"id": "1", "title": "T", "text": "One."}', Passage("1", '"T"\nOne.')),
        ("both.jsonl", '{"id": 1, "contents": "T\\nOne.", "text": "x"}', Passage("1", "T\nOne.")),
        ("dpr.tsv", 'id\ttext\ttitle\n1\t"A ""b""\tc"\tT\n', Passage("1", '"T"\nA "b"\tc')),
        ("marco.tsv", '1\t"One" and\n', Passage("1", '"One" and')),
        ("bare.tsv", "1\tOne.\tT\n", Passage("1", '"T"\nOne.')),
        (
            "docs.tsv",
            "D1\thttps://a.b/c\tThe dam\tAnn built the dam.\n",
            Passage("D1", '"The dam"\nAnn built the dam.'),
        ),
        ("docs.tsv", "D1\thttps://a.b/c\t\tAnn built the dam.\n", Passage("D1", "Ann built the dam.")),
        ("head.tsv", "docid\turl\ttitle\tbody\nD1\thttps://a.b/c\tDam\tOne.\n", Passage("D1", '"Dam"\nOne.')),
        ("head.tsv", 'pid\tpassage\n1\t"One" and "two\n', Passage("1", '"One" and "two')),
        ("head.csv", "Doc_ID,Heading,Content\r\n1,Dam,One.\r\n", Passage("1", '"Dam"\nOne.')),
        ("pandas.tsv", 'id\ttext\ttitle\n1\t"One\nand"\tT\n', Passage("1", '"T"\nOne\nand')),
        ("quoted.tsv", '"id"\t"text"\n"1"\t"One."\n', Passage("1", "One.")),
        ("bare.tsv", '1\t"A ""b""\tc"\tT\n', Passage("1", '"T"\nA "b"\tc')),
        (
            "bare.tsv",
            "1\tThe dam\tAnn Lee built the dam in 1933.\n",
            Passage("1", '"The dam"\nAnn Lee built the dam in 1933.'),
        ),
        ("bare.csv", '2,"Bo, the miller",Mill\n', Passage("2", '"Mill"\nBo, the miller')),
        ("bare.csv", '2,"Bo, the\nmiller"\n', Passage("2", "\nBo, the\nmiller")),
        ("dpr.tsv", 'id\ttext\ttitle\n1\t"God granted it"\tAaron\n', Passage("1", '"Aaron"\nGod granted it')),
        ("marco.tsv", '1\t"All of it."\n', Passage("1", '"All of it."')),
        ("pandas.csv", ",id,text\n0,a,Ann\n", Passage("a", "Ann")),
        ("no_ids.csv", 'text\n"One, two"\n', Passage("0", "One, two")),
        (
            "no_ids.tsv",
            "The dam\tAnn Lee built the dam.\n",
            Passage("0", '"The dam"\nAnn Lee built the dam.'),
        ),
        ("no_ids.jsonl", '{"title": "T", "text": "One."}', Passage("0", '"T"\nOne.')),
        ("cjk.tsv", "1\t1933年建成的水坝\n", Passage("1", "1933年建成的水坝")),
        ("v2.jsonl", '{"pid": "p1", "passage": "One.", "docid": "d1"}', Passage("p1", "One.")),
        ("titled.jsonl", '{"id": "1", "title": "T", "contents": "One."}', Passage("1", '"T"\nOne.')),
        (
            "titled.jsonl",
            '{"id": "1", "title": "T", "contents": "\\"T\\"\\nOne."}',
            Passage("1", '"T"\nOne.'),
        ),
        ("long.tsv", f"1\t{'a ' * 100_000}\n", Passage("1", "a " * 100_000)),
        ("long.csv", f"id,text\n1,{'a ' * 100_000}\n", Passage("1", "a " * 100_000)),
    ],
)
def test_corpora_are_read_as_others_publish_them(tmp_path, name, content, passage):
    (tmp_path / name).write_bytes(content.encode())
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
    assert list(read_corpus(tmp_path / name)) == [passage]
    assert list(read_corpus(tmp_path / f"{name}.gz")) == [passage]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("codes.tsv", "1\t7\n"),
        ("equal.tsv", "1\tAnn Lee\tBo Kim\n"),
        ("many.tsv", "1\tdam\tThe text of it.\ten\n"),
        ("names.tsv", "number\tsentence\n1\tAnn Lee built the dam.\n"),
        ("header.tsv", "docid\turl\tabstract\nD1\thttps://a.b/c\tOne.\n"),
        ("twice.tsv", "d1\tAnn Lee built it.\nd1\tBo Kim runs it.\n"),
        ("torn.csv", "1,Ann built it,Dam\n2,Bo, the miller,Mill\n"),
        ("torn.csv", "Ann Lee, who built the dam.\nBo Kim, who runs it.\n"),
        ("torn.csv", "id,text\n1,Bo, the miller\n"),
        ("late.tsv", "".join(f"{n}\tA text.\n" for n in range(99)) + "99\n"),
        ("mixed.jsonl", '{"id": "1", "text": "a"}\n{"text": "b"}\n'),
        ("mixed.jsonl", '{"text": "a"}\n{"id": "1", "text": "b"}\n'),
        ("misspelt.jsonl", '{"id": "1", "passages": "a"}\n'),
    ],
)
def test_a_corpus_whose_parts_cannot_be_told_apart_is_refused_in_one_line(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / name))) as refusal:
        list(read_corpus(tmp_path / name))
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [("c.csv", b"id,text\n1,\xff\n"), ("c.jsonl.gz", b"plain"), ("c.parquet", b"plain")],
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / name))):
        list(read_corpus(tmp_path / name))


def test_a_corpus_may_be_parquet(tmp_path):
    pq.write_table(pa.Table.from_pylist([{"docid": "1", "text": "One."}]), tmp_path / "c.parquet")
    assert list(read_corpus(tmp_path / "c.parquet")) == [Passage("1", "One.")]


def test_passages_of_several_files_without_ids_are_numbered_through(tmp_path):
    for number in range(2):
        (tmp_path / f"part-{number}.txt").write_text(f"The dam {number}\tAnn Lee built the dam.\n")
    passages = read_corpus(tmp_path / "part-*.txt")
    assert [(passage.id, passage.title) for passage in passages] == [("0", "The dam 0"), ("1", "The dam 1")]


def test_a_text_of_several_lines_without_a_title_has_none(tmp_path):
    (tmp_path / "c.jsonl").write_bytes(lines({"docid": "1", "text": "---\nurl: u"}))
    (passage,) = read_corpus(tmp_path / "c.jsonl")
    assert (passage.title, passage.text) == ("", "---\nurl: u")


def test_lone_surrogates_are_replaced(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(lines({"id": "1", "contents": "a\ud800b"}))
    assert next(read_corpus(path)).contents == "a\ufffdb"


def test_an_opened_corpus_is_mapped_and_not_read(tmp_path):
    write_corpus((Passage(str(i), "x" * 10_000) for i in range(3_000)), tmp_path / "corpus")
    before = pa.total_allocated_bytes()
    corpus = Corpus.open(tmp_path / "corpus")
    assert corpus.passage(2_999).contents == "x" * 10_000
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_a_conversion_that_dies_leaves_no_corpus(tmp_path):
    write_corpus([Passage("old", "x")], tmp_path / "corpus")
    with pytest.raises(ValueError, match="more than once"):
        write_corpus([Passage("new", "x"), Passage("new", "x")], tmp_path / "corpus")
    with pytest.raises(FileNotFoundError, match="no corpus in"):
        Corpus.open(tmp_path / "corpus")


def test_a_file_that_was_not_written_with_the_others_is_refused(tmp_path):
    write_corpus([Passage("a", "x"), Passage("b", "y")], tmp_path / "corpus")
    np.save(tmp_path / "corpus" / "rank.npy", np.zeros(2, np.uint32))
    with pytest.raises(ValueError, match=r"rank\.npy has SHA-256"):
        Corpus.open(tmp_path / "corpus")


def test_the_real_passages_are_read(wiki: Path):
    corpus = Corpus.from_passages(read_corpus(wiki))
    assert (len(corpus), corpus.passage(0).title) == (11_043, "Teutberga")
