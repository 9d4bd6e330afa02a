"""The protocol of retrievers, and what they share: the order of equal scores, a cache."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from memenvs.core.inputs import read_text
from memenvs.core.spaces import replace_surrogates

MAX_QUERY_CHARS = 2_000  # E5 reads 256 tokens; a policy may write 100 kB of noise
MAX_PASSAGES = 10_240  # queries times passages a query, in one request to a server
TOKEN_FILE = "MEMENVS_TOKEN_FILE"  # the environment variable that names the file with a retriever's token


class Passage(NamedTuple):
    """One passage of a corpus.

    Attributes:
        id: unique in its corpus.
        contents: the title in double quotes, a newline, the text; what encoders read.
    """

    id: str
    contents: str

    @classmethod
    def of(cls, id: str, title: str, text: str) -> Passage:
        """A passage from its parts."""
        return cls(id, f'"{title}"\n{text}')

    @property
    def title(self) -> str:
        """The first line without its quotes; empty where there is only one line."""
        first, newline, _ = self.contents.partition("\n")
        quoted = len(first) >= 2 and first[0] == first[-1] == '"'
        return (first[1:-1] if quoted else first) if newline else ""

    @property
    def text(self) -> str:
        """All that follows the first line; everything where there is only one line."""
        first, newline, rest = self.contents.partition("\n")
        return rest if newline else first


class Hits(NamedTuple):
    """The answer to B queries, best first; a row may be shorter than k, or empty.

    Attributes:
        ids: B lists of passage ids.
        scores: B lists of scores, in step with `ids`; larger is better.
    """

    ids: list[list[str]]
    scores: list[list[float]]


class Retriever(Protocol):
    """Finds passages. Equal scores are ordered by id (as strings), also where k cuts."""

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The best k passages (k >= 1) of each query; any string is a query, a blank one finds nothing."""
        ...

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """The passages of these ids, in this order.

        Raises:
            KeyError: an id is not in the corpus.
        """
        ...


Ranked = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Scores and rows (k,), best first."""

DECIMALS = 6  # float32 noise of batch shapes is about 1e-7: it must not decide an order
LANES = 64


def ordered(
    scores: NDArray[np.floating[Any]], rows: NDArray[np.int64], rank: NDArray[np.uint32], k: int
) -> Ranked:
    """The k best of C scored rows, equal scores (to DECIMALS) by the rank of their ids.

    `scores` and `rows` are (C,); what comes back is (min(k, C),) each.
    """
    rounded = np.asarray(scores, dtype=np.float64).round(DECIMALS)
    best = np.lexsort((rank[rows], -rounded))[:k]
    return rounded[best], rows[best]


def contenders(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Rows of `scores` (N,) that can be among the k best with a positive score: all, ties too, and few more.

    The k-th largest maximum of N / LANES disjoint sets of rows is never above the k-th largest score, and
    costs three streaming passes where a partition of all scores costs ten times as much.
    """
    sets = len(scores) // LANES
    if k >= sets:
        return np.flatnonzero(scores > 0)
    maxima = scores[: sets * LANES].reshape(LANES, sets).max(axis=0)
    bound = np.partition(maxima, sets - k)[sets - k] - 10.0**-DECIMALS
    return np.flatnonzero(scores >= bound) if bound > 0 else np.flatnonzero(scores > 0)


class DistinctSearch:
    """A `Retriever` that searches each distinct query once; a subclass has `_search` and `passages`."""

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The best k passages of each query, cleaned and cut at MAX_QUERY_CHARS; see `Retriever.search`.

        Raises:
            TypeError: `queries` is one string.
            ServerError: a server gave no answer of a protocol in its `tries`, or refused the request
                (`RequestRefused`).
        """
        if isinstance(queries, str):
            raise TypeError(f"queries must be a list of strings, got {queries!r:.60}; wrap it in a list")
        cleaned = [replace_surrogates(query[:MAX_QUERY_CHARS]) for query in queries]
        distinct = [query for query in dict.fromkeys(cleaned) if query.strip()]
        hits = self._search(distinct, k) if distinct else Hits([], [])
        rows_of_queries = dict(zip(distinct, zip(*hits, strict=True), strict=True))
        rows = [rows_of_queries.get(query, ([], [])) for query in cleaned]
        # lists of its own for every query, so that a caller may change them
        return Hits([list(ids) for ids, _ in rows], [list(scores) for _, scores in rows])

    def _search(self, queries: list[str], k: int) -> Hits:
        """The answers to distinct queries, none of them blank."""
        raise NotImplementedError


K = TypeVar("K")
V = TypeVar("V")


class LRUCache(Generic[K, V]):
    """A cache of `size` entries, the least recently used dropped first; safe to share between threads.

    Args:
        size: entries, at least 1.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, keys: Iterable[K]) -> dict[K, V]:
        """The entries of those keys that are here."""
        with self._lock:
            entries = {key: self._entries[key] for key in keys if key in self._entries}
            for key in entries:
                self._entries.move_to_end(key)
        return entries

    def put(self, entries: Mapping[K, V]) -> None:
        """Add entries, or put them in the place of those with the same keys."""
        with self._lock:
            for key, value in entries.items():
                self._entries[key] = value
                self._entries.move_to_end(key)
            while len(self._entries) > self.size:
                self._entries.popitem(last=False)


def read_token(path: str | Path | None) -> str | None:
    """The token in a file, without white space around it; None of no file.

    Raises:
        ValueError: the file is empty or not UTF-8, or the token fits in no header.
    """
    if not path:
        return None
    token = read_text(Path(path)).strip()
    if not token:
        raise ValueError(f"{path} is empty; write a token into it")
    if not (token.isascii() and token.isprintable()):
        raise ValueError(f"the token in {path} has an unprintable character; write another")
    return token
