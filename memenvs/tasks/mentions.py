"""Whether a text mentions an answer."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

from memenvs.core.words import units
from memenvs.tasks.metrics import contains, normalize_answer

_ARTICLES = frozenset({"a", "an", "the"})
_REMEMBERED = 4_000  # characters of the longest text whose forms are kept


class Spelling(NamedTuple):
    """A text in the forms in which an answer may be found in it, each with single blanks between words.

    Attributes:
        units: `memenvs.core.words.units`: without case, accents and punctuation, which separates.
        normalised: `normalize_answer`: punctuation is deleted, as in "U.S.", articles too.
        written: lower case, all characters.
    """

    units: str
    normalised: str
    written: str

    def holds(self, answer: str) -> bool:
        """Whether an answer is in the text, in whole words."""
        wanted = spelling(answer)
        if not wanted.normalised:  # articles and punctuation alone
            return contains(self.written, answer)
        sought = _without_articles(wanted.units)
        return (bool(sought) and f" {sought} " in f" {self.units} ") or (
            f" {wanted.normalised} " in f" {self.normalised} "
        )

    def share(self, answer: str) -> float:
        """The share of an answer's words that are in the text, 0 to 1."""
        wanted = spelling(answer)
        if not wanted.normalised:
            return float(contains(self.written, answer))
        shares = [0.0]
        for sought, held in (
            ([word for word in wanted.units.split() if word not in _ARTICLES], self.units),
            (wanted.normalised.split(), self.normalised),
        ):
            if sought:
                known = frozenset(held.split())
                shares.append(sum(word in known for word in sought) / len(sought))
        return max(shares)


def spelling(text: str) -> Spelling:
    """The forms of a text; those of a passage are remembered, as searches bring it again and again."""
    return _spelling(text) if len(text) <= _REMEMBERED else _spelling.__wrapped__(text)


@functools.lru_cache(maxsize=4096)
def _spelling(text: str) -> Spelling:
    return Spelling(" ".join(units(text)), normalize_answer(text), " ".join(text.lower().split()))


def joined_spelling(parts: Iterable[Spelling]) -> Spelling:
    """The forms of a text, from those of its parts."""
    return Spelling(*(" ".join(filter(None, forms)) for forms in zip(*parts, strict=True)))


def _without_articles(words: str) -> str:
    """The words without the articles that open them."""
    while words.partition(" ")[0] in _ARTICLES:
        words = words.partition(" ")[2]
    return words
