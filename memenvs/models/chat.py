"""Text and token ids: prompts as plain text or through a chat template."""

from __future__ import annotations

import functools
import json
import os
import re
import warnings
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from memenvs.core.episode import Ids
from memenvs.core.optional import require
from memenvs.core.spaces import replace_surrogates
from memenvs.models.settings import ChatSettings
from memenvs.tasks.tokens import TextTokenizer

BROKEN = "\ufffd"  # decoded from bytes that are not a character
REPLY = "the-reply-is-here"  # a placeholder, searched for in the rendered chat
OWN_ARGS = ("messages", "add_generation_prompt")  # given to the template by `ChatTokens` itself
DATE = re.compile(r"\bset\s+(\w+)\s*=\s*strftime_now\b")  # an argument of a template, by default the date
UNDATED = (
    "{%- macro strftime_now(format) -%}{{ format }}{%- endmacro -%}"  # before a template: it has no date
)
OPENING, CLOSING = "<think>", "\n</think>\n\n"
THOUGHTS = (OPENING, CLOSING.strip())  # tokens of a thought


class TokenText:
    """Encoding and decoding by one tokenizer; special tokens in a text are encoded and decoded as such.

    Args:
        backend: its truncation and padding must be off.
        ends: ids that end a reply and are not part of its text, or one, or None.
    """

    def __init__(self, backend: Tokenizer, ends: Sequence[int] | int | None = None):
        self.backend = backend
        self.ends = frozenset([] if ends is None else np.ravel(ends).astype(int).tolist())

    def encode(self, text: str) -> Ids:
        """The ids (T,) of a text, without special tokens around it."""
        encoding = self.backend.encode(replace_surrogates(text), add_special_tokens=False)
        return np.array(encoding.ids, dtype=np.int64)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """The text of ids; bytes that are not a character become U+FFFD."""
        return self.backend.decode([int(i) for i in ids], skip_special_tokens=False)

    @property
    def byte_level(self) -> bool:
        """Whether a token is always the same bytes; otherwise its text may depend on its neighbours."""
        return type(self.backend.decoder).__name__ == "ByteLevel"

    def absent(self, rows: int) -> NDArray[np.bool_]:
        """(rows,) which ids below `rows` no token has; many models have more rows than tokens."""
        absent = np.ones(rows, dtype=np.bool_)
        absent[[i for i in self.backend.get_vocab(with_added_tokens=True).values() if i < rows]] = False
        return absent

    def reply_text(self, ids: Ids) -> str:
        """The text of a reply, without the end token."""
        return self.decode(ids[: self._text_length(ids)])

    def spans(self, reply: Ids) -> NDArray[np.int64]:
        """Start and end (T, 2) of each token's text, in characters of a reply's text.

        The spans are in order and cover the text. Tokens that share a character all include it; an end token,
        and any other that decodes to nothing, has an empty span.
        """
        count = self._text_length(reply)
        find = self._spans_of_bytes if self.byte_level else self._spans_of_prefixes
        spans = find(reply[:count])
        end = spans[-1, 1] if count else 0
        return np.concatenate([spans, np.full((len(reply) - count, 2), end, dtype=np.int64)])

    def _text_length(self, ids: Ids) -> int:
        """Number of tokens before the end token."""
        return len(ids) - int(len(ids) > 0 and int(ids[-1]) in self.ends)

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
        """The bytes of a byte-level token; an added token's are those of its text."""
        name = self.backend.id_to_token(token) or ""
        try:
            return bytes(map(_byte_of_letter().__getitem__, name))
        except KeyError:
            return name.encode()

    def _spans_of_prefixes(self, ids: Ids) -> NDArray[np.int64]:
        """Spans (T, 2) under any tokenizer, by how much of the text each prefix of the ids decodes to."""
        text, listed = self.decode(ids), ids.tolist()
        spans = np.zeros((len(ids), 2), dtype=np.int64)
        start = 0
        for i in range(len(ids)):
            prefix = self.backend.decode(listed[: i + 1], skip_special_tokens=False)
            end = max(start, len(os.path.commonprefix([prefix, text])))  # noqa: RUF071
            partly = len(prefix) > end and prefix.endswith(BROKEN)  # it has some bytes of the next character
            spans[i] = start, min(end + partly, len(text))
            start = end
        return spans


class ChatTokens(TokenText):
    """Token ids of prompts, replies and feedback, as plain text or through a chat template.

    Args:
        tokenizer: of transformers, backed by the tokenizers library.
        chat: whether an observation is a user's message; None: if the tokenizer has a template.
        ends: ids that end a reply, as the model names them. The tokenizer's own end token ends one too, and
            so does the token that closes the last message of the template, unless the model names several:
            a model whose messages have parts (gpt-oss) closes each of them.
        settings: the template's arguments, control tokens and the system message.

    Raises:
        ValueError: the tokenizer cannot be used; or it has no template, or one that leaves out an assistant's
            message or does not read one of `chat_args`; or a system message has no chat.
    """

    def __init__(
        self,
        tokenizer: Any,
        chat: bool | None = None,
        ends: Sequence[int] | int | None = None,
        settings: ChatSettings | None = None,
    ):
        super().__init__(copy_backend(tokenizer), ends)
        self.tokenizer, self.settings = tokenizer, settings or ChatSettings()
        self.chat = bool(getattr(tokenizer, "chat_template", None)) if chat is None else chat
        self.chat_args = dict(self.settings.chat_args)
        self.system_prompt = self.settings.system_prompt
        template = tokenizer.get_chat_template() if self.chat else ""
        for name in self.chat_args:
            if name in OWN_ARGS or not re.search(rf"\b{re.escape(name)}\b", template):
                what = "the chat template reads" if self.chat else "prompts are plain text here, which read"
                raise ValueError(f"{what} no argument {name!r}; leave it out of chat_args")
        if self.system_prompt and not self.chat:
            raise ValueError("prompts are plain text here, without a system message; leave system_prompt out")
        self._split = self._control_tokens() if self.settings.split_special_tokens else frozenset()
        self._warn_of_date(template)
        # The beginning-of-sequence token, where the tokenizer puts it before every text.
        first = tokenizer("")["input_ids"][:1]
        self._first = np.array(first if first == [tokenizer.bos_token_id] else [], dtype=np.int64)
        own_ends = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        closing = self._closing() if self.chat else None
        if closing is not None and (len(self.ends) < 2 or closing in self.ends):
            own_ends.append(closing)  # a base model's own end token is often another than its template's
        self._end = own_ends[-1] if own_ends else None
        self.ends |= frozenset(own_ends)

    def _control_tokens(self) -> frozenset[int]:
        """The ids of the tokens that are special, or that the template writes around messages.

        DeepSeek's tokens that begin a user's or an assistant's message are not special. Neither is `<think>`,
        but it belongs to replies, and prompts may ask for it. Gemma has tokens of white space.
        """
        talk = [("user", "?"), ("assistant", REPLY), ("user", "?")]
        written = set(self.encode(self._render(talk)).tolist()) if self.chat else set()
        return frozenset(
            number
            for number, token in self.backend.get_added_tokens_decoder().items()
            if token.special
            or (number in written and token.content not in THOUGHTS and token.content.strip(" \t\n▁"))
        )

    def _warn_of_date(self, template: str) -> None:
        """Warn where prompts depend on the day, and say which argument of the template pins it."""

        def dated(**pinned: Any) -> bool:
            try:
                return self._render(chat, **pinned) != self._render(chat, **pinned, chat_template=undated)
            except (TypeError, ValueError):  # the argument is not a text
                return True

        chat, undated = [("user", "?")], UNDATED + template
        if self.system_prompt:
            chat.insert(0, ("system", self.system_prompt))
        if "strftime_now" not in template or not dated():
            return
        names = [name for name in DATE.findall(template) if not dated(**{name: "26 Jul 2024"})]
        remedy = f"pin it with chat_args {names[0]}='26 Jul 2024'" if names else "use a template without it"
        warnings.warn(
            "the chat template writes the current date into prompts, so a run that is resumed or evaluated "
            f"on another day reads other prompts; {remedy}",
            stacklevel=3,
        )

    @functools.cached_property
    def opens_thought(self) -> bool:
        """Whether a prompt ends in `<think>`, so that a reply continues the thought and closes it."""
        return self.chat and self._render([("user", "?")]).rstrip().endswith(OPENING)

    @functools.cached_property
    def _thought_opening(self) -> Ids:
        """What a prompt has behind the header of a reply: a `<think>`, or a thought that is closed empty."""
        talk = [("user", "?"), ("assistant", REPLY), ("user", "?")]
        header = self._render(talk).partition(REPLY)[0]
        return self.encode(self._render([("user", "?")]).removeprefix(header))

    def shown(self, read: Ids, reply: Ids) -> tuple[Ids, Ids]:
        """What later prompts show of what was read before a reply (T,), and of the reply (T,).

        With `drop_thoughts` these are the same tokens without the thought: what the prompt opened, and all of
        the reply up to its last `</think>` and the line breaks after it.
        """
        if not (self.settings.drop_thoughts and self.chat):
            return read, reply
        opening = self._thought_opening
        if len(opening) and read[-len(opening) :].tolist() == opening.tolist():
            read = read[: -len(opening)]
        thought, closing, rest = self.reply_text(reply).rpartition(THOUGHTS[1])
        start = len(thought + closing) + len(rest) - len(rest.lstrip("\n")) if closing else 0
        spans = self.spans(reply)
        return read, reply[(spans[:, 0] >= start) | (spans[:, 1] > start)]

    @property
    def template(self) -> str | None:
        """A chat around `{prompt}` after which an answer follows; None without chat.

        Where the prompt opens a thought, the template closes it empty, as templates do with thinking switched
        off; otherwise the answer would be scored as a thought.
        """
        if not self.chat:
            return None
        return self.decode(self.prompt("{prompt}")) + (CLOSING if self.opens_thought else "")

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """A conversation as the model reads it, up to the text of its next reply; a thought is closed empty.

        Where the template refuses a role, as that of a tool, the message becomes a user's.
        """
        try:
            text = self._render(merged(messages))
        except ValueError:
            roles = ("assistant" if role == "assistant" else "user" for role, _ in messages)
            text = self._render(
                merged([(role, said) for role, (_, said) in zip(roles, messages, strict=True)])
            )
        return text + (CLOSING if self.opens_thought else "")

    def prompt(self, observation: str, opening: Sequence[tuple[str, str]] = ()) -> Ids:
        """A fresh prompt (T,); in a chat after the messages of `opening`, each with its role.

        A system message of `opening` replaces the one of the constructor.
        """
        if self.system_prompt and "system" not in [role for role, _ in opening]:
            opening = [("system", self.system_prompt), *opening]
        if not self.chat:
            return np.concatenate([self._first, self._encode_with(str, observation)])
        return self._encode_with(lambda text: self._render([*opening, ("user", text)]), observation)

    def reply(self, text: str, stop: Sequence[str] = ()) -> Ids:
        """A reply (T,) as it would be sampled: with an end token, unless it ends in a stop string.

        A `<think>` that the prompt ends in is not repeated.

        Raises:
            ValueError: there is no end token.
        """
        if self.opens_thought and text.lstrip().startswith(OPENING):
            text = text.lstrip().removeprefix(OPENING).removeprefix("\n")
        ids = self.encode(text)
        if any(text.endswith(string) for string in stop):
            return ids
        if self._end is None:
            raise ValueError("the tokenizer names no end token, so no reply can end; set eos_token or stop=")
        return np.append(ids, self._end)

    def feedback(self, text: str, reply: Ids) -> Ids:
        """What follows a reply (T,): the text, or the chat template's text up to the next reply.

        An end token that the reply already has is not repeated.
        """
        if not self.chat:
            return self._encode_with(str, text)
        tail = self._tail(text)
        repeated = len(reply) and len(tail) and reply[-1] == tail[0] and int(tail[0]) in self.ends
        return tail[1:] if repeated else tail

    def _closing(self) -> int | None:
        """The special token that closes a reply, as the last message of a chat or else before another one."""
        last = self._render([("user", "?"), ("assistant", REPLY)], prompt=False).partition(REPLY)[2]
        tails = (self.encode(last), self._tail(""))
        special = self.tokenizer.all_special_ids
        return next((int(tail[0]) for tail in tails if len(tail) and int(tail[0]) in special), None)

    def _tail(self, text: str) -> Ids:
        return self._encode_with(self._render_tail, text)

    def _render_tail(self, text: str) -> str:
        """What the template writes between the assistant's message and the reply to the user's next one."""
        rendered = self._render([("user", "?"), ("assistant", REPLY), ("user", text)])
        _, reply, tail = rendered.partition(REPLY)
        if not reply:
            raise ValueError(
                "the chat template does not show what the assistant said, so nothing can follow it; pass "
                "chat=False"
            )
        return tail

    def _encode_with(self, render: Callable[[str], str], text: str) -> Ids:
        """The ids (T,) of a rendered prompt, in which the control tokens of a message's text are split.

        Each of them is a mark while the template renders the message, so that it is found wherever the
        template puts it, and is not taken for one of the template's own.
        """
        text = replace_surrogates(text)
        spelled = self._split_tokens(text)
        if not spelled:
            return self.encode(render(text))
        cuts = pairwise([0, *chain(*spelled), len(text)])
        pieces = [text[start:end] for start, end in cuts]  # the odd ones are control tokens
        mark = next(letter for letter in map(chr, range(0xE000, 0x110000)) if letter not in text)
        marked = "".join(f"{mark}{i}{mark}" if i % 2 else piece for i, piece in enumerate(pieces))
        parts = re.split(f"{mark}(\\d+){mark}", render(marked))
        parts[1::2] = [pieces[int(i)] for i in parts[1::2]]
        rendered, ends = "".join(parts), np.cumsum([len(part) for part in parts])
        encoding = self.backend.encode(rendered, add_special_tokens=False)
        ids: list[int] = []
        for number, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            of_text = np.searchsorted(ends, end) % 2 or np.searchsorted(ends, start, "right") % 2
            if number in self._split and of_text:
                ids += self._ordinary.encode(rendered[start:end], add_special_tokens=False).ids
            else:
                ids.append(number)
        return np.array(ids, dtype=np.int64)

    def _split_tokens(self, text: str) -> list[tuple[int, int]]:
        """Start and end in characters of each control token that a text spells and that is to be split."""
        if not self._split:
            return []
        encoding = self.backend.encode(text, add_special_tokens=False)
        pairs = zip(encoding.ids, encoding.offsets, strict=True)
        return [offsets for number, offsets in pairs if number in self._split]

    @functools.cached_property
    def _ordinary(self) -> Tokenizer:
        """The backend without control tokens."""
        settings = json.loads(self.backend.to_str())
        for token in settings["added_tokens"]:
            token["special"] |= token["id"] in self._split
        backend = Tokenizer.from_str(json.dumps(settings))
        backend.encode_special_tokens = True
        return backend

    def _render(self, messages: list[tuple[str, str]], prompt: bool = True, **more: Any) -> str:
        chat = [{"role": role, "content": replace_surrogates(content)} for role, content in messages]
        try:
            return self.tokenizer.apply_chat_template(
                chat, tokenize=False, add_generation_prompt=prompt, **self.chat_args | more
            )
        except require("jinja2", "train").TemplateError as error:
            raise ValueError(f"the chat template fails: {error}; pass chat=False, or fix it") from error


def plain_chat(messages: Sequence[tuple[str, str]]) -> str:
    r"""Messages as text without a chat template, up to the next reply.

    >>> plain_chat([("user", "Who?")])
    'user: Who?\n\nassistant: '
    """
    return "".join(f"{role}: {text}\n\n" for role, text in messages) + "assistant: "


def merged(messages: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Messages of which no two in a row have one role, as many chat templates want them."""
    talk: list[tuple[str, str]] = []
    for role, text in messages:
        if talk and talk[-1][0] == role:
            text = f"{talk.pop()[1]}\n\n{text}"
        talk.append((role, text))
    return talk


class ChatPolicy:
    """The encoding side of a `TokenPolicy`; a subclass samples.

    Attributes:
        window: tokens of prompt and reply together; None: any number.
        stop: strings that end a reply.
        opening: messages before every fresh prompt of a chat, such as `[("system", "Be brief.")]`.
    """

    window: int | None = None
    stop: Sequence[str] = ()
    opening: Sequence[tuple[str, str]] = ()

    def __init__(self, tokens: ChatTokens, stop: Sequence[str] = (), window: int | None = None) -> None:
        self._tokens, self.stop, self.window = tokens, stop, window

    def check_can_sample(self) -> None:
        """Nothing: an engine or a server that has loaded a model can sample from it."""

    @property
    def chat(self) -> bool:
        """Whether observations are messages in a chat template."""
        return self._tokens.chat

    def encode(self, observation: str) -> Ids:
        """A fresh prompt (T,), in the chat template where there is one."""
        return self._tokens.prompt(observation, self.opening)

    def encode_feedback(self, text: str, reply: Ids) -> Ids:
        """What follows a reply (T,): the text, or the chat template around it."""
        return self._tokens.feedback(text, reply)

    def shown(self, read: Ids, reply: Ids) -> tuple[Ids, Ids]:
        """What later prompts show of what was read before a reply (T,), and of the reply (T,)."""
        return self._tokens.shown(read, reply)

    def encode_reply(self, text: str) -> Ids:
        """The ids (T,) of a given reply, such as a demonstration's, as if it had been sampled.

        They end in an end token, unless the text ends in a stop string.
        """
        return self._tokens.reply(text, self.stop)

    def spans(self, reply: Ids) -> NDArray[np.int64]:
        """Start and end (T, 2) of each token's text in the reply's."""
        return self._tokens.spans(reply)


def copy_backend(tokenizer: Any) -> Tokenizer:
    """A copy of the backend of a tokenizer of transformers, with truncation and padding switched off.

    Raises:
        ValueError: it has none.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Tokenizer):
        raise ValueError(
            f"{type(tokenizer).__name__} is not backed by the tokenizers library; give a fast tokenizer"
        )
    return TextTokenizer(Tokenizer.from_str(backend.to_str()), "copy").backend


def _characters(data: bytes) -> NDArray[np.int64]:
    """(bytes + 1,) the index of each byte's character in `data` decoded with U+FFFD."""
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


@functools.cache
def _byte_of_letter() -> dict[str, int]:
    """The byte of each letter of a byte-level token: itself if printable; other letters start at 256."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
