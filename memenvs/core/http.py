"""JSON over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from memenvs.core.checks import check_whole

RETRIED = (408, 409, 429, 500, 502, 503, 504)
MAX_REPLY = 256_000_000  # bytes
LONGEST_PAUSE = 30.0  # seconds

T = TypeVar("T")


class _Reply(NamedTuple):
    """An answer.

    Attributes:
        status: of HTTP.
        body: of it.
        after: seconds that the server asks to wait.
        bounded: whether HTTP says where the body ends, so that a cut one is an error of its own.
    """

    status: int
    body: bytes
    after: float
    bounded: bool


class JSONClient:
    """Asks one server, tries again what may pass, and keeps a connection a thread and process.

    Args:
        url: `http://host:port`, `https://` too; a path in it is kept before those of requests.
        name: what kind of server it is, for errors.
        timeout: seconds for a connection, and for each wait for an answer.
        tries: of a request, the first included; the pauses between them double from `pause`, or are what the
            server asks for by `Retry-After` where that is more; never above `LONGEST_PAUSE`.
        pause: seconds.
        away: raised when the server did not answer, or not in its protocol.
        mend: what to do about that; the error ends in it.
        key: sent as `Authorization: Bearer`; in no message.

    Raises:
        ValueError: the URL is not one of those, `tries` is below 1, or no header can carry the key.
    """

    def __init__(
        self,
        url: str,
        name: str,
        timeout: float,
        tries: int,
        pause: float,
        away: type[ConnectionError] = ConnectionError,
        mend: str = "is it up?",
        key: str | None = None,
    ):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"no {name} server at {url!r}; an address is http://host:port")
        check_whole(tries=tries)
        if key and not (key.isascii() and key.isprintable()):  # http.client would show it in its error
            raise ValueError(f"the key of the {name} server holds a line break or another odd character")
        self.url = url.rstrip("/")
        self._timeout, self._tries, self._pause = timeout, tries, pause
        self._away, self._mend = away, mend
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._path = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._mine = threading.local()

    def post(self, path: str, fields: dict[str, Any], read: Callable[[Any], T]) -> T:
        """What `read` makes of the JSON in a 200 answer to a POST, after as many tries as are allowed.

        An answer that was cut is asked for again. `read` may fail as code fails on data of another shape
        (KeyError, TypeError …): the answer is then not one of the protocol.

        Raises:
            ConnectionError: of the class `away`: no answer in `tries` tries, or none of the protocol.
            ValueError: the server refused the request; its reason is in the message.
        """
        return self._ask("POST", path, json.dumps(fields).encode(), read)

    def get(self, path: str, read: Callable[[Any], T]) -> T:
        """What `read` makes of the JSON in a 200 answer to a GET; see `post`."""
        return self._ask("GET", path, None, read)

    def _ask(self, method: str, path: str, body: bytes | None, read: Callable[[Any], T]) -> T:
        began, last, asked = time.monotonic(), "", 0.0
        for attempt in range(self._tries):
            if attempt:
                time.sleep(min(max(self._pause * 2 ** (attempt - 1), asked), LONGEST_PAUSE))
                asked = 0.0
            try:
                reply = self._exchange(method, path, body)
            except (OSError, http.client.HTTPException) as error:
                self._connection().close()  # it opens again at the next request
                last = f"{type(error).__name__}: {error}"
                continue
            if reply.status != 200:
                last, asked = f"HTTP {reply.status}: {_reason(reply.body)}", reply.after
                if reply.status not in RETRIED:
                    raise ValueError(f"{self.url} refused the request, {last}")
                continue
            try:
                found = json.loads(reply.body)
            except (ValueError, RecursionError) as error:
                if not reply.bounded:
                    last = f"an answer that is no JSON, perhaps cut: {error}"
                    continue
                raise self._misunderstood(error, reply.body) from error
            try:
                return read(found)
            except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
                raise self._misunderstood(error, reply.body) from error
        seconds = time.monotonic() - began
        raise self._away(
            f"no answer from {self.url} in {self._tries} tries over {seconds:.1f} s "
            f"(last: {last}); {self._mend}"
        )

    def _misunderstood(self, error: Exception, body: bytes) -> ConnectionError:
        return self._away(f"{self.url} does not speak the protocol: {error!r} in {body[:200]!r}")

    def _exchange(self, method: str, path: str, body: bytes | None) -> _Reply:
        connection = self._connection()
        kind = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, self._path + path, body, kind | self._headers)
        response = connection.getresponse()
        reply = response.read(MAX_REPLY + 1)
        if len(reply) > MAX_REPLY:
            raise http.client.HTTPException(f"an answer of more than {MAX_REPLY:,} bytes")
        if response.length:  # http.client raises for a short body only where all of it is asked for
            raise http.client.IncompleteRead(reply, response.length)
        after = response.getheader("Retry-After", "")
        bounded = response.chunked or response.length is not None
        return _Reply(response.status, reply, float(after) if after.isdecimal() else 0.0, bounded)

    def _connection(self) -> http.client.HTTPConnection:
        """This thread's connection; never one from before a fork, which the parent still reads."""
        line: _Line | None = getattr(self._mine, "line", None)
        if line is None or line.process != os.getpid():
            kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
            line = self._mine.line = _Line(kind(self._host, self._port, timeout=self._timeout))
        return line.connection


class _Line:
    """A connection that is closed with the thread or the client it belongs to."""

    def __init__(self, connection: http.client.HTTPConnection):
        self.connection, self.process = connection, os.getpid()

    def __del__(self) -> None:
        self.connection.close()


def _reason(reply: bytes) -> Any:
    """What a JSON error says (ours, or OpenAI's shape), or the beginning of whatever came instead."""
    try:
        fields = json.loads(reply)
        return fields["error"]["message"] if "error" in fields else fields["detail"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return reply[:200].decode(errors="replace")
