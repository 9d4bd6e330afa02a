"""The server's protocol and its batches of queries."""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from memenvs.core.spaces import replace_surrogates

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


class Limits(NamedTuple):
    """What a request may ask.

    Attributes:
        queries: in a request.
        chars: of a query.
        topk: passages a query.
        passages: queries times passages a query.
        body: bytes.
        answer: bytes of its answer.
        seconds: for its head to arrive, and for its body.
    """

    queries: int = 1_024
    chars: int = 10_000
    topk: int = 100
    passages: int = 10_240
    body: int = 16_000_000
    answer: int = 16_000_000
    seconds: float = 30.0


class Refused(ValueError):
    """A request that is not answered, with its HTTP status."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status


class Ask(NamedTuple):
    """A valid request."""

    queries: list[str]
    k: int
    scores: bool


def parse(body: bytes, limits: Limits, default_k: int) -> Ask:
    """The request in a body.

    Raises:
        Refused: 400 for what is not JSON, 422 for what is not a request or exceeds a limit.
    """
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from error
    queries = fields.get("queries") if isinstance(fields, dict) else None
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        raise Refused(
            422, 'queries must be a list of strings: {"queries": ["…"], "topk": 3, "return_scores": true}'
        )
    if len(queries) > limits.queries:
        raise Refused(
            422, f"{len(queries)} queries in a request, the limit is {limits.queries}; send several"
        )
    longest = max(map(len, queries), default=0)
    if longest > limits.chars:
        raise Refused(422, f"a query of {longest} characters, the limit is {limits.chars}; shorten it")
    k = default_k if fields.get("topk") is None else fields["topk"]
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= limits.topk:
        raise Refused(422, f"topk must be null or an integer from 1 to {limits.topk}, not {_shown(k)}")
    if len(queries) * k > limits.passages:
        raise Refused(
            422,
            f"{len(queries)} queries times topk {k} are more than {limits.passages} passages; "
            "send fewer queries at once, or a smaller topk",
        )
    scores = fields.get("return_scores", False)
    if not isinstance(scores, bool):
        raise Refused(422, f"return_scores must be true or false, not {_shown(scores)}")
    return Ask([replace_surrogates(query) for query in queries], k, scores)


def _shown(value: Any) -> str:
    """A JSON value in an error; of a list or an object, which may be deep, its kind."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    return json.dumps(value)[:80]


def reply(answers: Sequence[Answer], scores: bool, limits: Limits) -> bytes:
    """The JSON of an answer, with or without scores.

    Documents come as JSON already, so that an answer of many megabytes is joined in a moment: the event loop
    must not be held up.

    Raises:
        Refused: 422 for an answer that exceeds the limit.
    """
    size = sum(len(document) + len(score) + 32 for answer in answers for document, score in answer)
    if size > limits.answer:
        raise Refused(
            422,
            f"the answer would be {size} bytes, the limit is {limits.answer}; "
            "send fewer queries at once, or a smaller topk",
        )
    hits = (b",".join(_hit(*hit) if scores else hit[0] for hit in answer) for answer in answers)
    return b'{"result":[%s]}' % b",".join(b"[%s]" % joined for joined in hits)


def _hit(document: bytes, score: bytes) -> bytes:
    return b'{"document":%s,"score":%s}' % (document, score)


async def read_body(request: Any, limits: Limits) -> bytes:
    """The body of a request.

    Raises:
        Refused: 413 for one that is too large, 408 for one that does not come.
    """
    body = bytearray()

    async def gather() -> None:
        async for part in request.stream():
            body.extend(part)
            if len(body) > limits.body:
                raise Refused(413, f"a body of more than {limits.body} bytes; send fewer queries")

    try:
        await asyncio.wait_for(gather(), limits.seconds)
    except asyncio.TimeoutError as error:
        raise Refused(408, f"the body did not come within {limits.seconds} s") from error
    return bytes(body)
