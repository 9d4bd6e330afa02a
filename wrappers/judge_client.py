"""A chat endpoint for one question at a time, whose replies are kept on disk by what was asked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memenvs.chat import ChatClient
from memenvs.files import write_text
from memenvs.integrity import json_sha256
from memenvs.tags import thought_end


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
        chat_args: arguments of the endpoint's chat template (`chat_template_kwargs`), where it takes them.

    Raises:
        ValueError: the URL is not one of those, or `tries` is below 1.
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
    chat_args: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._client(None)  # which refuses a wrong URL

    def ask(self, prompt: str, accept: Callable[[str], bool]) -> str:
        """The reply to one user message without the thought that leads it, from the cache if it is there.

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
        if self.chat_args:
            body["chat_template_kwargs"] = self.chat_args
        place = self._place(body)
        known = _read(place)
        if known is not None:
            return known
        key = os.environ.get(self.key_variable, "").strip() if self.key_variable else None
        reply = self._client(key).complete(body).text
        reply = reply[thought_end(reply) :]
        if place is not None and accept(reply):
            write_text(place, json.dumps({"reply": reply}))
        return reply

    def _client(self, key: str | None) -> ChatClient:
        """One a request, so that an endpoint stays plain data."""
        return ChatClient(self.url, timeout=self.timeout, tries=self.tries, pause=self.pause, key=key)

    def _place(self, body: dict[str, Any]) -> Path | None:
        if self.cache is None:
            return None
        digest = json_sha256(body)
        return Path(self.cache).expanduser() / digest[:2] / f"{digest}.json"


def _read(place: Path | None) -> str | None:
    """A kept reply; None if there is none, or if what is there is broken."""
    try:
        kept = json.loads(place.read_text(encoding="utf-8"))["reply"] if place else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return kept if isinstance(kept, str) else None
