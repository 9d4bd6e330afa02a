"""The protocol of the retrieval server: reading requests within their limits, and writing answers."""

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
    return Ask([clean(query) for query in queries], k, scores)


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
