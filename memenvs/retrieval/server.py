"""A search index over HTTP.

python -m memenvs.retrieval.server --index DIR --port 8000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec

from memenvs.cli import Parser
from memenvs.core.checks import Range, check_numbers, check_whole
from memenvs.core.data import Count, convert, parse_json
from memenvs.core.optional import require
from memenvs.core.spaces import replace_surrogates
from memenvs.retrieval.batching import Answer, Batcher, TooManyWaiting
from memenvs.retrieval.load import CACHE, CachedRetriever, fingerprint, open_folder
from memenvs.retrieval.protocol import Limits, Passage, Retriever

DRAIN = 20.0  # seconds after SIGTERM in which what waits is still searched
GRACE = 5.0  # seconds more, in which the others are answered 503 and slow connections take their answers

# Of a text. Made once, it is many times faster than dumps.
_json = json.JSONEncoder(ensure_ascii=False).encode
log = logging.getLogger("uvicorn.error")  # the log that uvicorn shows


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM, then answer what waits; 2 and one line where no index can be served."""
    return _parser().run(_serve_index, arguments)


def _serve_index(args: argparse.Namespace) -> None:
    check_numbers(Range(0), **{"--drain": args.drain, "--wait-ms": args.wait_ms})
    check_whole(**{"--topk": args.topk, "--max-batch": args.max_batch})
    retriever = open_folder(args.index, args.encoder, args.device)
    about = {
        "index": args.index,
        "passages": len(retriever.corpus),
        "corpus_sha256": retriever.corpus.sha256,
        "fingerprint": fingerprint(retriever),
    }
    served = CachedRetriever(retriever, args.cache) if args.cache else retriever
    app = create_app(served, about, args.topk, wait=args.wait_ms / 1000, max_batch=args.max_batch)
    serve(app, args.host, args.port, args.drain)


def _parser() -> Parser:
    parser = Parser("python -m memenvs.retrieval.server", description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--index", required=True, metavar="DIR", help="folder made by `python -m memenvs.build index`")
    add(
        "--host",
        default="127.0.0.1",
        help="address to listen on; 0.0.0.0 opens it to the network (default: loopback)",
    )
    add("--port", type=int, default=8000, help="0 picks a free one (default: 8000)")
    add("--topk", type=int, default=3, help="passages a query where a request does not say (default: 3)")
    add("--encoder", metavar="NAME_OR_DIR", help="the encoder of the index, if it is not where it was built")
    add("--device", help="of torch, such as cuda:0 (default: a GPU if there is one)")
    add(
        "--cache",
        type=int,
        default=CACHE,
        metavar="N",
        help=f"answers to remember, 0 for none (default: {CACHE})",
    )
    add(
        "--wait-ms",
        type=float,
        default=4.0,
        help="how long a request waits for others to join it (default: 4)",
    )
    add("--max-batch", type=int, default=256, help="queries in one call; 1 for no batching (default: 256)")
    add(
        "--drain",
        type=float,
        default=DRAIN,
        metavar="SECONDS",
        help=f"how long after SIGTERM waiting requests are answered; later ones get 503 (default: {DRAIN:g})",
    )
    return parser


def create_app(
    retriever: Retriever,
    about: dict[str, Any] | None = None,
    default_k: int = 3,
    wait: float = 0.004,
    max_batch: int = 256,
) -> Any:
    """The FastAPI application of a retriever, which is searched from one thread, one batch at a time.

    Args:
        retriever: any.
        about: shown by `/health`.
        default_k: passages a query where `topk` is null.
        wait: seconds that a request at an idle retriever waits for others.
        max_batch: queries in one call of the retriever; 1 searches every request by itself.
    """
    fastapi = require("fastapi", "search")
    batcher = Batcher(partial(look_up, retriever), wait, max_batch)
    service = Service(batcher, about or {}, default_k)
    app = fastapi.FastAPI(title="memenvs retrieval", lifespan=service.lifespan, openapi_url=None)
    app.state.service = service
    app.add_route("/retrieve", service.retrieve, methods=["POST"])
    app.add_route("/health", service.health, methods=["GET"])
    return app


def serve(app: Any, host: str, port: int, drain: float = DRAIN) -> None:
    """Serve an application of `create_app` until SIGINT or SIGTERM.

    It then takes no more connections, answers what it has been asked for `drain` seconds, the others
    with 503, and returns `GRACE` seconds later at most. A search that is still under way is left.

    Args:
        app: of `create_app`.
        host: address to listen on.
        port: 0 picks a free one.
        drain: seconds.
    """
    uvicorn = require("uvicorn", "search")
    service: Service = app.state.service
    base: Any = uvicorn.Server

    class Server(base):
        async def shutdown(self, sockets: Any = None) -> None:
            asyncio.get_running_loop().call_later(drain, service.give_up)
            await super().shutdown(sockets)

    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises again what stopped it
        signal.signal(number, lambda *_: None)
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_bounded(service.limits),
        log_level="info",
        access_log=False,
        timeout_graceful_shutdown=drain + GRACE,
    )
    Server(config).run()


class Service:
    """The handlers of `POST /retrieve` and `GET /health`; errors are `{"detail": reason}` with a status.

    Args:
        batcher: searches.
        about: shown by `/health`.
        default_k: passages a query where `topk` is null.

    Attributes:
        limits: of a request.
    """

    def __init__(self, batcher: Batcher, about: dict[str, Any], default_k: int):
        self.limits = Limits()
        self._batcher, self._about, self._default_k = batcher, about, default_k
        self._handling: set[Any] = set()  # tasks
        self._stopping = False
        responses = require("starlette.responses", "search")
        self._json, self._response = responses.JSONResponse, responses.Response
        self._gone: type[Exception] = require("starlette.requests", "search").ClientDisconnect

    async def retrieve(self, request: Any) -> Any:
        """Search; 503 where the server stops before there is an answer."""
        handling = asyncio.current_task()
        self._handling.add(handling)
        try:
            ask = parse(await read_body(request, self.limits), self.limits, self._default_k)
            answers = await self._batcher.submit(ask.queries, ask.topk) if ask.queries else []
            return self._response(
                reply(answers, ask.return_scores, self.limits), media_type="application/json"
            )
        except Refused as error:
            return self._refusal(error.status, str(error))
        except TooManyWaiting as error:
            return self._refusal(503, f"{error}; try later")
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            return self._refusal(503, "the server is stopping; ask again, or another one")
        except self._gone:
            return self._response(status_code=499)  # nobody reads it
        except Exception:
            log.exception("a search failed")
            return self._refusal(500, "the search failed; the server's log says why")
        finally:
            self._handling.discard(handling)

    def give_up(self) -> None:
        """Answer all that waits with 503."""
        self._stopping = True
        if self._handling:
            log.warning("Stopping: %d requests are answered 503", len(self._handling))
        for handling in self._handling:
            handling.cancel()

    def _refusal(self, status: int, reason: str) -> Any:
        return self._json({"detail": reason}, status, {"Retry-After": "1"} if status == 503 else None)

    async def health(self, request: Any) -> Any:
        """That the server is up, what it serves, and how much it has done."""
        done = {name: getattr(self._batcher, name) for name in ("requests", "batches", "waiting")}
        return self._json({"status": "ok", **self._about, **done})

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Search from the start of the server to its end.

        A server that stops has answered or refused its requests before; those that a test leaves are answered
        here.
        """
        self._batcher.start()
        yield
        await self._batcher.close()


class Refused(ValueError):
    """A request that is not answered, with its HTTP status."""

    def __init__(self, status: int, reason: str):
        super().__init__(reason)
        self.status = status


class SearchRequest(msgspec.Struct):
    """A request; where it has no `topk`, or null, the server's own is put in before it is checked."""

    queries: list[str]
    topk: Count
    return_scores: bool = False


def parse(body: bytes, limits: Limits, default_k: int) -> SearchRequest:
    """The request in a body.

    Raises:
        Refused: 400 for what is not JSON, 422 for what is not a request or exceeds a limit.
    """
    try:
        fields = parse_json(body, "the body")
    except ValueError as error:
        raise Refused(400, str(error)) from error
    if isinstance(fields, dict) and fields.get("topk") is None:
        fields["topk"] = default_k
    try:
        ask = convert(fields, SearchRequest, "the request", f"send {_EXAMPLE}")
    except ValueError as error:
        raise Refused(422, str(error)) from error
    ask.queries = list(map(replace_surrogates, ask.queries))
    longest = max(map(len, ask.queries), default=0)
    for what, value, most, mend in (
        ("queries in the request", len(ask.queries), limits.queries, "send several requests"),
        ("characters in a query", longest, limits.chars, "shorten it"),
        ("passages a query (topk)", ask.topk, limits.topk, "ask for fewer"),
        (
            "queries times topk",
            len(ask.queries) * ask.topk,
            limits.passages,
            "send fewer queries, or a smaller topk",
        ),
    ):
        if value > most:
            raise Refused(422, f"{value} {what}, the limit is {most}; {mend}")
    return ask


_EXAMPLE = '{"queries": ["…"], "topk": 3, "return_scores": true}'


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
    hits = (
        b",".join(b'{"document":%s,"score":%s}' % hit if scores else hit[0] for hit in answer)
        for answer in answers
    )
    return b'{"result":[%s]}' % b",".join(b"[%s]" % joined for joined in hits)


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


def look_up(retriever: Retriever, queries: list[str], k: int) -> list[Answer]:
    """Search, and write every passage that was found as JSON, once."""
    ids, scores = retriever.search(queries, k)
    found = list(dict.fromkeys(id for row in ids for id in row))
    passages = retriever.passages(found)
    documents = {id: _document(passage) for id, passage in zip(found, passages, strict=True)}
    return [
        [(documents[id], _score(score)) for id, score in zip(*row, strict=True)]
        for row in zip(ids, scores, strict=True)
    ]


def _document(passage: Passage) -> bytes:
    return f'{{"id":{_json(passage.id)},"contents":{_json(replace_surrogates(passage.contents))}}}'.encode()


def _score(score: float) -> bytes:
    if not math.isfinite(score):
        raise ValueError(f"the retriever gave the score {score!r}, which JSON has not")
    return repr(float(score)).encode()


def _bounded(limits: Limits) -> type[Any]:
    """The HTTP protocol of uvicorn, closing connections whose head of a request is too long or too slow.

    Uvicorn itself bounds only the idle time between two requests. A client that does not take its answer in
    that time is cut off.
    """
    base: Any = require("uvicorn.protocols.http.httptools_impl", "search").HttpToolsProtocol

    class BoundedProtocol(base):
        _timer: asyncio.TimerHandle
        _in_head = True
        _received = 0  # bytes since the last head or body ended

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(limits.seconds, self._expire)

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._received += len(data)
            super().data_received(data)
            if self._in_head and self._received > limits.head and not self.transport.is_closing():
                self._refuse(431, f"the head of a request has more than {limits.head} bytes; shorten it")

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            self._in_head, self._received = False, 0

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._in_head, self._received = True, 0

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._timer.cancel()
            self._timer = self.loop.call_later(limits.seconds, self._expire)

        def _expire(self) -> None:
            if self.cycle is not None and not self.cycle.response_complete:
                return  # a request is being answered; the timer is set again when it is
            if self.transport.get_write_buffer_size():
                self.transport.abort()
                return
            self._refuse(408, f"no whole request came within {limits.seconds} s")

        def _refuse(self, status: int, reason: str) -> None:
            body = json.dumps({"detail": reason}).encode()
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self.transport.close()

    return BoundedProtocol


if __name__ == "__main__":
    raise SystemExit(main())
