"""A client of a retrieval server: queries out over HTTP, ids and scores back, passages remembered."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from memenvs.retrieval.protocol import Hits, Passage, clean
from memenvs.retrieval.ranking import search_distinct

RETRIED = (408, 429, 500, 502, 503, 504)
MAX_REPLY = 256_000_000  # bytes


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
        batch: most queries in a request; more are sent in turn.
        remembered: passages kept for `passages`, the longest unused forgotten first; about 1 kB each.

    Raises:
        ValueError: the URL is not one of those.
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
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"no retrieval server at {url!r}; an address is http://host:port")
        self.url = url.rstrip("/")
        self.timeout, self.tries, self.pause = timeout, tries, pause
        self.batch, self.remembered = batch, remembered
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._path = parts.path.rstrip("/") + "/retrieve"
        self._mine = threading.local()
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

    def _search(self, queries: list[str], k: int) -> Hits:
        hits = Hits([], [])
        for start in range(0, len(queries), self.batch):
            asked = queries[start : start + self.batch]
            body = json.dumps({"queries": asked, "topk": k, "return_scores": True}).encode()
            for answer in self._parse(self._post(body), len(asked)):
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

    def _parse(self, reply: bytes, expected: int) -> list[list[tuple[Passage, float]]]:
        try:
            answers = [
                [
                    (
                        Passage(clean(str(hit["document"]["id"])), clean(hit["document"]["contents"])),
                        float(hit["score"]),
                    )
                    for hit in answer
                ]
                for answer in json.loads(reply)["result"]
            ]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RetrieverError(
                f"{self.url} does not speak the protocol: {error!r} in {reply[:200]!r}"
            ) from error
        if len(answers) != expected:
            raise RetrieverError(f"{self.url} gave {len(answers)} answers to {expected} queries")
        return answers

    def _post(self, body: bytes) -> bytes:
        """The body of a 200 reply, after as many tries as it takes and is allowed."""
        began, last = time.monotonic(), ""
        for attempt in range(self.tries):
            if attempt:
                time.sleep(self.pause * 2 ** (attempt - 1))
            try:
                status, reply = self._exchange(body)
            except (OSError, http.client.HTTPException) as error:
                self._connection().close()  # it opens again at the next request
                last = f"{type(error).__name__}: {error}"
                continue
            if status == 200:
                return reply
            last = f"HTTP {status}: {_reason(reply)}"
            if status not in RETRIED:
                raise ValueError(f"{self.url} refused the request, {last}")
        seconds = time.monotonic() - began
        raise RetrieverError(
            f"no answer from {self.url} in {self.tries} tries over {seconds:.1f} s (last: {last}); "
            "is it up? `python -m memenvs.retrieval.server --index DIR --port 8000` starts one"
        )

    def _exchange(self, body: bytes) -> tuple[int, bytes]:
        connection = self._connection()
        connection.request("POST", self._path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        reply = response.read(MAX_REPLY + 1)
        if len(reply) > MAX_REPLY:
            raise http.client.HTTPException(f"an answer of more than {MAX_REPLY:,} bytes")
        return response.status, reply

    def _connection(self) -> http.client.HTTPConnection:
        """This thread's connection; never one from before a fork, which the parent still reads."""
        line: _Line | None = getattr(self._mine, "line", None)
        if line is None or line.process != os.getpid():
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            line = self._mine.line = _Line(kind(self._host, self._port, timeout=self.timeout))
        return line.connection


class _Line:
    """A connection that is closed with the thread or the retriever it belongs to."""

    def __init__(self, connection: http.client.HTTPConnection):
        self.connection, self.process = connection, os.getpid()

    def __del__(self) -> None:
        self.connection.close()


def _reason(reply: bytes) -> Any:
    """What a JSON error says, or the beginning of whatever came instead."""
    try:
        return json.loads(reply)["detail"]
    except (ValueError, KeyError, TypeError):
        return reply[:200].decode(errors="replace")
