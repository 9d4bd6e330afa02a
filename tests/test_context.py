"""The text of a task, and its chunks."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from memenvs.tasks.context import Chunk, Reader
from memenvs.tasks.tokens import TextTokenizer, load_tokenizer


@pytest.fixture(scope="module")
def words():
    """One token a word."""
    backend = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return TextTokenizer(backend, "words")


@pytest.fixture(scope="module")
def reader(small_set):
    return Reader(small_set, load_tokenizer("world"))


def test_documents_are_numbered_from_one_and_separated_by_a_blank_line(reader, small_set):
    task = small_set[0]
    first, second = small_set.shown(task.documents[:2])
    assert reader.context(task.documents[:2]).text == f"Document 1:\n{first}\n\nDocument 2:\n{second}"


@pytest.mark.parametrize("cut_at", ["token", "document"])
@pytest.mark.parametrize("size", [16, 100, 1000, 100_000])
def test_chunks_joined_are_the_text_each_within_its_size(reader, small_set, cut_at, size):
    context = reader.context(small_set[1].documents)
    chunks = context.chunks(size, cut_at)
    assert "".join(context.text[chunk.start : chunk.end] for chunk in chunks) == context.text
    assert max(chunk.tokens for chunk in chunks) <= size
    assert sum(chunk.tokens for chunk in chunks) == len(context.gaps)


def test_cutting_at_documents_cuts_none_that_fits(reader, small_set):
    context = reader.context(small_set[1].documents)
    starts = {chunk.start for chunk in context.chunks(300, "document")}
    headers = {start - len(f"Document {i}:\n") for i, (start, _) in enumerate(context.spans, 1)}
    assert starts <= headers


@pytest.mark.parametrize(("spare", "cut"), [(-1, True), (0, False), (1, False), (2, False)])
def test_cutting_at_documents_cuts_none_that_fits_with_its_header(reader, small_set, spare, cut):
    context = reader.context(small_set[1].documents)
    begins = [start - len(f"Document {i}:\n") for i, (start, _) in enumerate(context.spans, 1)]
    tokens = np.cumsum(context.gaps)
    sizes = [
        int(np.searchsorted(tokens, end) - np.searchsorted(tokens, begin))
        for begin, (_, end) in zip(begins, context.spans, strict=True)
    ]
    chunks = context.chunks(max(sizes) + spare, "document")
    inside = [
        begin < chunk.start < end
        for begin, (_, end) in zip(begins, context.spans, strict=True)
        for chunk in chunks
    ]
    assert any(inside) == cut
    assert max(chunk.tokens for chunk in chunks) <= max(sizes) + spare


def test_cutting_at_documents_cuts_one_that_is_too_long_alone(reader, small_set):
    context = reader.context(small_set[1].documents)
    assert max(chunk.tokens for chunk in context.chunks(20, "document")) <= 20


def test_the_spans_are_the_documents(reader, small_set):
    task = small_set[2]
    context = reader.context(task.documents)
    assert [context.text[start:end] for start, end in context.spans] == small_set.shown(task.documents)


def test_parts_of_a_document_inside_the_chunks_join_to_the_document(reader, small_set):
    context = reader.context(small_set[2].documents)
    parts = [context.inside(chunk, 7) for chunk in context.chunks(16)]
    assert "".join(parts) == context.text[slice(*context.spans[7])]
    assert sum(bool(part) for part in parts) >= 2


def test_a_chunk_beside_a_document_holds_nothing_of_it(reader, small_set):
    context = reader.context(small_set[2].documents)
    start, end = context.spans[3]
    assert context.inside(Chunk(0, start, 0), 3) == ""
    assert context.inside(Chunk(end, len(context.text), 0), 3) == ""


def test_the_reader_forgets_what_it_counted_itself_when_it_is_too_much(small_set, words, monkeypatch):
    reader = Reader(small_set, words)
    whole = [reader.context(task.documents) for task in small_set]
    monkeypatch.setattr("memenvs.tasks.context.FRESH_TOKENS", 1000)
    reader = Reader(small_set, words)
    for task, context in zip(small_set, whole, strict=True):
        assert reader.context(task.documents).gaps.tolist() == context.gaps.tolist()
        assert sum(map(len, reader._fresh.values())) == reader._fresh_tokens <= 1000


def test_documents_are_counted_again_by_another_tokenizer_than_the_cards(small_set, tmp_path):
    world = load_tokenizer("world")
    backend = type(world.backend).from_str(world.backend.to_str())
    backend.add_tokens(["Thing"])
    backend.save(str(tmp_path / "tokenizer.json"))
    other = load_tokenizer(str(tmp_path))
    documents = small_set[0].documents
    context = Reader(small_set, other).context(documents)
    assert context.text == Reader(small_set, world).context(documents).text
    parts = sum(other.counts(small_set.shown(documents)))
    frame = sum(other.counts([f"Document {i}:\n" for i in range(1, 21)])) + 19 * other.count("\n\n")
    assert len(context.gaps) == parts + frame
