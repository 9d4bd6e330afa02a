"""Text comes in as token ids, token ids go out as text, and where in it each token stands."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from memenvs.retrieval.protocol import clean as clean

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
        return np.array(self.backend.encode(clean(text), add_special_tokens=False).ids, dtype=np.int64)

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
