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

    A request that finds the retriever idle waits a moment for others; while a batch is being searched the
    next one gathers by itself. A batch is searched with the largest k in it: the best k of a larger k are
    the same. Queries that are equal are searched once a batch; requests that were given up are not searched.

    Args:
        search: the answers (B,) of B different queries at a k, best first.
        wait: seconds that an idle retriever waits for more requests.
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
        self._pending: deque[_Waiting] = deque()
        self._arrived = threading.Event()
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop
        # A daemon, unlike an executor's threads: a search that does not end does not keep the process alive.
        self._thread = threading.Thread(target=self._run, name="retriever", daemon=True)
        self.requests = self.batches = self.waiting = 0

    def start(self) -> None:
        """Begin to answer, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def close(self, patience: float = 20.0) -> None:
        """Answer what waits, for at most `patience` seconds; give up the rest, and stop.

        A search under way goes on in its thread, which does not keep the process alive.
        """
        end = time.monotonic() + patience
        while self.waiting and time.monotonic() < end:
            await asyncio.sleep(0.01)
        self._stopped = True
        self._arrived.set()

    async def submit(self, queries: list[str], k: int) -> list[Answer]:
        """The answers (B,) of B >= 1 queries, each of at most k passages.

        Raises:
            TooManyWaiting: `max_pending` queries wait already.
        """
        if self.waiting + len(queries) > self._max_pending:
            raise TooManyWaiting(f"{self.waiting} queries are waiting, {self._max_pending} may")
        request = _Waiting(queries, k, self._loop.create_future())
        self.waiting += len(queries)
        self._pending.append(request)
        self._arrived.set()
        try:
            return [answer[:k] for answer in await request.answers]
        finally:
            self.waiting -= len(queries)

    def _run(self) -> None:
        while not self._stopped:
            self._arrived.clear()
            if not self._pending:
                self._arrived.wait()
                time.sleep(self._wait)
            elif batch := self._take():
                self._answer(batch)

    def _take(self) -> list[_Waiting]:
        """The next batch; empty where all that waited was given up."""
        batch: list[_Waiting] = []
        size = 0
        while self._pending:
            request = self._pending[0]
            if not request.answers.done():  # its client may have hung up
                if batch and size + len(request.queries) > self._max_batch:
                    break
                batch.append(request)
                size += len(request.queries)
            self._pending.popleft()
        return batch

    def _answer(self, batch: list[_Waiting]) -> None:
        distinct = list(dict.fromkeys(query for request in batch for query in request.queries))
        answers: dict[str, Answer] | Exception
        try:
            found = self._search(distinct, max(request.k for request in batch))
            answers = dict(zip(distinct, found, strict=True))
        except Exception as error:
            answers = error
        with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits for it
            self._loop.call_soon_threadsafe(self._settle, batch, answers)

    def _settle(self, batch: list[_Waiting], answers: dict[str, Answer] | Exception) -> None:
        """Give a batch its answers, all at once: requests that follow them then wait for each other."""
        self.batches += 1
        self.requests += len(batch)
        for request in batch:
            if request.answers.done():
                continue
            if isinstance(answers, Exception):
                request.answers.set_exception(answers)
            else:
                request.answers.set_result([answers[query] for query in request.queries])


class _Waiting(NamedTuple):
    """A request without an answer yet."""

    queries: list[str]
    k: int
    answers: asyncio.Future[list[Answer]]
