"""A retriever by its name, one a process: plain text in an environment's keywords, shared by its copies."""

from __future__ import annotations

import functools
import threading
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from memenvs.files import resolved
from memenvs.integrity import json_sha256
from memenvs.retrieval.cache import CachedRetriever
from memenvs.retrieval.card import IndexCard
from memenvs.retrieval.corpus import Corpus
from memenvs.retrieval.protocol import Retriever
from memenvs.tasks import CARD as TASK_SET
from memenvs.tasks import TaskSet, open_tasks

if TYPE_CHECKING:
    from memenvs.retrieval.dense import DenseRetriever
    from memenvs.retrieval.lexical import LexicalRetriever

CACHE = 10_000  # answers
FORMS = '"lexical:FILE.jsonl.gz", "lexical:INDEX_OR_TASK_SET", "dense:INDEX_DIR" or "http://host:port"'
_lock = threading.Lock()


def load_retriever(spec: str, cache: int = CACHE) -> Retriever:
    """The retriever of a spec; equal arguments give the same object, loaded once a process.

    Args:
        spec: `lexical:` and a JSONL corpus, an index folder or a task set's folder; `dense:` and an index
            folder; or the address of a server, `http://` or `https://`.
        cache: answers to remember; 0 for none.

    Raises:
        ValueError: another form, or an index whose parts do not fit together.
        FileNotFoundError: no such file or folder.
        ImportError: the libraries of the extra `search` are missing (not for a server's address).
    """
    kind, _, place = spec.partition(":")
    if kind in ("lexical", "dense") and place:
        spec = f"{kind}:{resolved(place)}"
    with _lock:  # two threads must not load one index twice
        return _load(spec, cache)


def task_set_corpus(tasks: TaskSet) -> Corpus:
    """The documents of a task set as a corpus; their ids are their numbers."""
    numbers = range(tasks.n_documents)
    return Corpus.from_documents(
        zip(map(str, numbers), tasks.titles(numbers), tasks.texts(numbers), strict=True)
    )


def fingerprint(retriever: Retriever) -> str:
    """SHA-256 of what a retriever searches and how: of its corpus and, if it has one, of its index's card.

    Empty for a retriever of another kind, and for a server that does not tell.

    Raises:
        RetrieverError: a server is unreachable.
    """
    from memenvs.retrieval.client import HTTPRetriever

    inner = retriever.retriever if isinstance(retriever, CachedRetriever) else retriever
    if isinstance(inner, HTTPRetriever):
        return inner.fingerprint()
    corpus, card = getattr(inner, "corpus", None), getattr(inner, "card", None)
    if not isinstance(corpus, Corpus):
        return ""
    told = asdict(card) if isinstance(card, IndexCard) else {}
    return json_sha256([corpus.sha256, told])


def open_folder(
    folder: Path | str, encoder: str | None = None, device: str | None = None
) -> DenseRetriever | LexicalRetriever:
    """The retriever of an index folder, of the kind that its card names; not cached, not shared."""
    from memenvs.retrieval.dense import DenseRetriever
    from memenvs.retrieval.lexical import LexicalRetriever

    if IndexCard.read(Path(folder)).kind == "lexical":
        return LexicalRetriever.open(folder)
    return DenseRetriever(folder, encoder, device)


@functools.lru_cache(maxsize=16)
def _load(spec: str, cache: int) -> Retriever:
    retriever = _open(spec)
    return CachedRetriever(retriever, cache) if cache else retriever


def _open(spec: str) -> Retriever:
    kind, _, place = spec.partition(":")
    if kind in ("http", "https"):
        from memenvs.retrieval.client import HTTPRetriever

        return HTTPRetriever(spec)
    if kind == "lexical" and place:
        from memenvs.retrieval.lexical import LexicalRetriever

        if (Path(place) / TASK_SET).is_file():
            return LexicalRetriever(task_set_corpus(open_tasks(place)))
        return LexicalRetriever.open(place) if Path(place).is_dir() else LexicalRetriever.from_file(place)
    if kind == "dense" and place:
        from memenvs.retrieval.dense import DenseRetriever

        return DenseRetriever(place)
    raise ValueError(f"no retriever {spec!r}; it is {FORMS}")
