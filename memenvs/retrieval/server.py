"""Serve an index over HTTP in the protocol that search agents speak, concurrent requests in one call.

python -m memenvs.retrieval.server --index DIR --port 8000
"""

from __future__ import annotations

import argparse
import logging
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from memenvs.extras import require
from memenvs.retrieval.batching import Answer, Batcher, Busy
from memenvs.retrieval.cache import CachedRetriever
from memenvs.retrieval.load import CACHE, open_folder
from memenvs.retrieval.protocol import Retriever
from memenvs.retrieval.wire import Limits, Refused, parse, read_body, reply

log = logging.getLogger("uvicorn.error")  # the log that uvicorn shows


class Service:
    """What answers `POST /retrieve` and `GET /health`; errors are `{"detail": reason}` with a status.

    Args:
        batcher: searches.
        about: shown by `/health`.
        default_k: passages a query where `topk` is null.
        limits: of a request.
    """

    def __init__(self, batcher: Batcher, about: dict[str, Any], default_k: int, limits: Limits):
        self._batcher, self._about, self._default_k, self._limits = batcher, about, default_k, limits
        responses = require("starlette.responses", "search")
        self._json, self._response = responses.JSONResponse, responses.Response
        self._gone: type[Exception] = require("starlette.requests", "search").ClientDisconnect

    async def retrieve(self, request: Any) -> Any:
        """Search."""
        try:
            ask = parse(await read_body(request, self._limits), self._limits, self._default_k)
            answers = await self._batcher.submit(ask.queries, ask.k) if ask.queries else []
        except Refused as error:
            return self._json({"detail": str(error)}, error.status)
        except Busy as error:
            return self._json({"detail": f"{error}; try later"}, 503, {"Retry-After": "1"})
        except self._gone:
            return self._response(status_code=499)  # nobody reads it
        except Exception:
            log.exception("a search failed")
            return self._json({"detail": "the search failed; the server's log says why"}, 500)
        return self._json(reply(answers, ask.scores))

    async def health(self, request: Any) -> Any:
        """That the server is up, what it serves, and how much it has done."""
        done = {name: getattr(self._batcher, name) for name in ("requests", "batches", "waiting")}
        return self._json({"status": "ok", **self._about, **done})

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Search from the start of the server to its end; what waits at the end is still answered."""
        self._batcher.start()
        yield
        await self._batcher.close()


def create_app(
    retriever: Retriever,
    about: dict[str, Any] | None = None,
    default_k: int = 3,
    limits: Limits | None = None,
    wait: float = 0.004,
    max_batch: int = 256,
) -> Any:
    """The FastAPI application of a retriever, which is searched from one thread, one batch at a time.

    Args:
        retriever: any.
        about: shown by `/health`.
        default_k: passages a query where `topk` is null.
        limits: of a request; None: `Limits()`.
        wait: seconds that a request at an idle retriever waits for company.
        max_batch: queries in one call of the retriever; 1 searches every request by itself.
    """
    fastapi = require("fastapi", "search")
    batcher = Batcher(partial(look_up, retriever), wait, max_batch)
    service = Service(batcher, about or {}, default_k, limits or Limits())
    app = fastapi.FastAPI(title="memenvs retrieval", lifespan=service.lifespan, openapi_url=None)
    app.add_route("/retrieve", service.retrieve, methods=["POST"])
    app.add_route("/health", service.health, methods=["GET"])
    return app


def look_up(retriever: Retriever, queries: list[str], k: int) -> list[Answer]:
    """Search, and fetch the contents of what was found."""
    ids, scores = retriever.search(queries, k)
    answers = []
    for found, values in zip(ids, scores, strict=True):
        passages = retriever.passages(found)
        answers.append([(p.id, p.contents, score) for p, score in zip(passages, values, strict=True)])
    return answers


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; then answer what waits, and exit with 0."""
    args = _parser().parse_args(arguments)
    uvicorn = require("uvicorn", "search")
    retriever = open_folder(args.index, args.encoder, args.device)
    about = {"index": args.index, "passages": len(retriever.corpus), "corpus_sha256": retriever.corpus.sha256}
    served = CachedRetriever(retriever, args.cache) if args.cache else retriever
    app = create_app(served, about, args.topk, wait=args.wait_ms / 1000, max_batch=args.max_batch)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises again what stopped it
        signal.signal(number, lambda *_: None)
    uvicorn.run(
        app, host=args.host, port=args.port, log_level="info", access_log=False, timeout_graceful_shutdown=30
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m memenvs.retrieval.server", description=(__doc__ or "").split("\n")[0]
    )
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
    return parser


if __name__ == "__main__":
    main()
