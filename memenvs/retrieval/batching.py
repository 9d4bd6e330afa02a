"""Gather the queries of concurrent requests into one call of a retriever."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

Answer = list[tuple[bytes, bytes]]
"""The passages of a query, best first: the JSON of a document, and that of its score."""

Search = Callable[[list[str], int], list[Answer]]
Searched = asyncio.Future[list[Answer]]


class Busy(RuntimeError):
    """More queries wait than are allowed to."""


class _Request(NamedTuple):
    queries: list[str]
    k: int
    answers: Searched


class Batcher:
    """Answers requests in batches, one batch at a time, in a thread of its own.

    A request that finds the retriever idle waits a moment for company; while a batch is being searched the
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
        self._thread, self._wait = _SearchThread(search), wait
        self._max_batch, self._max_pending = max_batch, max_pending
        self._pending: deque[_Request] = deque()
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.requests = self.batches = self.waiting = 0

    def start(self) -> None:
        """Begin to answer, on the running event loop."""
        self._thread.start()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self, patience: float = 20.0) -> None:
        """Answer what waits, for at most `patience` seconds; give up the rest, and stop.

        A search under way goes on in its thread, which does not keep the process alive.
        """
        end = asyncio.get_running_loop().time() + patience
        while self.waiting and asyncio.get_running_loop().time() < end:
            await asyncio.sleep(0.01)
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._thread.stop()

    async def submit(self, queries: list[str], k: int) -> list[Answer]:
        """The answers (B,) of B >= 1 queries, each of at most k passages.

        Raises:
            Busy: `max_pending` queries wait already.
        """
        if self.waiting + len(queries) > self._max_pending:
            raise Busy(f"{self.waiting} queries are waiting, {self._max_pending} may")
        answers: Searched = asyncio.get_running_loop().create_future()
        self._pending.append(_Request(queries, k, answers))
        self._arrived.set()
        self.waiting += len(queries)
        try:
            return [answer[:k] for answer in await answers]
        finally:
            self.waiting -= len(queries)

    async def _run(self) -> None:
        while True:
            if not self._pending:
                self._arrived.clear()
                await self._arrived.wait()
                if self._wait:
                    await asyncio.sleep(self._wait)
            if batch := self._take():
                await self._answer(batch)

    def _take(self) -> list[_Request]:
        """The next batch; empty where all that waited was given up."""
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
        return batch

    async def _answer(self, batch: list[_Request]) -> None:
        distinct = list(dict.fromkeys(query for request in batch for query in request.queries))
        try:
            found = await self._thread.search(distinct, max(request.k for request in batch))
            answers = dict(zip(distinct, found, strict=True))
        except Exception as error:
            for request in batch:
                if not request.answers.done():
                    request.answers.set_exception(error)
        else:
            for request in batch:
                if not request.answers.done():
                    request.answers.set_result([answers[query] for query in request.queries])
        finally:
            self.requests += len(batch)
            self.batches += 1


class _SearchThread:
    """One thread that searches, and that does not keep the process alive as an executor's would.

    Args:
        search: see `Batcher`.
    """

    def __init__(self, search: Search):
        self._search = search
        self._jobs: queue.SimpleQueue[tuple[list[str], int, Searched] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="retriever", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after what it is doing."""
        self._jobs.put(None)

    async def search(self, queries: list[str], k: int) -> list[Answer]:
        answers: Searched = asyncio.get_running_loop().create_future()
        self._jobs.put((queries, k, answers))
        return await answers

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            queries, k, answers = job
            found: list[Answer] | Exception
            try:
                found = self._search(queries, k)
            except Exception as error:
                found = error
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits for it
                answers.get_loop().call_soon_threadsafe(_settle, answers, found)


def _settle(answers: Searched, found: list[Answer] | Exception) -> None:
    if answers.done():
        return
    if isinstance(found, Exception):
        answers.set_exception(found)
    else:
        answers.set_result(found)
