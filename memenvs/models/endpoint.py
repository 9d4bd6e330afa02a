"""Chat completions of OpenAI-compatible servers; `url` of the client is `http://host:port/v1`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import gymnasium as gym

from memenvs.core.data import is_whole
from memenvs.core.env import Info, text_env_of
from memenvs.core.http import JSONClient, ServerError
from memenvs.core.spaces import replace_surrogates
from memenvs.core.tools import ToolUse
from memenvs.sokoban.render import png_url

THOUGHTS = ("reasoning_content", "reasoning")
"""Fields of a message in which servers put what a model thought first."""

Message = dict[str, Any]


class Completion(NamedTuple):
    """A reply of an endpoint.

    Attributes:
        text: of the message.
        finish: why it ended: `"stop"`, `"length"` or another word of the server's.
        stop: the stop string that ended it, where the server says so; it is not part of the text.
        tells_stop: whether this server says which stop string ended a reply.
        message: the whole message, as the server sent it.
        prompt_tokens: of the messages, by the model's tokenizer; None where the server does not count.
        reply_tokens: of the reply, likewise; what the model thought unseen is included.
    """

    text: str
    finish: str
    stop: str = ""
    tells_stop: bool = False
    message: Mapping[str, Any] = MappingProxyType({})
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
    """The first choice of a completion, as `read_message` reads it, if it is text.

    Raises:
        KeyError, TypeError, …: as of `read_message`.
        ServerError: the message is a native tool call without text.
    """
    completion = read_message(found)
    if not completion.text and (calls := completion.message.get("tool_calls")):
        raise ServerError(
            f"the reply is a native tool call, not text ({calls!r:.80}): add --tools native, leave tools out "
            "of --body, or start the server without its tool-call parser"
        )
    return completion


def read_message(found: Any) -> Completion:
    """The first choice of a completion.

    A message of thoughts alone, which a server with a reasoning parser separates (`THOUGHTS`), or of tool
    calls alone has an empty text.

    Args:
        found: the JSON of the answer.

    Raises:
        KeyError, TypeError, …: it is not a completion, or its message has no text, thoughts or tool calls.
    """
    choice = found["choices"][0]
    message, finish = choice["message"], str(choice.get("finish_reason", ""))
    content = message.get("content")
    if content is None and (_thought(message) or message.get("tool_calls")):
        content = ""
    if not isinstance(content, str):
        raise TypeError(f"the content of the message is {content!r:.80}, no text")
    usage = found.get("usage") or {}
    counts = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    # vLLM calls it stop_reason, SGLang matched_stop; both give a number where a token ended the reply
    stop = next((choice[name] for name in ("stop_reason", "matched_stop") if name in choice), False)
    return Completion(
        replace_surrogates(content),
        finish,
        stop if isinstance(stop, str) else "",
        stop is not False,
        message,
        *(count if is_whole(count) else None for count in counts),
    )


class Prompts:
    """An episode as an endpoint reads it: each observation is one message of the user.

    Attributes:
        reader: reads the JSON of an answer.
        fields: of every request.
        messages: to send at this turn.

    Args:
        env: that is played, wrapped or not.
    """

    reader = staticmethod(read_completion)

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.fields: dict[str, Any] = {}
        self.messages: list[Message] = []

    def observe(self, observation: Any, info: Info) -> None:
        """Take what the next reply answers; a picture of it is sent, too."""
        text = observation if isinstance(observation, str) else observation["text"]
        self.messages = [_user(text, observation)]

    def read(self, completion: Completion) -> str:
        """The reply to play, which a completion gives."""
        return completion.text


class TextConversation(Prompts):
    """An episode as a growing conversation, with the replies as the assistant's messages.

    Where the context is rewritten, it starts over.
    """

    def observe(self, observation: Any, info: Info) -> None:
        """See `Prompts.observe`."""
        if self.messages and info["context"] == "append":
            self.messages.append(_user(info["feedback"], observation))
        else:
            super().observe(observation, info)

    def read(self, completion: Completion) -> str:
        """See `Prompts.read`."""
        self.messages.append({"role": "assistant", "content": completion.text})
        return completion.text


class ToolConversation(Prompts):
    """A conversation with tool calls, as models are trained on them; see `ToolUse`.

    Of several calls in one message the first one counts, and the others are not sent back. Thoughts are, in
    the field in which the server gave them.

    Raises:
        ValueError: the environment has no tools.
    """

    reader = staticmethod(read_message)

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._env = text_env_of(env)
        self.fields = {"tools": self._env.tools()}
        if not self.fields["tools"]:
            name = env.spec.id if env.spec else type(env.unwrapped).__name__
            raise ValueError(f"{name} has no tools; leave `tools` out")
        self._call: dict[str, str] = {}
        self._fault = ""

    def observe(self, observation: Any, info: Info) -> None:
        """See `Prompts.observe`."""
        use = self._use
        if not self.messages or info["context"] == "rewrite":
            self.messages = [_user(use.explain(use.prompt(), self._fault), observation)]
            return
        feedback = use.explain(info["feedback"], self._fault)
        if not self._call:
            self.messages.append(_user(feedback, observation))
            return
        # OpenAI needs no name, but the chat template of Hermes models does.
        self.messages.append({"role": "tool", **self._call, "content": feedback.strip()})
        if not isinstance(observation, str):  # OpenAI takes only text as what a tool returns
            self.messages.append(_user("", observation))

    def read(self, completion: Completion) -> str:
        """See `Prompts.read`."""
        message, thought = completion.message, _thought(completion.message)
        said: Message = {"role": "assistant", "content": completion.text}
        said |= {name: message[name] for name in THOUGHTS if message.get(name)}
        self.messages.append(said)
        if not (calls := message.get("tool_calls")):
            self._call = {}
            reply, self._fault = self._use.text(thought, completion.text)
            return reply
        call = _first_call(calls)
        number = call.id or f"call-{len(self.messages)}"
        self._call = {"tool_call_id": number, "name": call.name}
        function = {"name": call.name, "arguments": call.json}
        said["tool_calls"] = [{"id": number, "type": "function", "function": function}]
        reply, self._fault = self._use.call(call.name, call.arguments, thought, completion.text)
        return reply

    @property
    def _use(self) -> ToolUse:
        return cast(ToolUse, self._env.tool_use())


class _Call(NamedTuple):
    """A tool call; `json` is its arguments as text."""

    id: str
    name: str
    arguments: dict[str, Any]
    json: str


def _first_call(calls: Any) -> _Call:
    """The first tool call, whatever a server or a model made of it.

    OpenAI sends the arguments as JSON, other servers as an object. What no tool takes, such as a list or text
    that is not JSON, is left out, so that the server can read the call again.
    """
    call = calls[0] if isinstance(calls, list) else calls
    call = call if isinstance(call, dict) else {}
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    id, name, given = call.get("id"), function.get("name"), function.get("arguments")
    try:
        found = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        found = {}
    fields = found.items() if isinstance(found, dict) else ()
    arguments = {field: value for field, value in fields if not isinstance(value, (dict, list))}
    text = replace_surrogates(json.dumps(arguments, ensure_ascii=False))
    id, name = (replace_surrogates(one) if isinstance(one, str) else "" for one in (id, name))
    return _Call(id, name, arguments, text)


def _thought(message: Mapping[str, Any]) -> str:
    """What a model thought first, where the server separates it."""
    found = (message.get(name) for name in THOUGHTS)
    return next((text for text in found if isinstance(text, str) and text), "")


def _user(text: str, observation: Any) -> Message:
    """A message of the user, with the picture of an observation that has one."""
    if isinstance(observation, str):
        return {"role": "user", "content": text}
    parts: list[Message] = [{"type": "image_url", "image_url": {"url": png_url(observation["image"])}}]
    return {"role": "user", "content": parts + ([{"type": "text", "text": text}] if text else [])}
