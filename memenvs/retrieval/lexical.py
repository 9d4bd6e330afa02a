"""BM25 over a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from memenvs.core.optional import require
from memenvs.core.words import words
from memenvs.retrieval.corpus import Corpus, CorpusRetriever, read_corpus
from memenvs.retrieval.index import open_index_folder
from memenvs.retrieval.protocol import Ranked, contenders, ordered

BM25 = "bm25"
MAX_IN_MEMORY = 256_000_000  # bytes of a JSONL file that is indexed when it is opened


class LexicalRetriever(CorpusRetriever):
    """BM25 (Lucene's variant: k1 1.5, b 0.75) over a corpus; a `Retriever`.

    Words are those of `memenvs.core.words.words`, pairs of characters in scripts without blanks. A passage
    that shares no word with a query is not found: a row of `search` may be short or empty.
    English stop words count only in a query of nothing else ("The Who").

    Args:
        corpus: what is searched.
        bm25: its index, of `index_words`; None: made in memory, about 0.1 ms a passage.
    """

    def __init__(self, corpus: Corpus, bm25: Any = None):
        if bm25 is None:
            bm25 = index_words(corpus)
        self.corpus = corpus
        self._vocabulary: dict[str, int] = bm25.vocab_dict
        # plain arrays over the same mapped pages: slicing a np.memmap costs microseconds
        self._weights, self._rows, starts = (
            np.asarray(bm25.scores[x]) for x in ("data", "indices", "indptr")
        )
        self._starts: list[int] = starts.tolist()
        self._stop_words = frozenset(require("bm25s.stopwords", "search").STOPWORDS_EN)

    @classmethod
    def from_file(cls, path: Path | str) -> LexicalRetriever:
        """Read and index a JSONL corpus of up to MAX_IN_MEMORY bytes in memory.

        Raises:
            ValueError: the file is larger.
        """
        size = Path(path).stat().st_size
        if size > MAX_IN_MEMORY:
            raise ValueError(
                f"{path} has {size:,} bytes, more than the {MAX_IN_MEMORY:,} that are indexed in memory; run "
                f"`memenvs build index --corpus {path} --index lexical --out DIR` and give DIR"
            )
        return cls(Corpus.from_passages(read_corpus(path)))

    @classmethod
    def open(cls, folder: Path | str) -> LexicalRetriever:
        """Map an index that `memenvs.build.index.build_index` made.

        Raises:
            FileNotFoundError: there is none.
            ValueError: the folder holds another kind of index, or its parts do not fit together.
        """
        folder = Path(folder)
        _, corpus = open_index_folder(folder, "lexical")
        return cls(corpus, require("bm25s", "search").BM25.load(folder / BM25, mmap=True))

    def _rank(self, queries: list[str], k: int) -> Iterator[Ranked]:
        for query in queries:
            scores = self._score(query)
            rows = contenders(scores, k)
            yield ordered(scores[rows], rows, self.corpus.rank, k)

    def _score(self, query: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        """(N,) BM25 scores; a word that comes twice in the query counts twice."""
        known = [word for word in words(query) if word in self._vocabulary]
        content = [word for word in known if word not in self._stop_words]
        scores = np.zeros(len(self.corpus), dtype=np.float32)
        for word in content or known:
            token = self._vocabulary[word]
            postings = slice(self._starts[token], self._starts[token + 1])
            np.add.at(scores, self._rows[postings], self._weights[postings])
        return scores


def index_words(corpus: Corpus) -> Any:
    """The `bm25s.BM25` of a corpus. Word numbers follow first appearance: equal corpora, equal bytes."""
    vocabulary: dict[str, int] = {"": 0}
    tokens = [
        [vocabulary.setdefault(word, len(vocabulary)) for word in words(corpus.passage(row).contents)]
        for row in range(len(corpus))
    ]
    bm25 = require("bm25s", "search").BM25()
    bm25.index((tokens, vocabulary), show_progress=False)
    return bm25
