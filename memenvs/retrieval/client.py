"""A retriever behind a server."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from memenvs.core.http import JSONClient
from memenvs.core.spaces import replace_surrogates
from memenvs.retrieval.protocol import Hits, Passage, search_distinct
from memenvs.retrieval.wire import Limits

MEND = "is it up? `python -m memenvs.retrieval.server --index DIR --port 8000` starts one"


class RetrieverError(ConnectionError):
    """A retrieval server is away, or its answer is not one."""


class HTTPRetriever:
    """Searches through `POST {url}/retrieve`, the protocol of `memenvs.retrieval.server`; a `Retriever`.

    Any server that speaks it will do. Connections are kept open, one a thread and process.

    Args:
        url: `http://host:port`, `https://` too; a path before `/retrieve` is kept.
        timeout: seconds for a connection, and for each wait for an answer.
        tries: of a request, the first included; the pauses between them double from `pause`.
        pause: seconds.
        batch: most queries in a request; more are sent in turn. At a large k it is fewer: a server of ours
            gives 10,240 passages a request.
        remembered: passages kept for `passages`, the longest unused forgotten first; about 1 kB each.

    Raises:
        ValueError: the URL is not one of those, or `tries` is below 1.
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
        self._client = JSONClient(url, "retrieval", timeout, tries, pause, RetrieverError, MEND)
        self.url, self.batch, self.remembered = self._client.url, batch, remembered
        self._passages: OrderedDict[str, Passage] = OrderedDict()
        self._lock = threading.Lock()

    def search(self, queries: Sequence[str], k: int) -> Hits:
        """The best k passages of each query; see `Retriever.search`.

        Raises:
            RetrieverError: the server did not answer in `tries` tries, or not in its protocol.
            ValueError: it refused the request; its reason is in the message.
        """
        return search_distinct(queries, k, self._search)

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        """The passages of ids that a search has brought; KeyError for others."""
        with self._lock:
            for id in ids:
                if id not in self._passages:
                    raise KeyError(
                        f"no search has brought passage {id!r} lately from {self.url}; search first"
                    )
                self._passages.move_to_end(id)
            return [self._passages[id] for id in ids]

    def fingerprint(self) -> str:
        """What `GET {url}/health` says of its index (see `load.fingerprint`); empty if it says nothing.

        Raises:
            RetrieverError: the server did not answer in `tries` tries, or not with JSON.
        """
        try:
            return self._client.get("/health", lambda found: str(found.get("fingerprint") or ""))
        except ValueError:  # it has no such page
            return ""

    def _search(self, queries: list[str], k: int) -> Hits:
        hits = Hits([], [])
        size = max(1, min(self.batch, Limits().passages // k))
        for start in range(0, len(queries), size):
            asked = queries[start : start + size]
            fields = {"queries": asked, "topk": k, "return_scores": True}
            answers = self._client.post("/retrieve", fields, _read_answers)
            if len(answers) != len(asked):
                raise RetrieverError(f"{self.url} gave {len(answers)} answers to {len(asked)} queries")
            for answer in answers:
                hits.ids.append([passage.id for passage, _ in answer])
                hits.scores.append([score for _, score in answer])
                self._remember([passage for passage, _ in answer])
        return hits

    def _remember(self, passages: list[Passage]) -> None:
        with self._lock:
            for passage in passages:
                self._passages[passage.id] = passage
                self._passages.move_to_end(passage.id)
            while len(self._passages) > self.remembered:
                self._passages.popitem(last=False)


def _read_answers(found: Any) -> list[list[tuple[Passage, float]]]:
    """The passages of each query and their scores, from the JSON of an answer."""
    return [[_read_hit(hit) for hit in answer] for answer in found["result"]]


def _read_hit(hit: Any) -> tuple[Passage, float]:
    document = hit["document"]
    return Passage(replace_surrogates(str(document["id"])), replace_surrogates(document["contents"])), float(
        hit["score"]
    )
