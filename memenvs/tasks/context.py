"""A task's documents as one text, cut into chunks."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memenvs.tasks.taskset import Layout, TaskSet
from memenvs.tasks.tokens import Gaps, TextTokenizer, pack, text_gaps


@dataclass(frozen=True)
class Chunk:
    """A slice of a context.

    Attributes:
        start: first character.
        end: one past the last character.
        tokens: its tokens in the context's tokenisation.
    """

    start: int
    end: int
    tokens: int


@dataclass(frozen=True)
class Context:
    """The text of one task.

    Documents, headers and separators are tokenised separately, and their tokens joined are the tokens of the
    context, so each document is tokenised once, however many tasks show it.

    Attributes:
        text: the whole text.
        spans: for each document, the characters [start, end) of title and text in `text`.
        gaps: where the text may be cut (`memenvs.tasks.tokens.Gaps`).
        seams: rising: tokens before the separator after each document, and after it.
    """

    text: str
    spans: tuple[tuple[int, int], ...]
    gaps: Gaps
    seams: np.ndarray

    def chunks(self, chunk_size: int, cut_at: str = "token") -> list[Chunk]:
        """Consecutive chunks of at most `chunk_size` tokens; joined they are the text.

        Args:
            chunk_size: tokens.
            cut_at: `"token"` cuts at any token that ends a character; `"document"` cuts a document only where
                it is longer than a chunk, with its header; the separator after it may begin the next chunk.
        """
        ends = pack(self.gaps, chunk_size, self.seams if cut_at == "document" else None)
        return [
            Chunk(start, end, tokens - before)
            for (start, before), (end, tokens) in zip([(0, 0), *ends], ends, strict=False)
        ]

    def inside(self, chunk: Chunk, position: int) -> str:
        """The part of the document at `position` (from 0) that lies inside `chunk`; empty if none does."""
        start, end = self.spans[position]
        return self.text[max(start, chunk.start) : max(0, min(end, chunk.end))]

    def depth(self, position: int) -> float:
        """Where the document at `position` begins, as a share of the text, 0 to 1."""
        return self.spans[position][0] / len(self.text)


class Reader:
    """Makes contexts from a task set with one tokenizer; gaps come from the set where its card has them.

    Args:
        tasks: the set.
        tokenizer: counts and cuts.
    """

    def __init__(self, tasks: TaskSet, tokenizer: TextTokenizer) -> None:
        self.tasks = tasks
        self.tokenizer = tokenizer
        self._stored = tasks.card.tokenizer.get("fingerprint") == tokenizer.fingerprint

    def context(self, documents: Sequence[int]) -> Context:
        """The text of the numbered documents, in that order."""
        bodies = self.tasks.document_texts(documents)
        parts = _parts(self.tokenizer, self.tasks.card.layout, len(bodies))
        texts, gaps = [text for text, _ in parts], [gaps for _, gaps in parts]
        texts[1::3] = bodies
        gaps[1::3] = (
            self.tasks.stored_gaps(documents)
            if self._stored
            else [_document_gaps(self, number) for number in documents]
        )
        ends, tokens = (np.cumsum(list(map(len, column))) for column in (texts, gaps))
        return Context(
            "".join(texts[:-1]),
            tuple(zip(ends[::3].tolist(), ends[1::3].tolist(), strict=True)),
            np.concatenate(gaps[:-1]),
            np.delete(tokens, np.s_[::3])[:-1],
        )


@functools.lru_cache(maxsize=4096)
def _document_gaps(reader: Reader, number: int) -> Gaps:
    """Where a document may be cut by another tokenizer than its card's, remembered."""
    (gaps,) = reader.tokenizer.gaps(reader.tasks.document_texts([number]))
    return gaps


@functools.lru_cache(maxsize=256)
def _parts(tokenizer: TextTokenizer, layout: Layout, documents: int) -> list[tuple[str, Gaps]]:
    """A context of so many documents, three parts each: header, body (empty here) and separator."""
    separator, nothing = text_gaps(tokenizer, layout.separator), np.empty(0, np.uint32)
    headers = [layout.header.replace("{i}", str(number)) for number in range(1, documents + 1)]
    return [
        part
        for header in headers
        for part in ((header, text_gaps(tokenizer, header)), ("", nothing), (layout.separator, separator))
    ]


@functools.lru_cache(maxsize=16)
def open_reader(tasks: TaskSet, tokenizer: TextTokenizer) -> Reader:
    """The reader of a set by a tokenizer, shared inside a process."""
    return Reader(tasks, tokenizer)
