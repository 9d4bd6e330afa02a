"""Gather the queries of concurrent requests into one call of a retriever."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

Answer = list[tuple[str, str, float]]  # id, contents, score


class Busy(RuntimeError):
    """More queries wait than are allowed to."""


class _Request(NamedTuple):
    queries: list[str]
    k: int
    answers: asyncio.Future[list[Answer]]


class Batcher:
    """Answers requests in batches, one batch at a time, in a thread of its own.

    A request that finds the retriever idle waits a moment for company; while a batch is being searched the
    next one gathers by itself. A batch is searched with the largest k in it: the best k of a larger k are
    the same.

    Args:
        search: the answers (B,) of B queries at a k, best first.
        wait: seconds that an idle retriever waits for more requests.
        max_batch: queries in a call; a single larger request still goes in one.
        max_pending: queries that may wait.

    Attributes:
        requests: answered so far.
        batches: calls of `search` so far.
    """

    def __init__(
        self,
        search: Callable[[list[str], int], list[Answer]],
        wait: float = 0.004,
        max_batch: int = 256,
        max_pending: int = 16_384,
    ):
        self._search, self._wait = search, wait
        self._max_batch, self._max_pending = max_batch, max_pending
        self._pending: deque[_Request] = deque()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "retriever")
        self._task: asyncio.Task[None] | None = None
        self.requests = self.batches = self.waiting = 0

    def start(self) -> None:
        """Begin to answer, on the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Answer what waits, then stop."""
        while self.waiting and self._task and not self._task.done():
            await asyncio.sleep(0.01)
        if self._task:
            self._task.cancel()
        self._thread.shutdown()

    async def submit(self, queries: list[str], k: int) -> list[Answer]:
        """The answers (B,) of B >= 1 queries, each of at most k passages.

        Raises:
            Busy: `max_pending` queries wait already.
        """
        if self.waiting + len(queries) > self._max_pending:
            raise Busy(f"{self.waiting} queries are waiting, {self._max_pending} may")
        answers: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._pending.append(_Request(queries, k, answers))
        self.waiting += len(queries)
        self._arrived.set()
        return [answer[:k] for answer in await answers]

    async def _run(self) -> None:
        while True:
            if not self._pending:
                self._arrived.clear()
                await self._arrived.wait()
                if self._wait:
                    await asyncio.sleep(self._wait)
            await self._answer(self._take())

    def _take(self) -> list[_Request]:
        batch = [self._pending.popleft()]
        size = len(batch[0].queries)
        while self._pending and size + len(self._pending[0].queries) <= self._max_batch:
            batch.append(self._pending.popleft())
            size += len(batch[-1].queries)
        return batch

    async def _answer(self, batch: list[_Request]) -> None:
        queries = [query for request in batch for query in request.queries]
        k = max(request.k for request in batch)
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._search, queries, k)
        except Exception as error:
            for request in batch:
                if not request.answers.done():
                    request.answers.set_exception(error)
        else:
            start = 0
            for request in batch:
                if not request.answers.done():  # its client may have hung up
                    request.answers.set_result(answers[start : start + len(request.queries)])
                start += len(request.queries)
        finally:
            self.waiting -= len(queries)
            self.requests += len(batch)
            self.batches += 1
