"""The space of Unicode texts, and the cleaning that puts any text into it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from gymnasium.spaces.utils import flatten, flatten_space, unflatten
from gymnasium.wrappers.utils import create_zero_array

_SURROGATE = re.compile("[\ud800-\udfff]")
_SAMPLE_CHARS = 64
_PRINTABLE = [character for character in map(chr, range(0x20, 0x250)) if character.isprintable()]


class UnicodeText(Space[str]):
    """Every text without lone surrogates, of any length.

    `gymnasium.spaces.Text` rejects spaces and accents by default, and takes seconds and 100 MB with a full
    character set; membership here is whether the text can be written as UTF-8.

    Args:
        seed: seed or generator for `sample`.
    """

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(None, np.str_, seed)

    def sample(self, mask: None = None, probability: None = None) -> str:
        """A short random text of printable characters, some of them outside ASCII; masks have no effect."""
        length = int(self.np_random.integers(0, _SAMPLE_CHARS + 1))
        return "".join(_PRINTABLE[i] for i in self.np_random.integers(len(_PRINTABLE), size=length))

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text of this space."""
        return isinstance(x, str) and is_utf8(x)

    @property
    def is_np_flattenable(self) -> bool:
        """Texts have no array form of fixed size."""
        return False

    def __repr__(self) -> str:
        return "UnicodeText()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText)

    __hash__ = None  # type: ignore[assignment]  # mutable (its generator), as every Gymnasium space


# Gymnasium's wrappers use these: a stack of texts is padded with empty ones (`FrameStackObservation`,
# `DelayObservation`), and a text is as flat as it can be already (`FlattenObservation`), as its graphs are.
@create_zero_array.register(UnicodeText)
def _no_text(space: UnicodeText) -> str:  # type: ignore[misc]  # declared for Space[T], whatever T
    return ""


@flatten_space.register(UnicodeText)
def _same_space(space: UnicodeText) -> UnicodeText:
    return space


@flatten.register(UnicodeText)
@unflatten.register(UnicodeText)
def _same_text(space: UnicodeText, x: str) -> str:  # type: ignore[misc]
    return x


def is_utf8(text: str) -> bool:
    """Whether `text` can be written as UTF-8, which lone surrogates cannot."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def replace_surrogates(text: str) -> str:
    """`text` with each surrogate, which UTF-8 cannot hold, replaced by U+FFFD; no character moves.

    A Python string may contain them: `json.loads` returns one for an unpaired escape.
    """
    return text if is_utf8(text) else _SURROGATE.sub("\ufffd", text)


def clean_text(text: str, max_chars: int) -> str:
    """`text` cut to `max_chars` characters, its surrogates replaced (`replace_surrogates`).

    What a policy writes may be any `str`; the result can be tokenised, stored and sent.
    """
    return replace_surrogates(text[:max_chars])
