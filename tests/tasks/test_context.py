"""The text of a task, and its chunks."""

import numpy as np
import pytest

from memenvs.tasks.context import Reader
from memenvs.tasks.tokens import load_tokenizer


@pytest.fixture(scope="module")
def reader(small_set):
    return Reader(small_set, load_tokenizer("world"))


@pytest.mark.parametrize("cut_at", ["token", "document"])
@pytest.mark.parametrize("size", [16, 100, 1000, 100_000])
def test_chunks_joined_are_the_text_each_within_its_size(reader, small_set, cut_at, size):
    context = reader.context(small_set[1].documents)
    chunks = context.chunks(size, cut_at)
    assert "".join(context.text[chunk.start : chunk.end] for chunk in chunks) == context.text
    assert max(chunk.tokens for chunk in chunks) <= size
    assert sum(chunk.tokens for chunk in chunks) == len(context.gaps)


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


def test_documents_are_counted_again_by_another_tokenizer_than_the_cards(small_set, tmp_path):
    world = load_tokenizer("world")
    backend = type(world.backend).from_str(world.backend.to_str())
    backend.add_tokens(["Thing"])
    backend.save(str(tmp_path / "tokenizer.json"))
    other = load_tokenizer(str(tmp_path))
    documents = small_set[0].documents
    context = Reader(small_set, other).context(documents)
    assert context.text == Reader(small_set, world).context(documents).text
    parts = sum(other.counts(small_set.document_texts(documents)))
    frame = sum(other.counts([f"Document {i}:\n" for i in range(1, 21)])) + 19 * other.count("\n\n")
    assert len(context.gaps) == parts + frame
