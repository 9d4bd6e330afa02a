"""Concurrent requests to one retriever, searched in batches."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

Answer = list[tuple[bytes, bytes]]
"""The passages of a query, best first: the JSON of a document, and that of its score."""

Search = Callable[[list[str], int], list[Answer]]


class TooManyWaiting(RuntimeError):
    """More queries wait than are allowed to."""


class Batcher:
    """Answers requests in batches, one batch at a time, in a thread of its own.

    While a batch is being searched, the next one gathers. It is searched once as many requests wait as the
    batch before had, whose clients ask again: after `wait` seconds at the latest, and no longer than the last
    search took. So a single client never waits. A batch is searched with the largest k in it: the best k of a
    larger k are the same. Equal queries are searched once a batch. Requests that were cancelled are not
    searched. Where a batch fails, each of its requests is searched by itself: only the faulty ones fail.

    Args:
        search: the answers (B,) of B different queries at a k, best first.
        wait: seconds that requests wait for others at most.
        max_batch: queries in a call; a single larger request still goes in one.
        max_pending: queries that may wait.

    Attributes:
        requests: answered so far.
        batches: calls of `search` so far.
        waiting: queries without an answer yet.
    """

    def __init__(self, search: Search, wait: float = 0.004, max_batch: int = 256, max_pending: int = 16_384):
        self._search, self._wait = search, wait
        self._max_batch, self._max_pending = max_batch, max_pending
        self._pending: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._expected, self._closed = 1, False
        self.requests = self.batches = self.waiting = 0
        # A daemon, unlike an executor's threads: a search that does not end does not keep the process alive.
        threading.Thread(target=self._run, name="retriever", daemon=True).start()

    async def submit(self, queries: list[str], k: int) -> list[Answer]:
        """The answers (B,) of B >= 1 queries, each of at most k passages.

        Raises:
            TooManyWaiting: `max_pending` queries wait already.
        """
        if self.waiting + len(queries) > self._max_pending:
            raise TooManyWaiting(f"{self.waiting} queries are waiting, the limit is {self._max_pending}")
        request = _Request(queries, k, asyncio.get_running_loop().create_future())
        self.waiting += len(queries)
        with self._changed:
            self._pending.append(request)
            if len(self._pending) == 1 or len(self._pending) >= self._expected:
                self._changed.notify()
        try:
            return [answer[:k] for answer in await request.answers]
        finally:
            self.waiting -= len(queries)

    async def close(self, patience: float = 20.0) -> None:
        """Answer waiting requests for at most `patience` seconds, and stop; a search under way is left."""
        end = time.monotonic() + patience
        await asyncio.sleep(0.01)
        while self.waiting and time.monotonic() < end:
            await asyncio.sleep(0.01)
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        patience = self._wait
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closed)
                if self._closed:
                    return
                self._changed.wait_for(lambda: len(self._pending) >= self._expected, patience)
                batch = self._take()
            if batch:
                began = time.monotonic()
                self._answer(batch)
                patience = min(self._wait, time.monotonic() - began)

    def _take(self) -> list[_Request]:
        """The next batch; empty if every waiting request was cancelled."""
        batch: list[_Request] = []
        size = 0
        while self._pending:
            request = self._pending[0]
            if not request.answers.done():  # its client may have hung up
                if batch and size + len(request.queries) > self._max_batch:
                    break
                batch.append(request)
                size += len(request.queries)
            self._pending.popleft()
        self._expected = max(1, len(batch))
        return batch

    def _answer(self, batch: list[_Request]) -> None:
        distinct = list(dict.fromkeys(query for request in batch for query in request.queries))
        answers: dict[str, Answer] | Exception
        try:
            found = self._search(distinct, max(request.k for request in batch))
            answers = dict(zip(distinct, found, strict=True))
        except Exception as error:
            # all would wait for an unreachable server in vain
            if len(batch) > 1 and (isinstance(error, ValueError) or not isinstance(error, ConnectionError)):
                for request in batch:
                    self._answer([request])
                return
            answers = error
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits for it
            batch[0].answers.get_loop().call_soon_threadsafe(self._deliver, batch, answers)

    def _deliver(self, batch: list[_Request], answers: dict[str, Answer] | Exception) -> None:
        """Give a batch its answers, all at once: their clients then ask again together."""
        self.batches += 1
        self.requests += len(batch)
        for request in batch:
            if request.answers.done():
                continue
            if isinstance(answers, Exception):
                request.answers.set_exception(answers)
            else:
                request.answers.set_result([answers[query] for query in request.queries])


class _Request(NamedTuple):
    queries: list[str]
    k: int
    answers: asyncio.Future[list[Answer]]
