"""A search index over HTTP: `memenvs serve retriever --index DIR --port 8000`."""

from __future__ import annotations

import asyncio
import hmac
import signal
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from memenvs.core.data import decode
from memenvs.core.optional import require
from memenvs.core.spaces import replace_surrogates
from memenvs.retrieval.batching import Answer, Batcher, TooManyWaiting
from memenvs.retrieval.protocol import MAX_PASSAGES, TOKEN_FILE, Retriever

DRAIN = 20.0  # seconds after SIGTERM in which waiting requests are still searched
MAX_HEADERS, MAX_BODY, MAX_ANSWER = 65_536, 16_000_000, 16_000_000  # bytes
PATIENCE = 30.0  # seconds for a whole request to come, and for its answer to be taken

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Pages = dict[str, tuple[tuple[str, ...], Callable[[bytes], Awaitable[bytes]]]]
"""The methods of each path, and what makes its answer of a body."""


class Refusal(Exception):
    """A request is answered with `{"detail": reason}` and an HTTP status."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status


def create_app(
    retriever: Retriever,
    about: dict[str, Any] | None = None,
    default_k: int = 3,
    wait: float = 0.004,
    max_batch: int = 256,
    token: str | None = None,
) -> Any:
    """The ASGI application of a retriever: `POST /retrieve` and `GET /health`.

    The retriever is searched from one thread, one batch at a time. Errors are `{"detail": reason}` with a
    status.

    Args:
        retriever: any.
        about: shown by `/health`.
        default_k: passages a query where `topk` is null.
        wait: seconds that requests at an idle retriever wait for others; see `Batcher`.
        max_batch: queries in one call of the retriever; 1 searches every request by itself.
        token: what every request must send as `Authorization: Bearer`; None: nothing.
    """
    batcher = Batcher(partial(look_up, retriever), wait, max_batch)

    async def retrieve(body: bytes) -> bytes:
        queries, k, scores = read_request(body, default_k)
        return write_answers(await batcher.submit(queries, k) if queries else [], scores)

    async def health(_body: bytes) -> bytes:
        done = {name: getattr(batcher, name) for name in ("requests", "batches", "waiting")}
        return msgspec.json.encode({"status": "ok", **(about or {}), **done})

    pages: Pages = {"/retrieve": (("POST",), retrieve), "/health": (("GET", "HEAD"), health)}

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()  # until the server stops
            await batcher.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
        failure = None
        try:
            status, body = 200, await _page(pages, scope, receive, token)
        except ConnectionResetError:
            return
        except Refusal as refusal:
            status, body = refusal.status, detail(str(refusal))
        except Exception as error:
            status, body = 500, detail("the search failed; the server's log says why")
            failure = error
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if status == 503:
            headers.append((b"retry-after", b"1"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        if failure:
            raise failure  # uvicorn logs it

    return app


async def _page(pages: Pages, scope: Any, receive: Receive, token: str | None) -> bytes:
    headers = dict(scope["headers"])
    if b"origin" in headers:  # browsers send it for a page, and no page may search its reader's index
        raise Refusal(403, "this server answers no web pages")
    if token and not hmac.compare_digest(headers.get(b"authorization", b""), f"Bearer {token}".encode()):
        raise Refusal(401, f"this server wants its token; set {TOKEN_FILE} to a file that has it")
    if scope["path"] not in pages:
        raise Refusal(404, "Not Found")
    methods, page = pages[scope["path"]]
    if scope["method"] not in methods:
        raise Refusal(405, "Method Not Allowed")
    try:
        return await page(await read_body(receive))
    except TooManyWaiting as error:
        raise Refusal(503, f"{error}; try later") from error
    except asyncio.CancelledError as error:  # uvicorn is stopping
        raise Refusal(503, "the server is stopping; ask again, or another one") from error


def serve(app: Any, host: str, port: int, drain: float = DRAIN) -> None:
    """Serve an application of `create_app` until SIGINT or SIGTERM.

    It then takes no more connections, answers waiting requests for `drain` seconds and the others with 503.
    A search that is still under way is left.

    Args:
        app: of `create_app`.
        host: address to listen on.
        port: 0 picks a free one.
        drain: seconds.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises again what stopped it
        signal.signal(number, lambda *_: None)
    require("uvicorn", "search").run(
        app,
        host=host,
        port=port,
        http=_bounded(),
        ws="none",
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=drain,
    )


async def read_body(receive: Receive) -> bytes:
    """The body of a request, at most `MAX_BODY` bytes.

    Raises:
        ConnectionResetError: the client has hung up.
    """
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionResetError
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MAX_BODY:
            raise Refusal(413, f"a body of more than {MAX_BODY} bytes; send fewer queries")
    return bytes(body)


def detail(reason: str) -> bytes:
    """The body of an error."""
    return msgspec.json.encode({"detail": reason})


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
        raise Refusal(422, str(error)) from error
    k = ask.topk or default_k
    if (count := len(ask.queries) * k) > MAX_PASSAGES:
        fix = "send fewer queries, or a smaller topk"
        raise Refusal(422, f"{count} queries times topk, the limit is {MAX_PASSAGES}; {fix}")
    return ask.queries, k, ask.return_scores


def look_up(retriever: Retriever, queries: list[str], k: int) -> list[Answer]:
    """Search, and write every passage that was found as JSON, once."""
    ids, scores = retriever.search(queries, k)
    found = list(dict.fromkeys(id for row in ids for id in row))
    documents = {
        id: msgspec.json.encode({"id": id, "contents": replace_surrogates(passage.contents)})
        for id, passage in zip(found, retriever.passages(found), strict=True)
    }
    return [
        [(documents[id], msgspec.json.encode(float(score))) for id, score in zip(*row, strict=True)]
        for row in zip(ids, scores, strict=True)
    ]


def write_answers(answers: Sequence[Answer], scores: bool) -> bytes:
    """The JSON of an answer, with or without scores.

    Documents come as JSON already, so that an answer of many megabytes is joined in a moment: the event loop
    must not be held up. One of more than `MAX_ANSWER` bytes is an HTTP 422.
    """
    size = sum(len(document) + len(score) + 32 for answer in answers for document, score in answer)
    if size > MAX_ANSWER:
        fix = "send fewer queries at once, or a smaller topk"
        raise Refusal(422, f"the answer would be {size} bytes, the limit is {MAX_ANSWER}; {fix}")
    hits = (
        b",".join(b'{"document":%s,"score":%s}' % hit if scores else hit[0] for hit in answer)
        for answer in answers
    )
    return b'{"result":[%s]}' % b",".join(b"[%s]" % joined for joined in hits)


def _bounded() -> type[Any]:
    """The HTTP protocol of uvicorn, with bounds that it lacks: on headers, and on slow clients."""
    base: Any = require("uvicorn.protocols.http.httptools_impl", "search").HttpToolsProtocol

    class BoundedProtocol(base):
        _in_headers = True
        _received = 0  # bytes since the last headers or body ended
        _timer: asyncio.TimerHandle

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(PATIENCE, transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._received += len(data)
            super().data_received(data)
            if self._in_headers and self._received > MAX_HEADERS and not self.transport.is_closing():
                reason = f"the headers of a request have more than {MAX_HEADERS} bytes; shorten them"
                body = detail(reason)
                head = (
                    "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
                    f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
                )
                self.transport.write(head.encode() + body)
                self.transport.close()

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            self._in_headers, self._received = False, 0

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._in_headers, self._received = True, 0
            self._timer.cancel()  # while the request is answered

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._timer.cancel()
            self._timer = self.loop.call_later(PATIENCE, self.transport.abort)

    return BoundedProtocol
