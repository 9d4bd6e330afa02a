"""Tokenizers by name, and texts cut by tokens."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.normalizers import NFC

from memenvs.core.errors import error_line
from memenvs.data import bundled

Gaps = NDArray[np.unsignedinteger[Any]]
"""(T,) for each token, the characters from the last place where a text may be cut to the place after this
token; 0 where it may not be cut there. Their sum is the text's length, so the gaps of texts joined are their
gaps joined."""

GENERAL = "general"
BUNDLED = (GENERAL, "world")
"""Names of the tokenizers that ship."""

MAX_TOKEN_CHARS = 16  # characters a token that `truncate` keeps at most: prose has 3 to 5
_WORDS = 50_000  # words whose tokens are remembered
_WORD_CHARS = 32  # characters of such a word at most
_NEW_WORDS = 32  # words learnt in a call
_BATCH = 2048  # texts in a call of the tokenizer: enough for its threads, little enough for memory

_SPACE = re.compile(r" (?=\S)(?<=\S )")
"""A single space between two words."""

_SPLITS = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
    + digits
    + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    for digits in (r"\p{N}", r"\p{N}{1,3}")
]
"""How Qwen and Llama 3 split a text before they make tokens; like GPT-2 they always split before `_SPACE`."""


class TextTokenizer:
    """Counts and cuts texts by the tokens of one tokenizer, special tokens never added.

    Args:
        backend: the `tokenizers.Tokenizer` to ask; its truncation and padding are switched off.
        name: what cards call it, without a path of this machine.
    """

    def __init__(self, backend: Tokenizer, name: str) -> None:
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.name = name
        self._words: dict[str, int] = {}  # tokens of each word behind a space

    @functools.cached_property
    def fingerprint(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of the tokenizer's definition."""
        return hashlib.sha256(self.backend.to_str().encode()).hexdigest()[:16]

    def count(self, text: str) -> int:
        """Number of tokens of `text`, those of its words remembered where that is exact."""
        if not self._splits_at_spaces:
            return self.counts([text])[0]
        known, tokens = self._words, 0
        first, *words = _SPACE.split(text)
        new = [first]
        for word in words:
            if (of_word := known.get(word)) is None:
                new.append(word)
            else:
                tokens += of_word
        if len(known) > _WORDS:
            self._words = known = {}
        learnt = [word for word in new[1:] if len(word) <= _WORD_CHARS][:_NEW_WORDS]
        whole, *each = self.counts([" ".join(new), *(f" {word}" for word in learnt)])
        known.update(zip(learnt, each, strict=True))
        return tokens + whole

    def counts(self, texts: Sequence[str]) -> list[int]:
        """Number of tokens of each text."""
        fast = self.backend.encode_batch_fast  # without offsets
        return [
            len(encoding)
            for start in range(0, len(texts), _BATCH)
            for encoding in fast(list(texts[start : start + _BATCH]), add_special_tokens=False)
        ]

    def gaps(self, texts: Sequence[str]) -> Iterator[Gaps]:
        """Where each text may be cut."""
        for start in range(0, len(texts), _BATCH):
            batch = list(texts[start : start + _BATCH])
            encodings = self.backend.encode_batch(batch, add_special_tokens=False)
            for text, encoding in zip(batch, encodings, strict=True):
                yield _gaps(np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2), len(text))

    def truncate(self, text: str, max_tokens: int) -> tuple[str, bool]:
        """The beginning of `text`, at most `max_tokens` tokens, and whether anything was cut.

        It ends after a token and, tokenised alone, has no more than `max_tokens` either. It also has at most
        `MAX_TOKEN_CHARS * max_tokens` characters, because a single token can stand for any length of text
        ("[UNK]", white space). A text too short for `max_tokens` is not tokenised.
        """
        kept = text[: MAX_TOKEN_CHARS * max_tokens]
        if self._byte_level and len(kept) < max_tokens and kept.isascii():
            return kept, len(kept) < len(text)
        # A text far too long mostly shows that in so many characters, which are counted faster.
        beginning = kept[: 6 * max_tokens + 256]
        tokens = self.count(beginning)
        if tokens <= max_tokens and len(beginning) < len(kept):
            beginning, tokens = kept, self.count(kept)
        if tokens > max_tokens:
            kept = self._shortened(beginning, tokens, max_tokens)
        return kept, len(kept) < len(text)

    def _shortened(self, text: str, tokens: int, max_tokens: int) -> str:
        """The beginning of a text of too many tokens, cut so that it has no more of them alone."""
        # Offsets cost much: ask for those of little more than the end, behind words that fit.
        near, words = len(text) * max_tokens // tokens, ""
        end = near * 5 // 4 + 16
        space = text.rfind(" ", 0, near * 9 // 10) if self._splits_at_spaces else -1
        if space > 0 and _SPACE.match(text, space) and self.count(text[:space]) < max_tokens:
            words = text[:space]
        left = max_tokens - self.count(words)
        if words:  # and of those that follow, the remembered ones
            start = space
            for word in _SPACE.split(text[space + 1 : end])[:-1]:
                tokens = self._words.get(word, left + 1)
                if tokens > left:
                    break
                start, left = start + 1 + len(word), left - tokens
            words = text[:start]
            end = min(end, start + _WORD_CHARS + 8 * left)
        (gaps,) = self.gaps([text[len(words) : end]])
        if len(gaps) <= left:
            (gaps,) = self.gaps([text[len(words) :]])
        ends = len(words) + np.cumsum(gaps, dtype=np.int64)
        while left > 0:
            kept = text[: int(ends[left - 1])]
            over = self.count(kept) - max_tokens
            if over <= 0:
                return kept
            left -= over
        return words

    @functools.cached_property
    def _splits_at_spaces(self) -> bool:
        """Whether a token never begins before a `_SPACE` and ends after it."""
        splitter = self.backend.pre_tokenizer
        added = self.backend.get_added_tokens_decoder().values()
        if (
            splitter is None
            or not self._byte_level
            or any(token.rstrip or " " in token.content for token in added)
        ):
            return False
        steps = json.loads(splitter.__getstate__())
        *first, last = steps.get("pretokenizers", [steps])
        split = {"type": "Split", "behavior": "Isolated", "invert": False}
        patterns = [{**split, "pattern": {"Regex": pattern}} for pattern in _SPLITS]
        splits = [step for step in first if step["type"] != "Digits"]
        ends = last["type"] == "ByteLevel" and (splits or last["use_regex"])
        return bool(ends) and all(step in patterns for step in splits)

    @functools.cached_property
    def _byte_level(self) -> bool:
        """Whether an ASCII text has at most one token more than characters: byte-level, letters as they are.

        The one more is a space that some put before the text.
        """
        if not isinstance(self.backend.normalizer, (type(None), NFC)):  # NFC leaves ASCII alone
            return False
        parts = (self.backend.pre_tokenizer, self.backend.decoder)
        return any(part is not None and b'"ByteLevel"' in part.__getstate__() for part in parts)


@functools.lru_cache(maxsize=20_000)
def text_gaps(tokenizer: TextTokenizer, text: str) -> Gaps:
    """Where one text may be cut, remembered: headers and passages come again and again."""
    (gaps,) = tokenizer.gaps([text])
    return gaps


def _gaps(offsets: NDArray[np.int64], n_chars: int) -> Gaps:
    """The gaps of a text of `n_chars` characters whose tokens lie at `offsets` (T, 2), in characters.

    A place is after a token where everything so far ends and nothing later begins: never inside a character
    of several tokens (an emoji under byte-level BPE). Characters that no token covers belong to the token
    before them; a text of nothing else counts as one token.
    """
    gaps = np.zeros(max(len(offsets), int(n_chars > 0)), dtype=np.uint32)
    if len(gaps) == 0:
        return gaps
    # The usual case, where each token begins at the end of the one before, needs no more than this.
    if len(offsets) and offsets[-1, 1] == n_chars and (offsets[1:, 0] == offsets[:-1, 1]).all():
        return np.diff(offsets[:, 1], prepend=0).astype(np.uint32)
    ends = np.maximum.accumulate(offsets[:-1, 1])
    starts = np.minimum.accumulate(offsets[:0:-1, 0])[::-1]  # where the later tokens begin
    (behind,) = np.nonzero((starts >= ends) & (starts > 0))
    chars = np.append(starts[behind], n_chars)
    behind = np.append(behind, len(gaps) - 1)
    last = np.append(chars[1:] > chars[:-1], True)  # of places at one character, the last
    gaps[behind[last]] = np.diff(chars[last], prepend=0)
    return gaps


def pack(gaps: Gaps, budget: int, prefer: NDArray[np.int64] | None = None) -> list[tuple[int, int]]:
    """The (characters, tokens) at which chunks of at most `budget` tokens end, the last one the text's end.

    Only one character of more tokens than the budget can make a longer chunk.

    Args:
        gaps: where the text may be cut.
        budget: tokens.
        prefer: rising token counts at which a cut is preferred (the ends of documents): where one is in
            reach, the furthest of them is taken.
    """
    places = np.flatnonzero(gaps != 0)  # faster than of numbers
    chars = np.cumsum(gaps, dtype=np.int64)
    ends: list[tuple[int, int]] = []
    used, last = 0, len(places) - 1
    place = -1
    while place < last:
        reach = used + budget
        if prefer is not None:
            wanted = int(np.searchsorted(prefer, reach, side="right")) - 1
            if wanted >= 0 and prefer[wanted] > used:
                reach = int(prefer[wanted])
        place = max(int(np.searchsorted(places, reach)) - 1, place + 1)
        used = int(places[place]) + 1
        ends.append((int(chars[used - 1]), used))
    return ends


def load_tokenizer(name: str = GENERAL) -> TextTokenizer:
    """Load a tokenizer by name, once a process, and again when its file has changed.

    Args:
        name: `"general"` (bundled: SmolLM2's, which counts real prose within 5% of Qwen's), `"world"`
            (bundled: 4,096 entries for toy models of the bundled world), a `tokenizer.json`, a folder that
            holds one, or a Hugging Face id. Cards keep the last part of a path and the whole of an id.

    Raises:
        ValueError: no tokenizer of that name can be loaded.
    """
    ours = name in BUNDLED
    place = bundled(f"tokenizers/{name}.json") if ours else Path(os.path.abspath(Path(name).expanduser()))
    path = place / "tokenizer.json" if place.is_dir() else place
    if not path.is_file():
        return _load_tokenizer(name, name, None, None)
    facts = path.stat()
    return _load_tokenizer(name, name if ours else place.name, path, (facts.st_mtime_ns, facts.st_size))


@functools.lru_cache(maxsize=16)
def _load_tokenizer(
    name: str, shown: str, path: Path | None, changed: tuple[int, int] | None
) -> TextTokenizer:
    try:
        backend = Tokenizer.from_file(str(path)) if path else Tokenizer.from_pretrained(name)
    except Exception as error:  # the Rust library and the hub client raise bare Exceptions of many kinds
        raise ValueError(
            f"unknown tokenizer {name!r}: pass {' or '.join(map(repr, BUNDLED))}, a tokenizer.json, a folder "
            f"that holds one, or the id of one on the Hugging Face hub ({error_line(error, 160)})"
        ) from error
    return TextTokenizer(backend, shown)
