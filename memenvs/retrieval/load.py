"""Retrievers by name, loaded once a process, with a cache of answers.

`load_retriever("lexical:INDEX").search(["who built it?"], k=5)`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from memenvs.core.data import Whole, checked, shown
from memenvs.core.files import CARD as TASK_SET
from memenvs.core.files import json_sha256, resolved
from memenvs.retrieval.corpus import Corpus
from memenvs.retrieval.index import CARD, IndexCard
from memenvs.retrieval.protocol import DistinctSearch, Hits, LRUCache, Passage, Retriever
from memenvs.tasks.taskset import TaskSet, open_tasks

if TYPE_CHECKING:
    from memenvs.retrieval.dense import DenseRetriever
    from memenvs.retrieval.lexical import LexicalRetriever

CACHE = 10_000  # answers
FORMS = '"lexical:FILE.jsonl.gz", "lexical:INDEX_OR_TASK_SET", "dense:INDEX_DIR" or "http://host:port"'
_lock = threading.Lock()


@checked
def load_retriever(spec: str, cache: Whole = CACHE) -> Retriever:
    """The retriever of a spec; equal arguments give the same object, loaded once a process.

    Args:
        spec: `lexical:` and a JSONL corpus, an index folder or a task set's folder; `dense:` and an index
            folder; or the address of a server, `http://` or `https://`.
        cache: answers to remember; 0 for none.

    Raises:
        ValueError: another form, or an index whose parts do not fit together.
        FileNotFoundError: no such file or folder.
        ImportError: the libraries of the extra `search` are missing (for `dense:` only).
    """
    kind, _, place = spec.partition(":")
    if kind in ("lexical", "dense") and place:
        spec = f"{kind}:{resolved(place)}"
    with _lock:  # two threads must not load one index twice
        return _open_retriever(spec, cache)


@functools.lru_cache(maxsize=16)
def _open_retriever(spec: str, cache: int) -> Retriever:
    kind, _, place = spec.partition(":")
    retriever: Retriever
    if kind in ("http", "https"):
        from memenvs.retrieval.client import HTTPRetriever

        retriever = HTTPRetriever(spec)
    elif kind == "lexical" and place:
        from memenvs.retrieval.lexical import LexicalRetriever

        if (Path(place) / TASK_SET).is_file():
            retriever = LexicalRetriever(task_set_corpus(open_tasks(place)))
        elif (Path(place) / CARD).is_file() or (Path(place) / "corpus").is_dir():
            retriever = LexicalRetriever.open(place)
        else:
            retriever = LexicalRetriever.from_file(place)
    elif kind == "dense" and place:
        from memenvs.retrieval.dense import DenseRetriever

        retriever = DenseRetriever(place)
    else:
        raise ValueError(f"no retriever {shown(spec)}; it is {FORMS}")
    return CachedRetriever(retriever, cache) if cache else retriever


def open_folder(
    folder: Path | str, encoder: str | None = None, device: str | None = None
) -> DenseRetriever | LexicalRetriever:
    """The retriever of an index folder, of the kind that its card names; not cached, not shared."""
    from memenvs.retrieval.dense import DenseRetriever
    from memenvs.retrieval.lexical import LexicalRetriever

    if IndexCard.read(Path(folder)).kind == "lexical":
        return LexicalRetriever.open(folder)
    return DenseRetriever(folder, encoder, device)


def task_set_corpus(tasks: TaskSet) -> Corpus:
    """The documents of a task set as a corpus; their ids are their numbers."""
    numbers = range(tasks.n_documents)
    return Corpus.from_documents(
        zip(map(str, numbers), tasks.titles(numbers), tasks.texts(numbers), strict=True)
    )


def fingerprint(retriever: Retriever) -> str:
    """SHA-256 of what a retriever searches and how: of its corpus and, if it has one, of its index's card.

    Empty for a retriever of another kind, and for a server that does not say.

    Raises:
        ServerError: a server is unreachable.
    """
    inner = retriever.retriever if isinstance(retriever, CachedRetriever) else retriever
    if asks := getattr(inner, "fingerprint", None):  # a server's
        return str(asks())
    corpus, card = getattr(inner, "corpus", None), getattr(inner, "card", None)
    if not isinstance(corpus, Corpus):
        return ""
    return json_sha256([corpus.sha256, asdict(card) if isinstance(card, IndexCard) else {}])


class CachedRetriever(DistinctSearch):
    """A retriever with a cache of the latest `size` different (query, k); a `Retriever`.

    All misses of a call go to the retriever in one call. Threads may share it.

    Args:
        retriever: answers the misses.
        size: answers kept, the least recently used dropped first; about 2 kB each at k = 3.
    """

    def __init__(self, retriever: Retriever, size: int = CACHE):
        self.retriever = retriever
        self._answers: LRUCache[tuple[str, int], tuple[list[str], list[float]]] = LRUCache(size)

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """The passages of these ids; KeyError for an id that is not in the corpus."""
        return self.retriever.passages(ids)

    def _search(self, queries: list[str], k: int) -> Hits:
        known = self._answers.get((query, k) for query in queries)
        missing = [query for query in queries if (query, k) not in known]
        if missing:
            hits = self.retriever.search(missing, k)
            new = zip(missing, hits.ids, hits.scores, strict=True)
            searched = {(query, k): (ids, scores) for query, ids, scores in new}
            self._answers.put(searched)
            known |= searched
        answers = [known[query, k] for query in queries]
        return Hits([ids for ids, _ in answers], [scores for _, scores in answers])
