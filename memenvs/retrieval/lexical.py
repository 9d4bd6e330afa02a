"""BM25 over a corpus: `load_retriever("lexical:corpus.jsonl").search(["who built the dam"], k=3)`."""

from __future__ import annotations

import itertools
import sys
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from memenvs.core.files import reserve
from memenvs.core.inputs import input_files
from memenvs.core.progress import progress
from memenvs.core.words import words
from memenvs.retrieval.corpus import BATCH, Corpus, CorpusRetriever, read_corpus
from memenvs.retrieval.index import open_index_folder
from memenvs.retrieval.protocol import Ranked, contenders, ordered

BM25 = "bm25"
ROW_BITS = 32  # of a number that holds a word's above its row's
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
        from bm25s.stopwords import STOPWORDS_EN

        if bm25 is None:
            bm25 = index_words(contents_of(corpus))
        self.corpus = corpus
        self._vocabulary: dict[str, int] = bm25.vocab_dict
        # plain arrays over the same mapped pages: slicing a np.memmap costs microseconds
        self._weights, self._rows, starts = (
            np.asarray(bm25.scores[x]) for x in ("data", "indices", "indptr")
        )
        self._starts: list[int] = starts.tolist()
        self._stop_words = frozenset(STOPWORDS_EN)

    @classmethod
    def from_file(cls, path: Path | str) -> LexicalRetriever:
        """Read and index a corpus (`read_corpus`) of up to MAX_IN_MEMORY bytes in memory.

        Raises:
            ValueError: its files are larger.
        """
        what = "a corpus, a task set, or an index of `memenvs build index`"
        size = sum(file.stat().st_size for file in input_files(path, what))
        if size > MAX_IN_MEMORY:
            raise ValueError(
                f"{path} has {size:,} bytes, more than the {MAX_IN_MEMORY:,} that are indexed in memory; run "
                f"`memenvs build index --corpus {path} --index lexical --out DIR` and give DIR"
            )
        return cls(Corpus.from_passages(read_corpus(path)))

    @classmethod
    def open(cls, folder: Path | str) -> LexicalRetriever:
        """Map an index that `memenvs.retrieval.build.build_index` made.

        Raises:
            FileNotFoundError: there is none.
            ValueError: the folder holds another kind of index, or its parts do not fit together.
        """
        from bm25s import BM25 as Index

        folder = Path(folder)
        _, corpus = open_index_folder(folder, "lexical")
        return cls(corpus, Index.load(folder / BM25, mmap=True))

    def _rank(self, queries: list[str], k: int) -> Iterator[Ranked]:
        for query in queries:
            known = [word for word in words(query) if word in self._vocabulary]
            content = [word for word in known if word not in self._stop_words]
            scores = np.zeros(len(self.corpus), dtype=np.float32)
            for word in content or known:  # a word that comes twice counts twice
                token = self._vocabulary[word]
                postings = slice(self._starts[token], self._starts[token + 1])
                np.add.at(scores, self._rows[postings], self._weights[postings])
            rows = contenders(scores, k)
            yield ordered(scores[rows], rows, self.corpus.rank, k)


def contents_of(corpus: Corpus) -> Iterator[str]:
    """The contents of a corpus's passages, row by row, with their progress."""
    count = len(corpus)
    return (corpus.passage(row).contents for row in progress(range(count), count, "passages"))


def index_words(texts: Iterable[str], folder: Path | None = None) -> Any:
    """The `bm25s.BM25` of some texts. Word numbers follow first appearance: equal texts, equal bytes.

    The scores are those of bm25s's own builder, which needs several kilobytes a text, as it holds all words
    and sorts all scores at once. Here blocks of texts are counted, then each score is put into its place.

    Args:
        texts: are read once.
        folder: gets unnamed files with what need not be in memory, 20 bytes for each different word of a
            text; None: all is in memory.
    """
    from bm25s import BM25 as Index  # here, because importing it is slow

    bm25 = Index()
    where = str(folder) if folder else None
    with tempfile.SpooledTemporaryFile(1 if folder else sys.maxsize, dir=where) as counted:
        vocabulary, lengths, frequency = _count_words(texts, counted)
        count, total, ends = len(lengths), int(frequency.sum()), np.cumsum(frequency)
        idf = np.log(1 + (count - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
        penalty = bm25.k1 * (1 - bm25.b + bm25.b * lengths / max(lengths.sum() / max(count, 1), 1e-9))
        scores: dict[str, Any] = {"num_docs": count, "indptr": np.concatenate([[0], ends])}
        for name, kind in (("data", np.float32), ("indices", np.int32)):
            scores[name] = np.empty(0 if folder else total, kind)
            if folder and total:
                with tempfile.TemporaryFile(dir=folder) as file:
                    reserve(file, 4 * total)
                    scores[name] = np.memmap(file, kind, "w+", shape=total)
        free = ends - frequency  # the next place of each word
        counted.seek(0)
        for _ in range(0, count, BATCH):
            keys, counts = np.load(counted), np.load(counted)
            numbers, rows = keys >> ROW_BITS, keys & (1 << ROW_BITS) - 1
            starts = np.flatnonzero(np.diff(numbers, prepend=-1))  # of the rows of each word
            sizes = np.diff(starts, append=len(numbers))
            places = np.arange(len(numbers)) + np.repeat(free[numbers[starts]] - starts, sizes)
            free[numbers[starts]] += sizes
            scores["data"][places] = idf[numbers] * (counts / (penalty[rows] + counts))
            scores["indices"][places] = rows
    bm25.scores, bm25.vocab_dict, bm25.nonoccurrence_array = scores, vocabulary, None
    bm25.unique_token_ids_set = set(vocabulary.values())
    return bm25


def _count_words(
    texts: Iterable[str], file: IO[bytes]
) -> tuple[dict[str, int], NDArray[np.int64], NDArray[np.int64]]:
    """The number of each of V words, the words in each of N texts (N,), and the texts with each word (V,).

    For each BATCH of texts, the file gets sorted pairs of word and text, and how often the word is in it.
    """
    vocabulary, lengths, frequency = {"": 0}, array("q"), np.zeros(1, np.int64)
    texts = iter(texts)
    while block := list(itertools.islice(texts, BATCH)):
        ids = [[vocabulary.setdefault(word, len(vocabulary)) for word in words(text)] for text in block]
        sizes = [len(numbers) for numbers in ids]
        rows = np.repeat(np.arange(len(lengths), len(lengths) + len(block)), sizes)
        numbers = np.fromiter(itertools.chain.from_iterable(ids), np.int64, len(rows))
        keys, counts = np.unique(numbers << ROW_BITS | rows, return_counts=True)
        earlier, frequency = frequency, np.bincount(keys >> ROW_BITS, minlength=len(vocabulary))
        frequency[: len(earlier)] += earlier
        np.save(file, keys)
        np.save(file, counts.astype(np.int32))
        lengths.extend(sizes)
    return vocabulary, np.array(lengths), frequency


def rank(query: str, texts: Sequence[str]) -> list[int]:
    """Places of the texts that share a word with a query, best first (BM25); of equal ones the later.

    >>> rank("Ada's engine", ["a moth", "the engine", "Ada wrote for the engine"])
    [2, 1]
    """
    known = set(itertools.chain.from_iterable(map(words, texts)))
    asked = [word for word in dict.fromkeys(words(query)) if word in known]
    if not asked:
        return []
    scores = index_words(texts).get_scores(asked)
    return sorted(np.flatnonzero(scores).tolist(), key=lambda place: (-scores[place], -place))
