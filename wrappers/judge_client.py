"""The client of a judge model: prompts to an OpenAI-compatible endpoint, and a cache of its replies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from memenvs.core.data import Count, NonNegative, checked
from memenvs.core.files import json_sha256, write_text
from memenvs.core.http import JSONClient
from memenvs.core.progress import progress
from memenvs.core.text import thought_end
from memenvs.models.endpoint import complete
from memenvs.wrappers.method import Score

T = TypeVar("T")
V = TypeVar("V")


@checked
@dataclass
class JudgeClient:
    """Asks a judge model; plain data, so that it can be copied and pickled, and it holds no key.

    Args:
        url: of an OpenAI-compatible endpoint, e.g. `http://localhost:8000/v1`.
        model: its name there.
        concurrency: requests at a time.
        max_tokens: of a reply.
        timeout: seconds.
        tries: of a request.
        pause: seconds before the second try; it doubles.
        cache: a folder that keeps replies by the hash of what was asked.
        key_variable: the environment variable with the endpoint's key; None sends none. The key itself is
            never an argument, so that no spec or log holds it.
        chat_args: arguments of the endpoint's chat template, such as `{"enable_thinking": False}`.
    """

    url: str
    model: str
    concurrency: Count = 8
    max_tokens: Count = 1024
    timeout: NonNegative = 120.0
    tries: Count = 4
    pause: NonNegative = 0.5
    cache: str | None = None
    key_variable: str | None = None
    chat_args: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._connect(None)  # which refuses a wrong URL

    def for_each(self, ask: Callable[[T], V], items: Sequence[T]) -> list[V]:
        """What `ask` returns for each item, at most `concurrency` at a time."""
        with ThreadPoolExecutor(self.concurrency) as pool:
            return list(progress(pool.map(ask, items), len(items), "judgements"))

    def ask(self, prompt: str, read: Callable[[str], list[Score]]) -> list[Score]:
        """The scores that `read` finds in the reply to a prompt, without the thought that leads the reply.

        A reply in the cache is taken from there; one whose scores have no reasons is kept in it.

        Raises:
            ServerError: no reply in `tries` tries, or a refusal.
        """
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0.0,
            "max_tokens": self.max_tokens,
        }
        if self.chat_args:
            body["chat_template_kwargs"] = self.chat_args
        place = None
        if self.cache is not None:
            digest = json_sha256(body)
            place = Path(self.cache).expanduser() / digest[:2] / f"{digest}.json"
            if (kept := _read_reply(place)) is not None:
                return read(kept)
        key = os.environ.get(self.key_variable, "").strip() if self.key_variable else None
        reply = complete(self._connect(key), body).text
        reply = reply[thought_end(reply) :]
        scores = read(reply)
        if place is not None and not any(reason for _, reason in scores):
            write_text(place, json.dumps({"reply": reply}))
        return scores

    def _connect(self, key: str | None) -> JSONClient:
        return JSONClient(self.url, timeout=self.timeout, tries=self.tries, pause=self.pause, key=key)


def _read_reply(place: Path) -> str | None:
    """A kept reply; None if there is none, or if the file is broken."""
    try:
        kept = json.loads(place.read_text(encoding="utf-8"))["reply"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return kept if isinstance(kept, str) else None
