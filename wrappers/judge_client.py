"""Chat messages go out to an OpenAI-compatible endpoint, its reply comes back; kept on disk by content."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

RETRIED = (408, 409, 429, 500, 502, 503, 504)
MAX_REPLY = 16_000_000  # bytes
LONGEST_PAUSE = 30.0  # seconds


class EndpointError(ConnectionError):
    """An endpoint is away, or does not answer as one."""


@dataclass(frozen=True)
class ChatEndpoint:
    """`POST {url}/chat/completions`, with tries and a cache.

    Args:
        url: `http://host:port/v1`; `https://` too.
        model: its name there.
        max_tokens: of a reply.
        temperature: of sampling.
        timeout: seconds for each wait.
        tries: of a request, the first included; pauses double from `pause`, or are what the server asks for.
        pause: seconds.
        cache: a folder; None keeps nothing.
        key_variable: the environment variable that holds the key; None sends none. The key itself is never
            an argument, so that no spec or log holds it.

    Raises:
        ValueError: the URL is not one of those.
    """

    url: str
    model: str
    max_tokens: int = 1024
    temperature: float = 0.0
    timeout: float = 120.0
    tries: int = 4
    pause: float = 0.5
    cache: str | None = None
    key_variable: str | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError(f"no endpoint at {self.url!r}; an address is http://host:port/v1")
        if self.tries < 1:
            raise ValueError(f"tries must be at least 1, got {self.tries!r}")

    def ask(self, prompt: str, accept: Callable[[str], bool]) -> str:
        """The reply to one user message, from the cache if it is there.

        Args:
            prompt: the message.
            accept: whether a reply is worth keeping; others are asked for again the next time.

        Raises:
            EndpointError: no reply in `tries` tries, or a refusal.
        """
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
        }
        place = self._place(body)
        known = _read(place)
        if known is not None:
            return known
        reply = self._post(json.dumps(body).encode())
        if place is not None and accept(reply):
            _write(place, reply)
        return reply

    def _place(self, body: dict[str, Any]) -> Path | None:
        if self.cache is None:
            return None
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        return Path(self.cache).expanduser() / digest[:2] / f"{digest}.json"

    def _post(self, body: bytes) -> str:
        last = ""
        wait = self.pause
        for attempt in range(self.tries):
            if attempt:
                time.sleep(min(wait, LONGEST_PAUSE))
                wait *= 2
            try:
                status, reply, after = self._exchange(body)
            except (OSError, http.client.HTTPException) as error:
                last = f"{type(error).__name__}: {error}"
                continue
            if status == 200:
                return _content(reply, self.url)
            last = f"HTTP {status}: {reply[:200].decode(errors='replace')}"
            if status not in RETRIED:
                raise EndpointError(f"{self.url} refused the request, {last}")
            wait = max(wait, after)
        raise EndpointError(f"no reply from {self.url} in {self.tries} tries (last: {last})")

    def _exchange(self, body: bytes) -> tuple[int, bytes, float]:
        """Status, body, and the seconds the server asks to wait."""
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        headers = {"Content-Type": "application/json"}
        if self.key_variable:
            headers["Authorization"] = f"Bearer {os.environ.get(self.key_variable, '')}"
        connection = kind(str(parts.hostname), parts.port, timeout=self.timeout)
        try:
            connection.request("POST", parts.path.rstrip("/") + "/chat/completions", body, headers)
            response = connection.getresponse()
            reply = response.read(MAX_REPLY + 1)
            if len(reply) > MAX_REPLY:
                raise http.client.HTTPException(f"a reply of more than {MAX_REPLY:,} bytes")
            asked = response.getheader("Retry-After", "")
            return response.status, reply, float(asked) if asked.isdigit() else 0.0
        finally:
            connection.close()


def _content(reply: bytes, url: str) -> str:
    try:
        content = json.loads(reply)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise EndpointError(f"{url} does not speak the protocol: {error!r} in {reply[:200]!r}") from error
    return content if isinstance(content, str) else ""


def _read(place: Path | None) -> str | None:
    """A kept reply; None if there is none, or if what is there is broken."""
    try:
        kept = json.loads(place.read_text(encoding="utf-8"))["reply"] if place else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return kept if isinstance(kept, str) else None


def _write(place: Path, reply: str) -> None:
    """Write whole and rename, so that no reader sees half of it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f"{place.name}.{os.getpid()}-{time.monotonic_ns()}")
    draft.write_text(json.dumps({"reply": reply}), encoding="utf-8")
    draft.replace(place)
