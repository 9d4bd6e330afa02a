"""Remember the answers to recent queries: rollouts of one task often ask the same."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from memenvs.retrieval.protocol import Hits, Passage, Retriever
from memenvs.retrieval.ranking import search_distinct

Key = tuple[str, int]
Answer = tuple[list[str], list[float]]


class CachedRetriever:
    """A retriever before which the last `size` different (query, k) are remembered; a `Retriever`.

    What it has not seen goes to the retriever in one call. Safe to share between threads.

    Args:
        retriever: answers what is not remembered.
        size: answers kept, the least recently used forgotten first; about 2 kB each at k = 3.

    Attributes:
        hits: queries answered from memory so far.
        misses: queries searched so far; a query that comes twice in a call is searched once.
    """

    def __init__(self, retriever: Retriever, size: int = 10_000):
        if size < 1:
            raise ValueError(f"a cache keeps at least one answer, not {size}")
        self.retriever = retriever
        self.size = size
        self.hits = self.misses = 0
        self._answers: OrderedDict[Key, Answer] = OrderedDict()
        self._lock = threading.Lock()

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The best k passages of each query; see `Retriever.search`."""
        found = search_distinct(queries, k, self._search)
        with self._lock:
            self.hits += len(queries) - len(set(queries))
        return found

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """The passages of these ids; KeyError for an id that is not in the corpus."""
        return self.retriever.passages(ids)

    def _search(self, queries: list[str], k: int) -> Hits:
        known = self._remembered(queries, k)
        missing = [query for query in queries if query not in known]
        if missing:
            found = self.retriever.search(missing, k)
            known.update(zip(missing, zip(found.ids, found.scores, strict=True), strict=True))
            self._keep(missing, k, known)
        return Hits([known[query][0] for query in queries], [known[query][1] for query in queries])

    def _remembered(self, queries: list[str], k: int) -> dict[str, Answer]:
        known = {}
        with self._lock:
            for query in queries:
                if (query, k) in self._answers:
                    self._answers.move_to_end((query, k))
                    known[query] = self._answers[query, k]
            self.hits += len(known)
            self.misses += len(queries) - len(known)
        return known

    def _keep(self, queries: list[str], k: int, known: dict[str, Answer]) -> None:
        with self._lock:
            for query in queries:
                self._answers[query, k] = known[query]
            while len(self._answers) > self.size:
                self._answers.popitem(last=False)
