"""Chat completions of OpenAI-compatible servers: how an episode becomes messages, and a message a reply."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np

from memenvs.core.data import is_whole
from memenvs.core.env import Info, env_name, text_env_of
from memenvs.core.episode import Episode, Ids, Reply
from memenvs.core.errors import ServerError, Unreachable
from memenvs.core.servers import OpenAIClient
from memenvs.core.spaces import replace_surrogates
from memenvs.core.text import thought_end
from memenvs.core.tools import ToolUse, as_thought
from memenvs.models.chat import ChatPolicy, ChatTokens
from memenvs.models.policy import Limit, reply_limits
from memenvs.sokoban.render import png_url
from memenvs.tasks.tokens import load_tokenizer

THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "thinking")
"""Fields of a message in which servers put what a model thought first."""

_CALL_AS_TEXT = re.compile(
    r"<tool_call>|\[TOOL_CALLS?\]|<function=|<\|python_tag\|>|<[|\uff5c]tool[_\u2581]call|```tool_code"
    r'|^\s*(?:```json\s*)?\[?\s*\{\s*"(?:name|type|function)"\s*:|^\s*\[\w+\(\w+=',
)
"""How models write calls, which a server without their parser leaves in the text."""

_CUT, _FEW = 0.7, 4  # share of a prompt that a server must have read, and replies before a warning of them
_LENGTH = ("length", "max_tokens", "MAX_TOKENS")  # how servers say that a reply was cut at its limit
_ADVICE = {
    "thought": "hold a thought and no text: start the server with the model's reasoning parser "
    "(vLLM, SGLang: --reasoning-parser NAME) or without one, or switch thinking off",
    "cut": "were cut at their limit: raise --max-new-tokens (a judge's max_tokens), or switch thinking off",
    "empty": "are empty: check the model's chat template and stop strings",
}
_log = logging.getLogger(__name__)

Message = dict[str, Any]


class Completion(NamedTuple):
    """A reply of an endpoint."""

    text: str  # of the message, without a thought that the server separates
    finish: str  # why it ended: `"stop"`, `"length"` or another word of the server's
    stop: str = ""  # the stop string that ended it, where the server says so; it is not part of the text
    tells_stop: bool = False  # whether this server says which stop string ended a reply
    message: Mapping[str, Any] = MappingProxyType({})  # as the server sent it
    prompt_tokens: int | None = None  # by the model's tokenizer; None where the server does not count
    reply_tokens: int | None = None  # likewise; what the model thought unseen is included

    @property
    def thought(self) -> str:
        """What the model thought first, where the server separates it: in a field, or in a part."""
        fields = (_text_of(self.message.get(name)) for name in THOUGHTS)
        thought = next(filter(None, fields), "") or read_content(self.message.get("content"))[1]
        return replace_surrogates(thought)


def complete(client: OpenAIClient, fields: dict[str, Any]) -> Completion:
    """`POST /chat/completions`: the reply to a request's fields; errors as of `OpenAIClient.post`."""
    return client.post("/chat/completions", fields, read_completion)


def served_models(client: OpenAIClient) -> list[str]:
    """`GET /models`: names of the models that are served.

    Raises:
        ServerError: the server does not list them.
    """
    try:
        return client.get("/models", lambda answer: [str(entry["id"]) for entry in answer["data"]])
    except Unreachable:
        raise
    except ServerError as error:
        raise ServerError(
            f"{client.url} does not list its models ({error}); give the model's name"
        ) from error


def served_window(client: OpenAIClient, model: str) -> int | None:
    """Tokens of prompt and reply together of a model that is served (vLLM); None where no one says it.

    An adapter has the window of its base model.

    Raises:
        Unreachable: nothing answers at the address.
    """
    try:
        served = client.get("/models", lambda answer: {entry["id"]: entry for entry in answer["data"]})
    except Unreachable:
        raise
    except ServerError:
        return None
    entry = served.get(model) or {}
    windows = (of.get("max_model_len") for of in (entry, served.get(entry.get("parent")) or {}))
    return next(filter(is_whole, windows), None)


def read_completion(answer: Any) -> Completion:
    """The first choice of a completion.

    A message without text, such as one of thoughts or tool calls alone, has an empty one; a refusal is text.

    Args:
        answer: the JSON of the server's answer.

    Raises:
        KeyError, TypeError, …: it is not a completion.
    """
    choice = answer["choices"][0]
    message, finish = choice["message"], str(choice.get("finish_reason", ""))
    finish = "length" if finish in _LENGTH else finish
    text = read_content(message.get("content"))[0] or _text_of(message.get("refusal"))
    usage = answer.get("usage") or {}
    counts = (usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    return Completion(
        replace_surrogates(text),
        finish,
        *_stop_of(choice),
        message,
        *(count if is_whole(count) else None for count in counts),
    )


def _stop_of(choice: Mapping[str, Any]) -> tuple[str, bool]:
    """The stop string that ended a reply, "" for none, and whether the server says so."""
    # vLLM calls it stop_reason, SGLang matched_stop; both give a number where a token ended the reply
    stop = next((choice[name] for name in ("stop_reason", "matched_stop") if name in choice), False)
    return stop if isinstance(stop, str) else "", stop is not False


def read_content(content: Any) -> tuple[str, str]:
    """The text and the thought of a message's content, which is a text, parts of both kinds, or None.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(content, (str, list, type(None))):
        raise TypeError(f"the content of the message is {content!r:.80}, no text")
    parts = content if isinstance(content, list) else [content]
    kinds = [isinstance(part, dict) and part.get("type") in ("thinking", "reasoning") for part in parts]
    texts = [(_text_of(part), kind) for part, kind in zip(parts, kinds, strict=True)]
    text, thought = ("".join(part for part, kind in texts if kind == wanted) for wanted in (False, True))
    return text, thought


def _text_of(part: Any) -> str:
    """The text of a part of a message, or of a list of them; empty where it has none to read."""
    if isinstance(part, list):
        return "".join(map(_text_of, part))
    if isinstance(part, dict) and not part.get("redacted"):
        names = ("text", "thinking", "reasoning", "summary", "refusal")
        return next(filter(None, (_text_of(part.get(name)) for name in names)), "")
    return part if isinstance(part, str) else ""


def with_thought(env: gym.Env[Any, Any], thought: str, text: str, *, cut: bool = False) -> str:
    """A reply in which a thought that the server separated is back where its environment reads it.

    A text that opens with its own thought needs no other. `cut` says that the reply ended at its limit, so
    that a thought without text is not closed.
    """
    if not thought or text.lstrip().startswith(("<think>", "<reasoning>")):
        return text
    if cut and not text.strip():
        return f"<think>{thought}"
    use = text_env_of(env).tool_use()
    return (use.compose if use else as_thought)(thought, "", text)


class TokenEndpoint(ChatPolicy):
    """A model behind a server that takes prompts as token ids: `POST /completions` of vLLM or SGLang.

    The prompts are those that the model was trained on, whatever chat template the server has: a growing
    context continues from the tokens that were sampled. A server that does not return them (`token_ids`)
    sends text, which is tokenised again. Log-probabilities are zeros.

    Args:
        client: client of the server.
        tokens: encodes prompts and feedback, and decodes replies.
        fields: fields of every request, such as the model and the temperature; None leaves a field out.
        stop: strings that end a reply.
        window: tokens of prompt and reply together; None: any number.
    """

    def __init__(
        self,
        client: OpenAIClient,
        tokens: ChatTokens,
        fields: Mapping[str, Any],
        stop: Sequence[str] = (),
        window: int | None = None,
    ) -> None:
        super().__init__(tokens, stop, window)
        self.client, self.fields = client, fields
        self.watch = Watch(client.url)

    def sample(
        self, prompts: Sequence[Ids], rngs: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """A reply to each prompt, one after the other; a prompt that fills the window gets an empty one.

        Raises:
            ServerError: no answer, or an answer that is not a completion.
        """
        limits = reply_limits([len(prompt) for prompt in prompts], max_new_tokens, self.window)
        return [self._reply(*of_prompt) for of_prompt in zip(prompts, rngs, limits, strict=True)]

    def _reply(self, prompt: Ids, rng: np.random.Generator, limit: int) -> Reply:
        if not limit:
            return Reply("", finished=False)
        fields = {
            "seed": int(rng.integers(2**31)),
            "stop": list(self.stop) or None,
            "stop_token_ids": sorted(self._tokens.ends),
            **{"skip_special_tokens": False, "include_stop_str_in_output": True, "return_token_ids": True},
            **self.fields,
        }
        body = {name: value for name, value in fields.items() if value is not None}
        body |= {"prompt": prompt.tolist(), "max_tokens": limit}
        choice = self.client.post("/completions", body, lambda answer: answer["choices"][0] | {})
        finished, ids = choice.get("finish_reason") != "length", choice.get("token_ids")
        if ids is None:
            text, (stop, _) = replace_surrogates(str(choice.get("text") or "")), _stop_of(choice)
            text = text if text.endswith(stop) else text + stop  # most servers leave it out
            ids = self._tokens.encode(text)
            if finished and not (len(ids) and int(ids[-1]) in self._tokens.ends):
                ids = self._tokens.reply(text, self.stop)
        ids = np.array(ids, dtype=np.int64)
        text = self._tokens.reply_text(ids)
        self.watch.see({}, Completion(text, str(choice.get("finish_reason"))))
        return Reply(text, ids, np.zeros(len(ids)), finished)


class Watch:
    """Warns, once, of what makes a run worth nothing without an error.

    These are replies without text or cut at their limit, episodes without the form that their environment
    asks for, tool calls left in the text, and a server that read fewer tokens than were sent.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.warned: set[str] = set()
        self._replies, self._useless = 0, Counter[str]()
        self._finish = ""
        self._episodes, self._formed = 0, 0

    def see(self, fields: Mapping[str, Any], reply: Completion) -> None:
        """Look at the reply to a request's fields."""
        calls = reply.message.get("tool_calls")
        self._replies += 1
        has_text = bool(reply.text[thought_end(reply.text) :].strip() or calls)
        if reply.finish == "length" or not has_text:
            kind = "thought" if reply.thought or reply.text.strip() else "empty"
            self._useless["cut" if reply.finish == "length" else kind] += 1
            self._finish = reply.finish
        self._check(_FEW)
        if fields.get("tools") and not calls and _CALL_AS_TEXT.search(reply.text):
            self._warn(
                "call",
                f"it left a tool call in the text, where none is played ({reply.text!r:.60}); start it with "
                "the model's tool-call parser (vLLM: --enable-auto-tool-choice --tool-call-parser NAME)",
            )
        if reply.prompt_tokens is not None and "window" not in self.warned:
            texts = (read_content(message.get("content"))[0] for message in fields["messages"])
            (sent,) = load_tokenizer().counts(["\n".join(texts)])
            if reply.prompt_tokens < _CUT * sent - 100:
                self._warn(
                    "window",
                    f"it read {reply.prompt_tokens:,} tokens of a prompt of about {sent:,}; if it cuts "
                    "prompts, raise its context length (Ollama: num_ctx, llama.cpp: --ctx-size)",
                )

    def see_episode(self, episode: Episode) -> None:
        """Look at the metric `format` of an episode that has ended, if it has one."""
        if not episode.error and "format" in episode.metrics:
            self._episodes += 1
            self._formed += episode.metrics["format"] > 0
            self._check(_FEW)

    def end(self) -> None:
        """Warn of what few replies or episodes have shown, as no more of them come."""
        self._check(1)

    def _check(self, few: int) -> None:
        useless = self._useless.total()
        if self._replies >= few and useless > self._replies / 2:
            parts = "; ".join(f"{count} {_ADVICE[kind]}" for kind, count in self._useless.most_common())
            last = f"the last finish_reason is {self._finish!r}"
            self._warn("useless", f"{useless} of {self._replies} replies are of no use ({last}): {parts}")
        elif self._episodes >= few and not self._formed and "useless" not in self.warned:
            self._warn(
                "form",
                f"0 of {self._episodes} episodes have replies in the form that the environment asks for; "
                "read one (memenvs view), and change --system-prompt, --examples, --stop or the template",
            )

    def _warn(self, kind: str, what: str) -> None:
        if kind not in self.warned:
            self.warned.add(kind)
            _log.warning("%s: %s", self.url, what)


class Prompts:
    """An episode as an endpoint reads it: each observation is one message of the user.

    `fields` are those of every request, and `messages` are to be sent at this turn.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self.fields: dict[str, Any] = {}
        self.messages: list[Message] = []
        self._env = env

    def observe(self, observation: Any, info: Info) -> None:
        """Take what the next reply answers; a picture of it is sent, too."""
        text = observation if isinstance(observation, str) else observation["text"]
        self.messages = [_user(text, observation)]

    def read(self, completion: Completion) -> str:
        """The reply to play, which a completion gives, with its thought.

        Raises:
            ServerError: the message is a native tool call without text.
        """
        if not completion.text and (calls := completion.message.get("tool_calls")):
            raise ServerError(
                f"the reply is a native tool call, not text ({calls!r:.80}): add --tools native, leave tools "
                "out of --body, or start the server without its tool-call parser"
            )
        return with_thought(self._env, completion.thought, completion.text, cut=completion.finish == "length")


class TextConversation(Prompts):
    """An episode as a growing conversation, with the replies as the assistant's messages.

    Where the context is rewritten, it starts over. Thoughts are sent back in the field in which the server
    gave them.
    """

    def observe(self, observation: Any, info: Info) -> None:
        if self.messages and info["context"] == "append":
            self.messages.append(_user(info["feedback"], observation))
        else:
            super().observe(observation, info)

    def read(self, completion: Completion) -> str:
        self.messages.append(_assistant(completion))
        return super().read(completion)


class ToolConversation(Prompts):
    """A conversation with tool calls, as models are trained on them; see `ToolUse`.

    If a message has several calls, the first one counts, and the others are not sent back. Thoughts are, as
    in `TextConversation`.

    Raises:
        ValueError: the environment has no tools.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.fields = {"tools": text_env_of(env).tools()}
        if not self.fields["tools"]:
            raise ValueError(f"{env_name(env)} has no tools; leave `tools` out")
        self._call: dict[str, str] = {}
        self._fault = ""

    def observe(self, observation: Any, info: Info) -> None:
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
        thought, message = completion.thought, _assistant(completion)
        self.messages.append(message)
        if not (calls := completion.message.get("tool_calls")):
            self._call = {}
            self._fault = self._use.no_call
            return with_thought(self._env, thought, completion.text, cut=completion.finish == "length")
        id, name, arguments = _first_call(calls)
        number = id or f"call-{len(self.messages)}"
        self._call = {"tool_call_id": number, "name": name}
        text = replace_surrogates(json.dumps(arguments, ensure_ascii=False))
        function = {"name": name, "arguments": text}
        message["tool_calls"] = [{"id": number, "type": "function", "function": function}]
        reply, self._fault = self._use.call(name, arguments, thought, completion.text)
        return reply

    @property
    def _use(self) -> ToolUse:
        return cast(ToolUse, text_env_of(self._env).tool_use())


def _first_call(calls: Any) -> tuple[str, str, dict[str, Any]]:
    """Id, name and arguments of the first tool call, in any form that a server or a model gives it.

    OpenAI sends the arguments as JSON, other servers as an object. What no tool takes, such as a list, NaN or
    text that is not JSON, is left out, so that the server can read the call again.
    """
    call = calls[0] if isinstance(calls, list) else calls
    call = call if isinstance(call, dict) else {}
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    fields = function.get("arguments")
    try:
        fields = json.loads(fields) if isinstance(fields, str) else fields
    except (ValueError, RecursionError):
        fields = {}
    arguments = {
        field: value
        for field, value in (fields.items() if isinstance(fields, dict) else ())
        if not isinstance(value, (dict, list)) and (not isinstance(value, float) or math.isfinite(value))
    }
    texts = (call.get("id"), function.get("name"))
    id, name = (replace_surrogates(value) if isinstance(value, str) else "" for value in texts)
    return id, name, arguments


def _assistant(completion: Completion) -> Message:
    """A completion as a message of the conversation, with what the model thought as the server sent it.

    A thought that JSON cannot hold, such as NaN, is left out: no server would take it back.
    """
    message: Message = {"role": "assistant", "content": completion.text}
    for name in THOUGHTS:
        if thought := completion.message.get(name):
            with contextlib.suppress(ValueError, RecursionError):
                text = json.dumps(thought, ensure_ascii=False, allow_nan=False)
                message[name] = json.loads(replace_surrogates(text))
    return message


def _user(text: str, observation: Any) -> Message:
    """A message of the user, with the picture of an observation that has one."""
    if isinstance(observation, str):
        return {"role": "user", "content": text}
    parts: list[Message] = [{"type": "image_url", "image_url": {"url": png_url(observation["image"])}}]
    return {"role": "user", "content": parts + ([{"type": "text", "text": text}] if text else [])}
