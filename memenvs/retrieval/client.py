"""A retriever behind a server."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec

from memenvs.core.data import convert
from memenvs.core.http import TOKEN_FILE, JSONClient, RequestRefused, read_token
from memenvs.retrieval.corpus import Document
from memenvs.retrieval.protocol import MAX_PASSAGES, Hits, LRUCache, Passage, search_distinct

FIX = "is it up? `memenvs serve retriever --index DIR --port 8000` starts one"


class HTTPRetriever:
    """Searches through `POST {url}/retrieve`, the protocol of `memenvs.retrieval.server`; a `Retriever`.

    Any server of that protocol will do. It may be used from several threads, and after a fork. If the
    environment's MEMENVS_TOKEN_FILE names a file, every request sends the token in it.

    Args:
        url: `http://host:port`, `https://` too; a path before `/retrieve` is kept.
        timeout, tries, pause: see `JSONClient`.
        batch: most queries in a request; more are sent in turn. At a large k it is fewer: a server of ours
            gives 10,240 passages a request.
        remembered: passages kept for `passages`, the least recently used dropped first; about 1 kB each.
    """

    def __init__(
        self,
        url: str,
        timeout: float = 60.0,
        tries: int = 5,
        pause: float = 0.25,
        batch: int = 256,
        remembered: int = 100_000,
    ):
        key = read_token(os.environ.get(TOKEN_FILE))
        self._client = JSONClient(url, timeout=timeout, tries=tries, pause=pause, key=key, fix=FIX)
        self.url, self.batch = self._client.url, batch
        self._passages: LRUCache[str, Passage] = LRUCache(remembered)

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The best k passages of each query; see `Retriever.search`.

        Raises:
            ServerError: no answer of the protocol in `tries` tries, or a refusal (`RequestRefused`).
        """
        return search_distinct(queries, k, self._search)

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """The passages of ids that a search has returned; KeyError for others."""
        known = self._passages.get(ids)
        for id in ids:
            if id not in known:
                raise KeyError(f"no recent search of {self.url} returned passage {id!r}; search first")
        return [known[id] for id in ids]

    def fingerprint(self) -> str:
        """What `GET {url}/health` says of its index (see `load.fingerprint`); empty if it says nothing.

        Raises:
            ServerError: no answer in `tries` tries, or none of JSON.
        """
        try:
            return self._client.get("/health", lambda found: str(found.get("fingerprint") or ""))
        except RequestRefused:  # it has no such page
            return ""

    def _search(self, queries: list[str], k: int) -> Hits:
        hits = Hits([], [])
        size = max(1, min(self.batch, MAX_PASSAGES // k))
        for start in range(0, len(queries), size):
            part = queries[start : start + size]
            fields = {"queries": part, "topk": k, "return_scores": True}

            def read(found: Any, asked: int = len(part)) -> list[list[_Hit]]:
                answers = convert(found, _Answer, "the answer").result
                if len(answers) != asked:
                    raise ValueError(f"{len(answers)} answers to {asked} queries")
                return answers

            for answer in self._client.post("/retrieve", fields, read):
                passages = [hit.document.passage() for hit in answer]
                hits.ids.append([passage.id for passage in passages])
                hits.scores.append([hit.score for hit in answer])
                self._passages.put({passage.id: passage for passage in passages})
        return hits


class _Hit(msgspec.Struct):
    document: Document
    score: float


class _Answer(msgspec.Struct):
    result: list[list[_Hit]]
