"""The client of servers over HTTP, what it does with those of the OpenAI protocol, and who gets a proxy.

client = OpenAIClient("http://127.0.0.1:8000", timeout=60.0, tries=5)
client.get("/models", lambda answer: [model["id"] for model in answer["data"]])
"""

from __future__ import annotations

import contextlib
import email.utils
import functools
import ipaddress
import json
import logging
import os
import re
import socket
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from memenvs.core.address import Address
from memenvs.core.data import Count, checked
from memenvs.core.errors import RequestRefused, ServerError, Unreachable, error_line, one_line
from memenvs.core.optional import require

if TYPE_CHECKING:
    import httpx

MAX_PAUSE, LONGEST_WAIT = 8.0, 60.0  # seconds between two tries: ours, and the longest that a server asks for
ENDPOINTS = ("/chat/completions", "/completions", "/embeddings", "/models", "/responses")

MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)
"""What code raises that reads an answer of another form than it expects."""

_FIELDS = {"/completions": ("choices", "choice"), "/embeddings": ("data", "vector")}
"""By the end of a path the field without which an answer is none, and what is in it."""

_WORDS = (
    *("error", "errors", "base_resp", "Response", "Error", "fault", "message", "msg", "detail", "Message"),
    *("error_message", "error_msg", "err_msg", "errmsg", "status_msg", "description", "reason", "title"),
)
"""Fields in which servers say what is wrong."""

_REFUSAL = re.compile(
    r"not[ _]found|no such|not exist|invalid|unauthori[sz]ed|authentic|forbidden|permission|denied|sensitive|"
    r"unsupported|not[ _]support|bad[ _]request|too long|maximum context|context[ _]length|missing|required|"
    r"unknown (?:model|field)"
)
_QUOTA = re.compile(
    r"billing|payment|insufficient[ _](?:balance|funds|credit|quota)|(?:out of|no|not enough|more) credits|"
    r"(?:quota|credits?)[^.]{0,40}(?:exceeded|exhausted|used up)|(?:credit|account) balance|arrear|overdue|"
    r"(?:exceeded|exhausted)[^.]{0,40}(?:quota|credit)|余额不足|欠费"
)
_WAIT = re.compile(r"(?:try|retry)(?: again)? (?:in|after)|per (?:second|min|hour|day)|retrydelay")
"""Words, in lower case, of a refusal, of a quota that is used up, and of a limit that only time lifts."""

T = TypeVar("T")

logging.getLogger("httpx").setLevel(logging.WARNING)  # below it writes the address of each request


class HTTPClient:
    """Asks a server over HTTP, and reads the JSON that it answers.

    It may be used from several threads and after a fork, and it can be pickled. A request is repeated after
    408, 409, 429, 5xx and broken connections, with pauses that double up to 8 s or are what the server asks
    for where that is longer, up to a minute. Requests go through the proxy of the environment, except where
    `direct_mounts` says otherwise.

    Args:
        url: address of the server. A query, or a user and a password, is sent with every request.
        timeout: seconds for a connection, and for each wait for an answer.
        tries: of a request, the first included.
        key: sent as `Authorization: Bearer`; no error message contains it.
        fix: what to do about a server that does not answer; the error ends with it.
        pause: seconds before the second try.

    Attributes:
        url: the address to which the paths of requests are added, without what may be a secret.

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
        key: str | None = None,
        fix: str = "is it up?",
        pause: float = 0.5,
    ):
        self._address = Address(url)
        if key and not (key.isascii() and key.isprintable()):
            host = self._address.url.host
            raise ValueError(f"the key for {host} has an unprintable character; set it again")
        self._base = self._base_of(self._address.url)
        self.url = str(Address(str(self._base)))
        self._timeout, self._tries, self._key, self._fix, self._pause = timeout, tries, key, fix, pause
        self._connections()  # here, so that threads need not make one each

    def _base_of(self, url: Any) -> Any:
        """The address to which the paths of requests are added."""
        return url.copy_with(path=url.path.rstrip("/"))

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def _verdict(self, response: httpx.Response, answer: Any) -> tuple[int, str]:
        """The status that a response means, and how errors name it; `answer` is its JSON, None where none."""
        return response.status_code, f"HTTP {response.status_code}"

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
        return self._ask("POST", path, fields, read)

    def get(self, path: str, read: Callable[[Any], T]) -> T:
        """GET a page and return what `read` makes of its JSON; errors as of `post`."""
        return self._ask("GET", path, None, read)

    def _ask(self, method: str, path: str, fields: Any, read: Callable[[Any], T]) -> T:
        import httpx

        began = time.monotonic()
        where = self.url + path
        connections = self._connections()
        target = self._base.copy_with(path=self._base.path.rstrip("/") + path)
        last, wait, kind = "", 0.0, ServerError
        for attempt in range(self._tries):
            if attempt:
                time.sleep(max(wait, min(self._pause * 2 ** (attempt - 1), MAX_PAUSE)))
            wait, fix = 0.0, self._fix
            try:
                response = connections.http.request(method, target, json=fields)
            except (httpx.HTTPError, httpx.StreamError) as error:
                last, kind = self._address.hide(error_line(error), self._key), Unreachable
                continue
            kind = ServerError
            content = response.content
            answer, fault = _parsed(content)
            status, name = self._verdict(response, answer)
            if 200 <= status < 300:
                try:
                    if fault:
                        raise fault
                    return read(answer)
                except MALFORMED as bad:
                    text = self._address.hide(f"{bad!r} in {content[:200]!r}", self._key)
                    raise ServerError(f"{where} does not speak the protocol: {text}") from bad
            reason = content[:200].decode(errors="replace") if fault else _reason(_error_in(answer) or answer)
            last = self._address.hide(one_line(f"{name}: {reason!s:.1000}"), self._key)
            if not (status in (408, 409, 429) or status >= 500):
                raise RequestRefused(f"{where} refused the request, {last}", status)
            if status != response.status_code:  # it answers, so it is up
                fix = ""
            wait = _seconds(response.headers)
            wait = min(wait, LONGEST_WAIT) if wait > 0 else 0.0  # a server may say NaN
        raise kind(
            f"no answer from {where} in {self._tries} tries over {time.monotonic() - began:.1f} s "
            f"(last: {last})" + (f"; {fix}" if fix else "")
        )

    def _connections(self) -> _Connections:
        """Those to the server; never those from before a fork, which the parent still reads."""
        headers = tuple(self._headers().items())
        return _connect(self.url, headers, self._timeout, os.getpid())


class _Connections:
    """Connections to a server, which are closed when nothing uses them, and at exit."""

    def __init__(self, url: str, headers: Iterable[tuple[str, str]], timeout: float) -> None:
        import httpx

        self.http = httpx.Client(
            headers=dict(headers),
            timeout=timeout,
            # hundreds of episodes ask at once; httpx has 100 connections by itself
            limits=httpx.Limits(max_connections=1000, max_keepalive_connections=100),
            # httpx leaves the header out where another server is asked, but only if it is Authorization
            follow_redirects="api-key" not in dict(headers),
            event_hooks={"response": [_stay_post]},
            mounts=direct_mounts(url),
        )
        weakref.finalize(self, self.http.close)


_connect = functools.lru_cache(maxsize=32)(lambda *settings: _Connections(*settings[:-1]))
"""One for all clients of a server in a process."""


class OpenAIClient(HTTPClient):
    """Asks a server that speaks the OpenAI protocol.

    An answer of status 200 that is empty, has no choice, or holds an error counts as an error, with its own
    status if it has one. A quota that is used up is not repeated. A server that only streams is asked to
    stream, for which the `openai` package is needed.

    Args:
        url: address of the server. `/v1` is added where there is no path. The endpoint at the end of a pasted
            address, such as `/chat/completions`, is dropped. With `api-version` in its query the key is sent
            as Azure's `api-key`.
    """

    def _base_of(self, url: Any) -> Any:
        path = url.path.rstrip("/")
        if not path:
            path = "/openai/v1" if url.host.endswith(".azure.com") else "/v1"
        return url.copy_with(path=path.removesuffix(next(filter(path.endswith, ENDPOINTS), "")))

    def _headers(self) -> dict[str, str]:
        is_azure = "api-version" in self._base.params
        return {"api-key": self._key} if self._key and is_azure else super()._headers()

    def post(self, path: str, fields: dict[str, Any], read: Callable[[Any], T]) -> T:
        """As of `HTTPClient`."""
        try:
            return super().post(path, fields, read)
        except RequestRefused as refusal:
            if "stream" in fields or "stream" not in str(refusal).lower():
                raise
        return self.post(path, {**fields, "stream": True}, read)  # some servers do nothing else

    def _verdict(self, response: httpx.Response, answer: Any) -> tuple[int, str]:
        status, name = super()._verdict(response, answer)
        error = _error_in(answer)
        if status == 200:
            path = response.request.url.path
            field, item = next(
                (names for end, names in _FIELDS.items() if path.endswith(end)), ("", "answer")
            )
            lacks = bool(field) and isinstance(answer, dict) and not answer.get(field)
            # Without a length, what is no JSON may be the beginning of an answer whose connection broke.
            sized = "content-length" in response.headers or "transfer-encoding" in response.headers
            if not (error or lacks) and response.content.strip() and (answer is not None or sized):
                return status, name
            name = f"the server sent no {item} (HTTP 200)"
            status = _status(error or answer) if answer else 502
        words = str(error or answer)[:2000].lower()
        is_over = "insufficient_quota" in words or (_QUOTA.search(words) and not _WAIT.search(words))
        if status >= 400 and is_over:
            return 402, f"the quota is used up (HTTP {status})"  # which is not repeated
        return status, name


def allowed_hosts(host: str) -> list[str]:
    """The names by which a server that listens on `host` may be asked, for Starlette's TrustedHostMiddleware.

    On loopback they are this machine's, so that no web page reaches it by a name of its own (DNS rebinding).
    """
    is_loopback = host in ("localhost", "::1") or host.startswith("127.")
    # "[" is all that Starlette before 1.7 compares of an IPv6 address, which is never a page's name.
    return ["127.0.0.1", "localhost", "[::1]", "[", host] if is_loopback else ["*"]


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


def _stay_post(response: httpx.Response) -> None:
    """Let a POST that has moved stay one; after 301 it would become a GET."""
    if response.status_code in (301, 302):
        response.status_code = 308


def _seconds(headers: Mapping[str, str]) -> float:
    """The seconds that a server asks to wait: a number of them or a date; 0 for anything else."""
    wait = headers.get("Retry-After", "")
    with contextlib.suppress(ValueError):
        return float(headers["retry-after-ms"]) / 1000 if "retry-after-ms" in headers else float(wait)
    with contextlib.suppress(TypeError, ValueError):
        return email.utils.parsedate_to_datetime(wait).timestamp() - time.time()
    return 0.0


def read_answer(content: bytes) -> Any:
    """The JSON of an answer, or of a stream of events the completion that they add up to."""
    if not content.lstrip().startswith((b"data:", b"event:", b"id:", b":")):
        return json.loads(content)
    require("openai", "endpoint")
    from openai.lib.streaming.chat import ChatCompletionStreamState
    from openai.types.chat import ChatCompletionChunk

    lines = [line[5:].strip() for line in content.splitlines() if line.startswith(b"data:")]
    events = [json.loads(line) for line in lines if line not in (b"", b"[DONE]")]
    if len(events) == 1 or any(map(_error_in, events)):
        return next(filter(_error_in, events), events[0])
    state = ChatCompletionStreamState()
    for event in events:
        state.handle_chunk(ChatCompletionChunk.construct(**event))
    return state.current_completion_snapshot.to_dict()


def _parsed(content: bytes) -> tuple[Any, Exception | None]:
    """The JSON of an answer, or why there is none, as without the package that reads a stream of events."""
    try:
        return read_answer(content), None
    except (*MALFORMED, ImportError) as error:
        return None, error


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
    for name in ("code", "status", "status_code", "http_code"):
        with contextlib.suppress(TypeError, ValueError):
            if 400 <= (status := int(fields[name] if name in fields else 0)) <= 599:
                return status
    return 400 if _REFUSAL.search(str(error)[:2000].lower()) else 503


def _reason(error: Any) -> Any:
    """What an error says, in whatever field, or all of it."""
    field = next((name for name in _WORDS if isinstance(error, dict) and error.get(name)), None)
    if field is None:
        return error
    return _reason(error[field][0] if field == "errors" and isinstance(error[field], list) else error[field])
