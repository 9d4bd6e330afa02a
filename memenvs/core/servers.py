"""Servers over HTTP: which of them are asked without a proxy, and the client of the OpenAI protocol."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import json
import os
import re
import socket
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

from memenvs.core.data import Count, checked
from memenvs.core.errors import RequestRefused, ServerError, error_line, one_line
from memenvs.core.optional import require

ENDPOINTS = ("/chat/completions", "/completions", "/embeddings", "/models", "/responses")

MALFORMED = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What code raises that reads an answer of another form than it expects."""

T = TypeVar("T")


class OpenAIClient:
    """Sends requests to a server that speaks the OpenAI protocol, by the `openai` package.

    It may be used from several threads and after a fork, and it can be pickled. The package repeats a request
    after 408, 409, 429, 5xx and broken connections, with pauses that double from 0.5 s to 8 s or that the
    server asks for. An answer of status 200 that holds an error counts as one with the error's own status.
    Requests go through the proxy of the environment, except where `direct_mounts` says otherwise.

    Args:
        url: address of the server. `/v1` is added where there is no path. The endpoint at the end of a pasted
            address, such as `/chat/completions`, is dropped. A query is sent with every request; with
            `api-version` in it the key is sent as Azure's `api-key`.
        timeout: seconds for a connection, and for each wait for an answer.
        tries: of a request, the first included.
        key: sent as `Authorization: Bearer`; no error message contains it.
        fix: what to do about a server that does not answer; the error ends with it.

    Attributes:
        url: the address to which the paths of requests are added, without its query, which may hold secrets.

    Raises:
        ValueError: the address is not one of a server or contains a password, or the key does not fit in a
            header.
        ImportError: the `openai` package is not installed.
    """

    @checked
    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        tries: Count,
        key: str | None = None,
        fix: str = "is it up?",
    ):
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"no server at {url!r}; an address is http://host:port/v1")
        if parts.username or parts.password:  # files of a run contain its address
            raise ValueError(
                f"the address of {parts.hostname} must not contain a user or a password; set the key in the "
                "environment, such as OPENAI_API_KEY"
            )
        if key and not (key.isascii() and key.isprintable()):
            raise ValueError(f"the key for {parts.hostname} has an unprintable character; set it again")
        path = parts.path.rstrip("/")
        if not path:
            path = "/openai/v1" if parts.hostname.endswith(".azure.com") else "/v1"
        path = path.removesuffix(next(filter(path.endswith, ENDPOINTS), ""))
        self.url = f"{parts.scheme}://{parts.netloc}{path}"
        self._query = tuple(parse_qsl(parts.query, keep_blank_values=True))
        self._settings = (timeout, tries, key or "")
        self._fix = fix
        self._connections()  # here, so that threads need not make one each

    def post(self, path: str, fields: dict[str, Any], read: Callable[[Any], T]) -> T:
        """POST JSON and return what `read` makes of the JSON of the answer.

        Args:
            path: begins with a slash, such as `/chat/completions`.
            fields: of the request.
            read: may fail as code fails on data of another shape (KeyError, TypeError, ValueError …), which
                is then a `ServerError`.

        Raises:
            ServerError: no answer in `tries` tries, or one that is not JSON or that `read` cannot read.
            RequestRefused: the server refused the request; its reason is in the message.
        """
        return self._read(path, read, lambda sdk, **how: sdk.post(path, body=fields, **how))

    def get(self, path: str, read: Callable[[Any], T]) -> T:
        """GET a page and return what `read` makes of its JSON; errors as of `post`."""
        return self._read(path, read, lambda sdk, **how: sdk.get(path, **how))

    def _connections(self) -> Any:
        return _sdk(self.url, self._query, *self._settings, os.getpid())

    def _read(self, path: str, read: Callable[[Any], T], send: Callable[..., bytes]) -> T:
        openai, began, where = require("openai", "endpoint"), time.monotonic(), self.url + path
        key, azure = self._settings[2], "api-version" in dict(self._query)
        headers = {"api-key": key} if key and azure else {}
        if azure or not key:  # otherwise the package demands one
            headers["Authorization"] = openai.Omit()
        try:
            content = send(self._connections(), cast_to=bytes, options={"headers": headers})
        except openai.APIStatusError as error:
            last = one_line(f"HTTP {error.status_code}: {reason_in(error.response.content)}")
            last = last.replace(key, "…") if key else last
            if not may_pass(error.status_code):
                raise RequestRefused(f"{where} refused the request, {last}", error.status_code) from None
            request = error.request
        except openai.APIConnectionError as error:
            last, request = error_line(error.__cause__ or error), error.request
        else:
            try:
                return read(json.loads(content))
            except MALFORMED as bad:
                raise ServerError(
                    f"{where} does not speak the protocol: {bad!r} in {content[:200]!r}"
                ) from bad
        tries = int(request.headers.get("x-stainless-retry-count", 0)) + 1
        raise ServerError(
            f"no answer from {where} in {tries} tries over {time.monotonic() - began:.1f} s (last: {last}); "
            f"{self._fix}"
        )


def key_in(variable: str) -> str | None:
    """The key in an environment variable, without white space around it; None if there is none."""
    return os.environ.get(variable, "").strip() or None


def direct_mounts(url: str) -> dict[str, None]:
    """The `mounts` of an HTTPX client of one server: of one that is asked without a proxy, or none.

    That is this machine by any of its names, and every host, port, domain or network (`10.0.0.0/8`) in the
    environment's `no_proxy`, with commas or blanks between them, as curl reads it. HTTPX itself reads neither
    networks nor blanks.
    """
    from urllib.request import getproxies  # slow, and most programs need none

    parts = urlsplit(url)
    host = parts.hostname or ""
    is_here = host.rpartition(".")[2] == "localhost" or host == socket.gethostname().lower()
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(host)
        is_here = address.is_loopback or address.is_unspecified
    entries = re.split(r"[\s,]+", getproxies().get("no", "").lower())
    direct = is_here or any(_covers(entry, host, parts.netloc.lower()) for entry in entries if entry)
    return {f"all://{parts.netloc}": None} if direct else {}


def _covers(entry: str, host: str, place: str) -> bool:
    """Whether an entry of `no_proxy` covers a host, or a host with its port."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    name = entry.lstrip("*.")
    return entry == "*" or any(target == name or target.endswith(f".{name}") for target in (host, place))


@functools.lru_cache(maxsize=32)
def _sdk(
    base: str, query: tuple[tuple[str, str], ...], timeout: float, tries: int, key: str, process: int
) -> Any:
    """The client of the `openai` package, one for all that ask one server; a forked process makes its own."""
    openai = require("openai", "endpoint")

    http = openai.DefaultHttpxClient(
        timeout=timeout,
        mounts=direct_mounts(base),
        event_hooks={"response": [_correct_status]},
        follow_redirects="api-version" not in dict(query),  # another server would be sent the `api-key`
    )
    sdk = openai.OpenAI(
        base_url=base,
        default_query=dict(query),
        api_key=key or "none",  # None takes the environment's
        timeout=timeout,
        max_retries=tries - 1,
        http_client=http,
    )
    weakref.finalize(sdk, http.close)
    return sdk


def may_pass(status: int) -> bool:
    """Whether a request is repeated after this status, as the `openai` package does."""
    return status in (408, 409, 429) or status >= 500


def stay_post(response: Any) -> None:
    """Let a POST that has moved stay one; after 301 it would become a GET. A hook of an HTTPX client."""
    if response.status_code in (301, 302):
        response.status_code = 308


def _correct_status(response: Any) -> None:
    """Give an answer the status that it means, before it is looked at.

    One of status 200 that holds an error gets that error's. A moved POST stays one.
    """
    stay_post(response)
    content = response.read()
    sized = "content-length" in response.headers or "transfer-encoding" in response.headers
    if response.status_code != 200 or (sized and b'"error"' not in content):
        return
    try:
        error = _error_in(json.loads(content))
    except (ValueError, RecursionError):
        if not sized:  # it may have been cut
            response.status_code = 502
        return
    if error:
        response.status_code = _status(error)


def _error_in(answer: Any) -> Any:
    """The error in an answer, as OpenAI, OpenRouter (in the choice), Gemini (in a list) and vLLM send it."""
    answer = answer[0] if isinstance(answer, list) and answer else answer
    if not isinstance(answer, dict):
        return None
    if answer.get("object") == "error":
        return answer
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return answer.get("error") or (choice.get("error") if isinstance(choice, dict) else None)


def _status(error: Any) -> int:
    """The HTTP status of an error in an answer: its own, or the one that its words mean."""
    fields = error if isinstance(error, dict) else {}
    for name in ("code", "status", "status_code"):
        with contextlib.suppress(TypeError, ValueError):
            if 400 <= (status := int(fields[name] if name in fields else 0)) <= 599:
                return status
    words = f"{fields.get('code')} {fields.get('type')} {fields.get('status')}".lower()
    return 503 if re.search("rate_?limit|overload|server_error|timeout|unavailable", words) else 400


def reason_in(content: bytes) -> Any:
    """What the JSON of an error says, or the beginning of whatever came instead."""
    try:
        answer = json.loads(content)
        error = _error_in(answer) or answer["detail"]
        return error.get("message") or error if isinstance(error, dict) else error
    except (LookupError, TypeError, ValueError, RecursionError):
        return content[:200].decode(errors="replace")
