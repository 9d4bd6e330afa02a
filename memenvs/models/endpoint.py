"""A client of OpenAI-compatible chat endpoints."""

from __future__ import annotations

from typing import Any, NamedTuple

from memenvs.core.http import JSONClient


class EndpointError(ConnectionError):
    """An endpoint is away, refuses, or does not answer as one."""


class Completion(NamedTuple):
    """A reply of an endpoint.

    Attributes:
        text: of the message.
        finish: why it ended: `"stop"`, `"length"` or another word of the server's.
        stop: the stop string that ended it, where the server tells; it is not part of the text.
        tells_stop: whether this server tells which stop string ended a reply.
        prompt_tokens: of the messages, by the model's tokenizer; None where the server does not count.
        reply_tokens: of the reply, likewise; what the model thought unseen is included.
    """

    text: str
    finish: str
    stop: str = ""
    tells_stop: bool = False
    prompt_tokens: int | None = None
    reply_tokens: int | None = None


class ChatClient:
    """`POST {url}/chat/completions` and `GET {url}/models`; may be called from several threads.

    Args:
        url: `http://host:port/v1`, `https://` too.
        timeout: seconds for a connection, and for each wait for an answer.
        tries: of a request, the first included; see `JSONClient`.
        pause: seconds before the second one.
        key: sent as a bearer token; in no message.

    Raises:
        ValueError: the URL is not one of those, or `tries` is below 1.
    """

    def __init__(self, url: str, *, timeout: float, tries: int, pause: float, key: str | None = None):
        self._client = JSONClient(url, "chat", timeout, tries, pause, EndpointError, key=key)
        self.url = self._client.url

    def complete(self, fields: dict[str, Any]) -> Completion:
        """The reply to a request's fields.

        Raises:
            EndpointError: no answer in `tries` tries, a refusal, or an answer that is no completion.
        """
        try:
            return self._client.post("/chat/completions", fields, read_completion)
        except ValueError as error:
            raise EndpointError(str(error)) from error

    def models(self) -> list[str]:
        """Names of the models that are served.

        Raises:
            EndpointError: as for `complete`.
        """
        try:
            return self._client.get("/models", lambda found: [str(entry["id"]) for entry in found["data"]])
        except (ValueError, EndpointError) as error:
            raise EndpointError(f"{self.url} does not list its models ({error}); name one") from error


def read_completion(found: Any) -> Completion:
    """The first choice of a completion.

    A message of thoughts alone, which a server with a reasoning parser keeps apart (`reasoning_content`,
    `reasoning`), is an empty reply: the model wrote no other.

    Args:
        found: the JSON of the answer.

    Raises:
        KeyError, TypeError, …: it is no completion, or its message holds neither text nor thoughts.
    """
    choice = found["choices"][0]
    message, finish = choice["message"], str(choice.get("finish_reason", ""))
    content = message["content"]
    if content is None and any(_is_text(message.get(name)) for name in ("reasoning_content", "reasoning")):
        content = ""
    if not isinstance(content, str):
        raise TypeError(f"the content of the message is {content!r:.80}, no text")
    usage = found.get("usage") or {}
    counts = [_count(usage.get(name)) for name in ("prompt_tokens", "completion_tokens")]
    # vLLM calls it stop_reason, SGLang matched_stop; both give a number where a token ended the reply
    told = next((choice[name] for name in ("stop_reason", "matched_stop") if name in choice), False)
    return Completion(content, finish, told if isinstance(told, str) else "", told is not False, *counts)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
