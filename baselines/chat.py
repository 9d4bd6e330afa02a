"""Observations and feedback come in; prompts as a model wants to read them go out, in token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memenvs.baselines.token_text import Ids, TokenText, clean
from memenvs.wrappers.scorers.pairs import copy_backend

_REPLY = "the-reply-stands-here"  # found again in what a template renders


class ChatTokens(TokenText):
    """The tokens of a policy's prompts, as plain text or through its tokenizer's chat template.

    Args:
        tokenizer: of transformers, backed by the tokenizers library.
        chat: an observation is a user's message; None: where the tokenizer has a template.
        ends: ids that end a reply, beside the tokenizer's own and the one that closes a message.

    Raises:
        ValueError: the tokenizer cannot be used, or has no template that shows what a message says.
    """

    def __init__(self, tokenizer: Any, chat: bool | None = None, ends: Sequence[int] = ()):
        has_template = bool(getattr(tokenizer, "chat_template", None))
        if chat and not has_template:
            raise ValueError(
                f"chat=True wants a chat template, and {type(tokenizer).__name__} has none; "
                "set tokenizer.chat_template or pass chat=False"
            )
        super().__init__(copy_backend(tokenizer), ends)
        self.tokenizer = tokenizer
        self.chat = has_template if chat is None else bool(chat)
        self._first = _beginning(tokenizer)
        own = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        if self.chat and (tail := self._tail("")).size and int(tail[0]) in tokenizer.all_special_ids:
            own.append(int(tail[0]))  # a base model's own end token is often another than its template's
        self._end = own[-1] if own else None
        self.ends |= frozenset(own)

    def prompt(self, observation: str) -> Ids:
        """A fresh prompt (T,)."""
        if not self.chat:
            return np.concatenate([self._first, self.encode(observation)])
        return self.encode(self._render([("user", observation)]))

    def reply(self, text: str, stop: Sequence[str] = ()) -> Ids:
        """A reply (T,) as it would be sampled: with an end token, unless a stop string has ended it.

        Raises:
            ValueError: nothing is known that could end it.
        """
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
        return self.tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)


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
