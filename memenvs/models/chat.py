"""Text and token ids: prompts as plain text or through a chat template."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from memenvs.core.optional import require
from memenvs.core.spaces import replace_surrogates
from memenvs.tasks.tokens import TextTokenizer

Ids = NDArray[np.int64]
BROKEN = "\ufffd"  # what stands for bytes that are no character


class TokenText:
    """Both directions of one tokenizer, special tokens kept as they are written.

    Args:
        backend: asked for ids and texts; its truncation and padding must be off.
        ends: ids that end a reply and are no part of its text.
    """

    def __init__(self, backend: Tokenizer, ends: Sequence[int] = ()):
        self.backend = backend
        self.ends = frozenset(int(end) for end in ends)

    def encode(self, text: str) -> Ids:
        """The ids (T,) of a text and of nothing around it."""
        return np.array(
            self.backend.encode(replace_surrogates(text), add_special_tokens=False).ids, dtype=np.int64
        )

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """The text of ids; bytes that are no character become U+FFFD."""
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=False)

    def reply_text(self, ids: Ids) -> str:
        """The text of a reply, without the end token."""
        return self.decode(ids[: self._written(ids)])

    def spans(self, reply: Ids) -> NDArray[np.int64]:
        """Characters (T, 2) of a reply's text that each token stands for.

        They rise and cover the text. Tokens that share a character all have it; an end token, and whatever
        else shows nothing, has an empty span.
        """
        count = self._written(reply)
        find = self._spans_of_bytes if self._byte_level else self._spans_of_beginnings
        spans = find(reply[:count])
        end = spans[-1, 1] if count else 0
        return np.concatenate([spans, np.full((len(reply) - count, 2), end, dtype=np.int64)])

    def _written(self, ids: Ids) -> int:
        """Number of tokens before the end token."""
        return len(ids) - int(len(ids) > 0 and int(ids[-1]) in self.ends)

    @functools.cached_property
    def _byte_level(self) -> bool:
        decoder = self.backend.decoder
        return decoder is not None and decoder.__class__.__name__ == "ByteLevel"

    def _spans_of_bytes(self, ids: Ids) -> NDArray[np.int64]:
        """Spans (T, 2) under a byte-level tokenizer: the characters that each token's bytes are in."""
        pieces = [self._bytes(int(i)) for i in ids]
        ends = np.cumsum([0, *map(len, pieces)])
        of_byte = _characters(b"".join(pieces))
        spans = np.stack([of_byte[ends[:-1]], of_byte[np.maximum(ends[1:] - 1, 0)] + 1], axis=1)
        empty = ends[1:] == ends[:-1]
        spans[empty, 1] = spans[empty, 0]
        return spans

    def _bytes(self, token: int) -> bytes:
        """The bytes that a byte-level token stands for; those of its name where it is no such token."""
        name = self.backend.id_to_token(token) or ""
        try:
            return bytes(map(_BYTES.__getitem__, name))
        except KeyError:
            return name.encode()

    def _spans_of_beginnings(self, ids: Ids) -> NDArray[np.int64]:
        """Spans (T, 2) under any tokenizer, by how much of the text each beginning of the ids gives."""
        text, listed = self.decode(ids), ids.tolist()
        spans = np.zeros((len(ids), 2), dtype=np.int64)
        start = 0
        for i in range(len(ids)):
            shown = self.backend.decode(listed[: i + 1], skip_special_tokens=False)
            end = max(start, _common(shown, text))
            partly = len(shown) > end and shown.endswith(BROKEN)  # it has some bytes of the next character
            spans[i] = start, min(end + partly, len(text))
            start = end
        return spans


def _characters(data: bytes) -> NDArray[np.int64]:
    """(bytes + 1,) the number of the character that each byte belongs to, in `data` decoded with U+FFFD."""
    numbers = np.empty(len(data) + 1, dtype=np.int64)
    at = count = 0
    while at < len(data):
        good, bad = len(data) - at, 0
        try:
            data[at:].decode()
        except UnicodeDecodeError as error:
            good, bad = error.start, error.end - error.start
        begins = (np.frombuffer(data, np.uint8, good, at) & 0xC0) != 0x80  # not a character's later bytes
        numbers[at : at + good] = count - 1 + np.cumsum(begins)
        at, count = at + good, count + int(begins.sum())
        if bad:
            numbers[at : at + bad] = count
            at, count = at + bad, count + 1
    numbers[len(data)] = count
    return numbers


def _common(a: str, b: str) -> int:
    """Length of the longest common beginning."""
    size = min(len(a), len(b))
    if a[:size] == b[:size]:
        return size
    return next(i for i in range(size) if a[i] != b[i])


def _byte_letters() -> dict[str, int]:
    """What byte-level tokenizers write for each byte: itself where it can be seen, else a letter from 256."""
    seen = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


_BYTES = _byte_letters()


def copy_backend(tokenizer: Any) -> Tokenizer:
    """The backend of a tokenizer of transformers, free of the truncation and padding of its last call.

    Raises:
        ValueError: it has none.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise ValueError(
            f"{type(tokenizer).__name__} is not backed by the tokenizers library; give a fast tokenizer"
        )
    return TextTokenizer(Tokenizer.from_str(backend.to_str()), "copy").backend


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
        said = [{"role": role, "content": replace_surrogates(content)} for role, content in messages]
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
