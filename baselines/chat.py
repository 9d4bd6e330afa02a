"""Prompts in token ids, as plain text or through the chat template of a tokenizer."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memenvs.baselines.token_text import Ids, TokenText, clean
from memenvs.extras import require
from memenvs.wrappers.scorers.pairs import copy_backend

_REPLY = "the-reply-stands-here"  # found again in what a template renders
_OWN = ("messages", "add_generation_prompt")  # what `ChatTokens` itself gives a template
_OPENING, _CLOSING = "<think>", "\n</think>\n\n"


class ChatTokens(TokenText):
    """The tokens of a policy's prompts, as plain text or through its tokenizer's chat template.

    Args:
        tokenizer: of transformers, backed by the tokenizers library.
        chat: an observation is a user's message; None: where the tokenizer has a template.
        ends: ids that end a reply, beside the tokenizer's own and the one that closes a message.
        chat_args: arguments of the template, such as `{"enable_thinking": False}`.

    Raises:
        ValueError: the tokenizer cannot be used, or has no template that shows what a message says; or the
            template does not read one of `chat_args`.
    """

    def __init__(
        self,
        tokenizer: Any,
        chat: bool | None = None,
        ends: Sequence[int] = (),
        chat_args: Mapping[str, Any] | None = None,
    ):
        has_template = bool(getattr(tokenizer, "chat_template", None))
        if chat and not has_template:
            raise ValueError(
                f"chat=True wants a chat template, and {type(tokenizer).__name__} has none; "
                "set tokenizer.chat_template or pass chat=False"
            )
        super().__init__(copy_backend(tokenizer), ends)
        self.tokenizer = tokenizer
        self.chat = has_template if chat is None else bool(chat)
        self.chat_args = dict(chat_args or {})
        if self.chat_args:
            self._check_chat_args()
        self._first = _beginning(tokenizer)
        own = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        if self.chat and (tail := self._tail("")).size and int(tail[0]) in tokenizer.all_special_ids:
            own.append(int(tail[0]))  # a base model's own end token is often another than its template's
        self._end = own[-1] if own else None
        self.ends |= frozenset(own)

    def _check_chat_args(self) -> None:
        if not self.chat:
            raise ValueError(
                f"chat_args {self.chat_args} are for a chat template, and prompts are plain text here: "
                "leave them out, or give a tokenizer with a template and chat=True"
            )
        known = template_arguments(self.tokenizer.get_chat_template())
        for name in self.chat_args:
            if name in _OWN or (known is not None and name not in known):
                reads = ", ".join(sorted((known or set()) - set(_OWN))) or "none"
                raise ValueError(f"the chat template reads no argument {name!r}; it reads {reads}")

    @functools.cached_property
    def opens_thought(self) -> bool:
        """Whether a prompt ends in `<think>`, so that a reply holds the rest of a thought and `</think>`."""
        return self.chat and self._render([("user", "?")]).rstrip().endswith(_OPENING)

    @property
    def template(self) -> str | None:
        """A chat around `{prompt}` behind which an answer stands; None without chat.

        Where the prompt opens a thought the template closes it, empty, as templates do for models that shall
        not think: else an answer behind it would be scored as a thought.
        """
        if not self.chat:
            return None
        return self.decode(self.prompt("{prompt}")) + (_CLOSING if self.opens_thought else "")

    def prompt(self, observation: str) -> Ids:
        """A fresh prompt (T,)."""
        if not self.chat:
            return np.concatenate([self._first, self.encode(observation)])
        return self.encode(self._render([("user", observation)]))

    def reply(self, text: str, stop: Sequence[str] = ()) -> Ids:
        """A reply (T,) as it would be sampled: with an end token, unless a stop string has ended it.

        A `<think>` that the prompt ends in is not repeated.

        Raises:
            ValueError: nothing is known that could end it.
        """
        if self.opens_thought and text.lstrip().startswith(_OPENING):
            text = text.lstrip().removeprefix(_OPENING).removeprefix("\n")
        ids = self.encode(text)
        if any(text.endswith(string) for string in stop):
            return ids
        if self._end is None:
            raise ValueError("the tokenizer names no end token, so no reply can end; set eos_token or stop=")
        return np.append(ids, self._end)

    def feedback(self, text: str, reply: Ids) -> Ids:
        """What stands behind a reply (T,): the text alone, or all that the template writes up to the next.

        An end token that the reply has already is not repeated.
        """
        if not self.chat:
            return self.encode(text)
        tail = self._tail(text)
        repeated = len(reply) and len(tail) and reply[-1] == tail[0] and int(tail[0]) in self.ends
        return tail[1:] if repeated else tail

    def _tail(self, text: str) -> Ids:
        rendered = self._render([("user", "?"), ("assistant", _REPLY), ("user", text)])
        _, found, tail = rendered.partition(_REPLY)
        if not found:
            raise ValueError(
                "the chat template does not show what the assistant said, so nothing can be put behind it; "
                "pass chat=False"
            )
        return self.encode(tail)

    def _render(self, messages: list[tuple[str, str]]) -> str:
        said = [{"role": role, "content": clean(content)} for role, content in messages]
        try:
            return self.tokenizer.apply_chat_template(
                said, tokenize=False, add_generation_prompt=True, **self.chat_args
            )
        except require("jinja2", "train").TemplateError as error:
            raise ValueError(f"the chat template fails: {error}; pass chat=False, or mend it") from error


def template_arguments(template: str) -> set[str] | None:
    """Names that a chat template looks up; None where it cannot be parsed by Jinja alone."""
    jinja2 = require("jinja2", "train")
    plain = re.sub(r"\{%-?\s*(end)?generation\s*-?%\}", "", template)  # a tag of transformers' own
    try:
        tree = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"]).parse(plain)
    except jinja2.TemplateSyntaxError:
        return None
    found: set[str] = require("jinja2.meta", "train").find_undeclared_variables(tree)
    return found


class ChatPolicy:
    """The part of a `Policy` that its `ChatTokens` answer; a subclass samples.

    Args:
        tokens: of its prompts and replies.
    """

    def __init__(self, tokens: ChatTokens) -> None:
        self._tokens = tokens

    @property
    def chat(self) -> bool:
        """Whether observations are messages in a chat template."""
        return self._tokens.chat

    def encode(self, observation: str) -> Ids:
        """A fresh prompt (T,), as a chat where the policy chats; see `Policy.encode`."""
        return self._tokens.prompt(observation)

    def encode_feedback(self, text: str, reply: Ids) -> Ids:
        """What stands behind a reply (T,); see `Policy.encode_feedback`."""
        return self._tokens.feedback(text, reply)

    def spans(self, reply: Ids) -> NDArray[np.int64]:
        """Characters (T, 2) of the reply's text that each token stands for; see `TokenText.spans`."""
        return self._tokens.spans(reply)


def _beginning(tokenizer: Any) -> Ids:
    """The token that the tokenizer puts before every text, if it does."""
    first = tokenizer("")["input_ids"][:1]
    wanted = tokenizer.bos_token_id is not None and list(first) == [tokenizer.bos_token_id]
    return np.array(first if wanted else [], dtype=np.int64)
