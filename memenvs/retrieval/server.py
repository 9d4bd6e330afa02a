"""A search index over HTTP: `memenvs serve retriever --index DIR --port 8000`."""

from __future__ import annotations

import asyncio
import hmac
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, NamedTuple

import h11
import msgspec
import uvicorn
from msgspec import Meta
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from memenvs.core.data import decode
from memenvs.core.spaces import replace_surrogates
from memenvs.retrieval.protocol import MAX_PASSAGES, TOKEN_FILE, Retriever

MAX_HEADERS, MAX_BODY, MAX_ANSWER = 65_536, 16_000_000, 16_000_000  # bytes
MAX_SECONDS = 30.0  # for the headers of a request, and for its body; up to twice as many pass
MAX_BATCH, MAX_WAITING = 256, 16_384  # queries in a call of the retriever, and those that may wait for one

QueryResult = list[tuple[bytes, bytes]]
"""The passages of a query, best first: the JSON of a document, and that of its score."""


def create_app(
    retriever: Retriever,
    about: dict[str, Any] | None = None,
    default_k: int = 3,
    token: str | None = None,
    hosts: Sequence[str] = ("*",),
) -> Starlette:
    """The ASGI application of a retriever: `POST /retrieve` and `GET /health`.

    The retriever is searched from one thread, one batch at a time. Errors are `{"detail": reason}` with a
    status.

    Args:
        retriever: what is searched.
        about: shown by `/health`.
        default_k: passages a query where `topk` is null.
        token: what every request must send as `Authorization: Bearer`; None: nothing.
        hosts: the names by which the server may be asked; others get a plain 400.
    """
    batcher = Batcher(retriever)

    async def retrieve(request: Request) -> Response:
        check_client(request, token)
        try:
            queries, k, scores = read_request(await read_body(request), default_k)
            answers = await batcher.search(queries, k) if queries else []
        except asyncio.CancelledError:  # uvicorn is stopping
            reason = "the server is stopping; ask again, or another one"
            raise HTTPException(503, reason, {"Retry-After": "1"}) from None
        return Response(write_answers(answers, scores), media_type="application/json")

    async def health(request: Request) -> Response:
        check_client(request, token)
        return JSONResponse({"status": "ok", **(about or {}), **batcher.counts})

    app = Starlette(
        routes=[Route("/retrieve", retrieve, methods=["POST"]), Route("/health", health)],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)],
        exception_handlers={HTTPException: _refuse, Exception: _fail, ClientDisconnect: _fail},
    )
    app.router.redirect_slashes = False  # it would send clients to whatever host they name
    return app


def serve(app: Starlette, host: str, port: int, drain: float) -> None:
    """Serve an application of `create_app` until SIGINT or SIGTERM.

    It then takes no more connections, answers waiting requests for `drain` seconds and the others with 503.
    The process ends with its search; if that does not end, a second signal ends both.

    Args:
        app: the application.
        host: address to listen on.
        port: 0 picks a free one.
        drain: seconds after a signal in which waiting requests are still searched.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises again what stopped it
        signal.signal(number, lambda *_: None)
    uvicorn.run(
        app,
        host=host,
        port=port,
        http=PatientProtocol,
        h11_max_incomplete_event_size=MAX_HEADERS,
        ws="none",
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=drain,  # type: ignore[arg-type]  # fractions of a second are right too
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class PatientProtocol(H11Protocol):
    """uvicorn's protocol by h11, which bounds headers; a request that takes `MAX_SECONDS` is hung up on."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to look."""
        super().connection_made(transport)
        self._look(())

    def _look(self, earlier: tuple[Any, ...]) -> None:
        """Hang up if what was arriving when this looked last still is; the request before it tells which."""
        arriving = (self.cycle, self.conn.their_state)
        if arriving == earlier and arriving[1] in (h11.IDLE, h11.SEND_BODY):
            self.transport.close()
        elif not self.transport.is_closing():
            self.loop.call_later(MAX_SECONDS, self._look, arriving)


class _Batch(NamedTuple):
    k: int
    queries: dict[str, None]
    answers: asyncio.Task[dict[str, QueryResult]]


class Batcher:
    """Searches the queries of concurrent requests together, one batch at a time, in its own thread.

    Requests for as many passages that come during a search are the next batch, and its equal queries are one.
    A search that fails fails the whole batch.

    Args:
        retriever: what is searched.

    Attributes:
        counts: requests and batches so far, and queries that wait for an answer.
    """

    def __init__(self, retriever: Retriever) -> None:
        self._retriever = retriever
        self._thread = ThreadPoolExecutor(1, "retriever")  # one: torch starts threads for each that calls it
        self._turn = asyncio.Lock()
        self._next: _Batch | None = None
        self.counts = {"requests": 0, "batches": 0, "waiting": 0}

    async def search(self, queries: list[str], k: int) -> list[QueryResult]:
        """The answers (B,) of B queries, each of at most k passages; HTTP 503 if too many wait already."""
        if (waiting := self.counts["waiting"]) + len(queries) > MAX_WAITING:
            reason = f"{waiting} queries are waiting, the limit is {MAX_WAITING}; try later"
            raise HTTPException(503, reason, {"Retry-After": "1"})
        batch = self._next
        if batch is None or batch.k != k or len(batch.queries) + len(queries) > MAX_BATCH:
            gathered = dict[str, None]()
            batch = self._next = _Batch(k, gathered, asyncio.create_task(self._search(gathered, k)))
        batch.queries.update(dict.fromkeys(queries))
        self.counts["waiting"] += len(queries)
        try:
            answers = await asyncio.shield(batch.answers)  # a request may be cancelled, its batch not
        finally:
            self.counts["waiting"] -= len(queries)
        self.counts["requests"] += 1
        return [answers[query] for query in queries]

    async def _search(self, queries: dict[str, None], k: int) -> dict[str, QueryResult]:
        async with self._turn:
            if self._next and self._next.queries is queries:
                self._next = None  # those that come now are another batch
            self.counts["batches"] += 1
            loop, distinct = asyncio.get_running_loop(), list(queries)
            answers = await loop.run_in_executor(self._thread, look_up, self._retriever, distinct, k)
            return dict(zip(distinct, answers, strict=True))


def check_client(request: Request, token: str | None) -> None:
    """Refuse web pages, and who does not send the token, with HTTP 403 and 401."""
    if "origin" in request.headers:  # browsers send it for a page, and no page may search its reader's index
        raise HTTPException(403, "this server answers no web pages")
    sent = request.headers.get("authorization", "")
    if token and not hmac.compare_digest(sent.encode(), f"Bearer {token}".encode()):
        raise HTTPException(401, f"this server wants its token; set {TOKEN_FILE} to a file that has it")


async def read_body(request: Request) -> bytes:
    """The body of a request; HTTP 413 if it has more than `MAX_BODY` bytes."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise HTTPException(413, f"a body of more than {MAX_BODY} bytes; send fewer queries")
    return bytes(body)


class SearchRequest(msgspec.Struct):
    """The body of a request; without a `topk`, or with null, it gets the server's own."""

    queries: list[str]
    topk: Annotated[int, Meta(ge=1, le=100)] | None = None
    return_scores: bool = False


def read_request(body: bytes, default_k: int) -> tuple[list[str], int, bool]:
    """The queries of a body, passages a query, whether scores are wanted; HTTP 422 for other bodies."""
    example = 'send {"queries": ["…"], "topk": 3, "return_scores": true}'
    try:
        ask = decode(body, SearchRequest, "the request", example)
    except ValueError as error:
        raise HTTPException(422, str(error)) from error
    k = ask.topk or default_k
    if (count := len(ask.queries) * k) > MAX_PASSAGES:
        fix = "send fewer queries, or a smaller topk"
        raise HTTPException(422, f"{count} queries times topk, the limit is {MAX_PASSAGES}; {fix}")
    return ask.queries, k, ask.return_scores


def look_up(retriever: Retriever, queries: list[str], k: int) -> list[QueryResult]:
    """Search, and write every passage that was found as JSON, once."""
    ids, scores = retriever.search(queries, k)
    distinct = list(dict.fromkeys(id for row in ids for id in row))
    documents = {
        id: msgspec.json.encode({"id": id, "contents": replace_surrogates(passage.contents)})
        for id, passage in zip(distinct, retriever.passages(distinct), strict=True)
    }
    return [
        [(documents[id], msgspec.json.encode(float(score))) for id, score in zip(*row, strict=True)]
        for row in zip(ids, scores, strict=True)
    ]


def write_answers(answers: Sequence[QueryResult], scores: bool) -> bytes:
    """The JSON of an answer, with or without scores.

    Documents come as JSON already, so that an answer of many megabytes is joined in a moment: the event loop
    must not be held up. One of more than `MAX_ANSWER` bytes is an HTTP 422.
    """
    size = sum(len(document) + len(score) + 32 for answer in answers for document, score in answer)
    if size > MAX_ANSWER:
        fix = "send fewer queries at once, or a smaller topk"
        raise HTTPException(422, f"the answer would be {size} bytes, the limit is {MAX_ANSWER}; {fix}")
    hits = (
        b",".join(b'{"document":%s,"score":%s}' % hit if scores else hit[0] for hit in answer)
        for answer in answers
    )
    return b'{"result":[%s]}' % b",".join(b"[%s]" % joined for joined in hits)


async def _refuse(_request: Request, refusal: Any) -> Response:
    return JSONResponse({"detail": refusal.detail}, refusal.status_code, refusal.headers)


async def _fail(_request: Request, _error: Exception) -> Response:  # uvicorn logs the error
    return JSONResponse({"detail": "the search failed; the server's log says why"}, 500)
