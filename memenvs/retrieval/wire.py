"""The protocol of the server: a request's bytes in, what is asked or why not; answers in, JSON out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from memenvs.retrieval.batching import Answer
from memenvs.retrieval.protocol import clean


class Limits(NamedTuple):
    """What a request may ask.

    Attributes:
        queries: in a request.
        chars: of a query.
        topk: passages a query.
        body: bytes.
        seconds: for its body to arrive.
    """

    queries: int = 1_024
    chars: int = 10_000
    topk: int = 100
    body: int = 16_000_000
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
        raise Refused(
            422, f"topk must be null or an integer from 1 to {limits.topk}, not {json.dumps(k)[:80]}"
        )
    scores = fields.get("return_scores", False)
    if not isinstance(scores, bool):
        raise Refused(422, f"return_scores must be true or false, not {json.dumps(scores)[:80]}")
    return Ask([clean(query) for query in queries], k, scores)


def reply(answers: Sequence[Answer], scores: bool) -> dict[str, Any]:
    """The JSON of an answer, with or without scores."""
    result: list[list[dict[str, Any]]] = []
    for answer in answers:
        documents = [({"id": id, "contents": contents}, score) for id, contents, score in answer]
        result.append([{"document": d, "score": score} if scores else d for d, score in documents])
    return {"result": result}


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
