"""The client of JSON servers over HTTP."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from memenvs.core.data import Count, checked
from memenvs.core.errors import RequestRefused, ServerError, error_line

RETRIED = (408, 409, 429, 500, 502, 503, 504)
MAX_REPLY = 256_000_000  # bytes
MAX_PAUSE = 30.0  # seconds
TOKEN_FILE = "MEMENVS_TOKEN_FILE"  # the environment variable that names the file with a retriever's token

T = TypeVar("T")


class JSONClient:
    """Sends requests to one server, with retries; it may be used from several threads, and after a fork.

    Idle connections are kept open for the next request. Requests go through the proxy of the environment's
    `http_proxy`, `https_proxy` and `no_proxy`, but never to this machine.

    Args:
        url: `http://host:port` or `https://…`; its path, if any, comes before the paths of requests.
        timeout: seconds for a connection, and for each wait for an answer.
        tries: of a request, the first included. The pauses between them double from `pause`, or are what the
            server asks for in `Retry-After` where that is longer, but never above `MAX_PAUSE`.
        pause: seconds.
        key: sent as `Authorization: Bearer`; no error message contains it.
        fix: what to do about a server that does not answer; the error ends with it.

    Raises:
        ValueError: the address is not one of a server, or the key does not fit in a header.
    """

    @checked
    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        tries: Count,
        pause: float,
        key: str | None = None,
        fix: str = "is it up?",
    ):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"no server at {url!r}; an address is http://host:port")
        if key and not (key.isascii() and key.isprintable()):  # http.client would show it in its error
            raise ValueError(f"the key for {url} has an unprintable character; set it again")
        self.url = url.rstrip("/")
        self._timeout, self._tries, self._pause, self._fix = timeout, tries, pause, fix
        self._kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._address, self._path = (parts.hostname, parts.port), parts.path.rstrip("/")
        self._tunnel: dict[str, str] | None = None  # headers of the request for one
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        if proxy := _proxy_of(parts):
            if parts.scheme == "https":
                self._tunnel = _authorization(proxy)
            else:
                self._path, self._headers = self.url, self._headers | _authorization(proxy)
            self._server, self._address = self._address, (proxy.hostname or "", proxy.port)
        self._idle: deque[HTTPConnection] = deque()
        self._process = os.getpid()

    def post(self, path: str, fields: dict[str, Any], read: Callable[[Any], T]) -> T:
        """POST JSON and return what `read` makes of the JSON of the answer.

        Args:
            path: begins with a slash.
            fields: of the request.
            read: may fail as code fails on data of another shape (KeyError, TypeError, ValueError …), which
                is then a `ServerError`.

        Raises:
            ServerError: no answer in `tries` tries, or one that is not JSON or that `read` cannot read. An
                incomplete answer is requested again.
            RequestRefused: the server refused the request; its reason is in the message.
        """
        return self._request("POST", path, json.dumps(fields).encode(), read)

    def get(self, path: str, read: Callable[[Any], T]) -> T:
        """GET a page and return what `read` makes of its JSON; see `post`."""
        return self._request("GET", path, None, read)

    def _request(self, method: str, path: str, body: bytes | None, read: Callable[[Any], T]) -> T:
        began, last, asked = time.monotonic(), "", 0.0
        for attempt in range(self._tries):
            if attempt:
                time.sleep(min(max(self._pause * 2 ** (attempt - 1), asked), MAX_PAUSE))
            asked = 0.0
            try:
                response, content = self._exchange(method, path, body)
            except (OSError, HTTPException) as error:
                self._close()  # a restarted server has closed them all
                last = error_line(error)
                continue
            if response.status != 200:
                last = " ".join(f"HTTP {response.status}: {_reason(content)}".split())  # one line
                if response.status not in RETRIED:
                    raise RequestRefused(f"{self.url} refused the request, {last}", response.status)
                after = response.getheader("Retry-After", "")
                asked = float(after) if after.isdecimal() else 0.0
                continue
            try:
                return read(json.loads(content))
            except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as bad:
                last = f"{self.url} does not speak the protocol: {bad!r} in {content[:200]!r}"
                if response.chunked or response.length is not None:  # then it was not cut
                    raise ServerError(last) from bad
        raise ServerError(
            f"no answer from {self.url} in {self._tries} tries over {time.monotonic() - began:.1f} s "
            f"(last: {last}); {self._fix}"
        )

    def _exchange(self, method: str, path: str, body: bytes | None) -> tuple[HTTPResponse, bytes]:
        connection = self._connection()
        kind = {"Content-Type": "application/json"} if body is not None else {}
        try:
            connection.request(method, self._path + path, body, kind | self._headers)
            with connection.getresponse() as response:
                content = response.read(MAX_REPLY + 1)
            if len(content) > MAX_REPLY:
                raise HTTPException(f"an answer of more than {MAX_REPLY:,} bytes")
            if response.length:  # http.client raises for a short body only where it is read to the end
                raise IncompleteRead(content, response.length)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return response, content

    def _connection(self) -> HTTPConnection:
        """An idle connection or a new one; never one from before a fork, which the parent still reads."""
        if self._process != os.getpid():
            self._close()
            self._process = os.getpid()
        try:
            while (connection := self._idle.pop()).sock is not None and wait([connection.sock], 0):
                connection.close()  # the server has closed it, as many do after some seconds
            return connection
        except IndexError:
            connection = self._kind(*self._address, timeout=self._timeout)
        if self._tunnel is not None:
            connection.set_tunnel(*self._server, self._tunnel)
        return connection

    def _close(self) -> None:
        with contextlib.suppress(IndexError):  # other threads may take them meanwhile
            while True:
                self._idle.pop().close()

    def __del__(self) -> None:
        for connection in getattr(self, "_idle", ()):  # none where the constructor raised
            connection.close()


def key_in(variable: str) -> str | None:
    """The key in an environment variable, without white space around it; None if there is none."""
    return os.environ.get(variable, "").strip() or None


def read_token(path: str | Path | None) -> str | None:
    """The token in a file, without white space around it; None of no file.

    Raises:
        ValueError: the file is empty.
    """
    if not path:
        return None
    if token := Path(path).read_text(encoding="utf-8").strip():
        return token
    raise ValueError(f"{path} is empty; write a token into it")


def _proxy_of(server: SplitResult) -> SplitResult | None:
    """The proxy to a server; None: it is asked directly."""
    from urllib.request import getproxies, proxy_bypass  # slow, and most programs need none

    host = server.hostname or ""
    own = host == "localhost" or host.startswith("127.") or host == "::1"
    address = "" if own or proxy_bypass(host) else getproxies().get(server.scheme, "")
    return urlsplit(address if "//" in address else f"//{address}") if address else None


def _authorization(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


def _reason(reply: bytes) -> Any:
    """What a JSON error says (ours, or OpenAI's shape), or the beginning of whatever came instead."""
    try:
        fields = json.loads(reply)
        return fields["error"]["message"] if "error" in fields else fields["detail"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return reply[:200].decode(errors="replace")
