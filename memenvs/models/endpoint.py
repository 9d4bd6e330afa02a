"""Chat completions of OpenAI-compatible servers; `url` of the client is `http://host:port/v1`."""

from __future__ import annotations

from typing import Any, NamedTuple

from memenvs.core.data import is_whole
from memenvs.core.http import JSONClient, ServerError


class Completion(NamedTuple):
    """A reply of an endpoint.

    Attributes:
        text: of the message.
        finish: why it ended: `"stop"`, `"length"` or another word of the server's.
        stop: the stop string that ended it, where the server says so; it is not part of the text.
        tells_stop: whether this server says which stop string ended a reply.
        prompt_tokens: of the messages, by the model's tokenizer; None where the server does not count.
        reply_tokens: of the reply, likewise; what the model thought unseen is included.
    """

    text: str
    finish: str
    stop: str = ""
    tells_stop: bool = False
    prompt_tokens: int | None = None
    reply_tokens: int | None = None


def complete(client: JSONClient, fields: dict[str, Any]) -> Completion:
    """`POST /chat/completions`: the reply to a request's fields; errors as of `JSONClient.post`."""
    return client.post("/chat/completions", fields, read_completion)


def served_models(client: JSONClient) -> list[str]:
    """`GET /models`: names of the models that are served.

    Raises:
        ServerError: the server does not list them.
    """
    try:
        return client.get("/models", lambda found: [str(entry["id"]) for entry in found["data"]])
    except ServerError as error:
        raise ServerError(
            f"{client.url} does not list its models ({error}); give the model's name"
        ) from error


def read_completion(found: Any) -> Completion:
    """The first choice of a completion.

    A message of thoughts alone, which a server with a reasoning parser separates (`reasoning_content`,
    `reasoning`), is an empty reply.

    Args:
        found: the JSON of the answer.

    Raises:
        KeyError, TypeError, …: it is not a completion, or its message has neither text nor thoughts.
        ServerError: the message is a native tool call without text.
    """
    choice = found["choices"][0]
    message, finish = choice["message"], str(choice.get("finish_reason", ""))
    content = message.get("content")
    if not content and (calls := message.get("tool_calls")):
        raise ServerError(
            f"the reply is a native tool call, not text ({calls!r:.80}); environments read calls as text: "
            "leave tools out of --body, or start the server without its tool-call parser"
        )
    thoughts = message.get("reasoning_content"), message.get("reasoning")
    if content is None and any(isinstance(text, str) and text for text in thoughts):
        content = ""
    if not isinstance(content, str):
        raise TypeError(f"the content of the message is {content!r:.80}, no text")
    usage = found.get("usage") or {}
    counts = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    # vLLM calls it stop_reason, SGLang matched_stop; both give a number where a token ended the reply
    stop = next((choice[name] for name in ("stop_reason", "matched_stop") if name in choice), False)
    return Completion(
        content,
        finish,
        stop if isinstance(stop, str) else "",
        stop is not False,
        *(count if is_whole(count) else None for count in counts),
    )
