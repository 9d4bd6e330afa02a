"""A retriever behind a server.

`HTTPRetriever("http://HOST:8000").search(["who built it?"], k=5)`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from memenvs.core.address import Address
from memenvs.core.data import Count, checked, convert
from memenvs.core.errors import RequestRefused
from memenvs.core.servers import HTTPClient
from memenvs.retrieval.corpus import REMEMBERED, Document
from memenvs.retrieval.protocol import (
    MAX_PASSAGES,
    TOKEN_FILE,
    DistinctSearch,
    Hits,
    LRUCache,
    Passage,
    read_token,
)

FIX = "is it up? `memenvs serve retriever --index DIR --port 8000` starts one"
PAGES = ("/retrieve", "/batch_search", "/search")  # that a pasted address may end with


class HTTPRetriever(DistinctSearch):
    """Searches through a server; a `Retriever`.

    The server speaks the protocol of `memenvs.retrieval.server` and of Search-R1's servers (`POST
    {url}/retrieve`), or that of ReSearch, ReCall and FlashRAG (`POST {url}/batch_search`). A passage without
    an id gets one made from its contents, a hit without a score gets 1 / rank. The retriever may be used from
    several threads, and after a fork. If the environment's MEMENVS_TOKEN_FILE names a file, every request
    sends the token in it.

    Requests are repeated, and go through a proxy or not, as those of `HTTPClient`.

    Args:
        url: `http://host:port`, `https://` too, with or without `/retrieve`, `/batch_search` or `/search` at
            the end; a path before it is kept. Without one, a server that has no `/retrieve` is asked at
            `/batch_search`.
        timeout, tries, pause: see `HTTPClient`.
        batch: maximum number of queries in a request; more are sent in several. At a large k it is fewer: a
            server of ours gives 10,240 passages a request.

    Raises:
        ValueError: the address is not one of a server.
    """

    @checked
    def __init__(
        self,
        url: str,
        timeout: float = 60.0,
        tries: Count = 5,
        pause: float = 0.25,
        batch: Count = 256,
    ):
        address = Address(url).url
        path = address.path.rstrip("/")
        page = next((page for page in PAGES if path.endswith(page)), "")
        self._asks = [_search_r1] if page == "/retrieve" else [_recall] if page else [_search_r1, _recall]
        base = str(address.copy_with(path=path.removesuffix(page)))
        token = read_token(os.environ.get(TOKEN_FILE))
        self._client = HTTPClient(base, timeout=timeout, tries=tries, key=token, fix=FIX, pause=pause)
        self.url, self.batch = self._client.url, batch
        self._passages: LRUCache[str, Passage] = LRUCache(REMEMBERED)  # about 1 kB each

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
            return self._client.get("/health", lambda about: str(about.get("fingerprint") or ""))
        except RequestRefused:  # it has no such page
            return ""

    def _search(self, queries: list[str], k: int) -> Hits:
        hits = Hits([], [])
        size = max(1, min(self.batch, MAX_PASSAGES // k))
        for start in range(0, len(queries), size):
            for passages, scores in self._ask(queries[start : start + size], k):
                hits.ids.append([passage.id for passage in passages])
                hits.scores.append(scores)
                self._passages.put({passage.id: passage for passage in passages})
        return hits

    def _ask(self, queries: list[str], k: int) -> list[_Found]:
        while True:
            page, fields, read = self._asks[0](queries, k)
            try:
                answers = self._client.post(page, fields, read)
            except RequestRefused as refusal:
                if refusal.status != 404 or len(self._asks) == 1:
                    raise
                del self._asks[0]  # it speaks another protocol
            else:
                return [(passages[:k], scores[:k]) for passages, scores in answers]


class _Hit(Document):
    """A passage by itself, or as the `document` beside its score."""

    document: str | Document | None = None
    score: float | None = None

    def passage(self, where: str = "a passage") -> Passage:
        if self.document is None:
            return super().passage(where)
        document = Document(contents=self.document) if isinstance(self.document, str) else self.document
        return document.passage(where)


_Rows = list[list[_Hit | str]]
_Found = tuple[list[Passage], list[float]]
_Ask = tuple[str, dict[str, Any], Callable[[Any], list[_Found]]]
"""The page of a protocol, the fields of a request, and what reads each query's passages and scores."""


class _Answer(msgspec.Struct):
    result: _Rows


def _search_r1(queries: list[str], k: int) -> _Ask:
    def read(answer: Any) -> list[_Found]:
        return _found(queries, convert(answer, _Answer, "the answer").result)

    # topk_rerank: its server with a reranker has no topk
    fields = {"queries": queries, "topk": k, "topk_rerank": k, "return_scores": True}
    return "/retrieve", fields, read


def _recall(queries: list[str], k: int) -> _Ask:
    def read(answer: Any) -> list[_Found]:
        documents, scores = convert(
            answer, tuple[list[list[Document | str]], list[list[float]]], "the answer"
        )
        rows: _Rows = [
            [_Hit(document=document, score=score) for document, score in zip(*row, strict=True)]
            for row in zip(documents, scores, strict=True)
        ]
        return _found(queries, rows)

    return "/batch_search", {"query": queries, "top_n": k, "return_score": True}, read


def _found(queries: list[str], rows: _Rows) -> list[_Found]:
    if len(rows) != len(queries):
        raise ValueError(f"{len(rows)} answers to {len(queries)} queries")
    answers: list[_Found] = []
    for row in rows:
        hits = [_Hit(contents=hit) if isinstance(hit, str) else hit for hit in row]
        scores = [1 / rank if hit.score is None else hit.score for rank, hit in enumerate(hits, 1)]
        answers.append(([hit.passage() for hit in hits], scores))
    return answers
