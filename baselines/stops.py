"""Tokens of replies come in as they are drawn; which replies are over goes out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memenvs.baselines.token_text import BROKEN, Ids, TokenText


class Stops:
    """Knows when a reply is over: by an end token, or by the token that completes a stop string.

    Only rows whose newest token could complete a stop string are decoded, and of those only the last tokens.

    Args:
        text: decodes, and knows the end tokens.
        stop: strings; none is empty.
        vocabulary: number of tokens that can be drawn.

    Raises:
        ValueError: a stop string is empty, or `stop` is one string.
    """

    def __init__(self, text: TokenText, stop: Sequence[str], vocabulary: int):
        self._text, self._stop = text, checked_stops(stop)
        self._ends = np.zeros(vocabulary, dtype=bool)
        self._ends[[end for end in text.ends if 0 <= end < vocabulary]] = True
        # A token has a byte at least, but for a few that show nothing, or only within a word.
        self._look = max((len(one.encode()) for one in stop), default=0) + 8
        self._closing = self._closers(vocabulary)

    def ended(self, ids: Ids, rows: Ids, step: int) -> NDArray[np.bool_]:
        """Which of `rows` (R,) of the replies `ids` (B, T) are over with their token number `step`."""
        newest = ids[rows, step]
        over = self._ends[newest]
        if self._stop:
            for place in np.flatnonzero(self._closing[newest] & ~over):
                seen = self._text.decode(ids[rows[place], max(0, step + 1 - self._look) : step + 1])
                over[place] = any(one in seen for one in self._stop)
        return over

    def _closers(self, vocabulary: int) -> NDArray[np.bool_]:
        """(V,) which tokens could complete a stop string."""
        closing = np.zeros(vocabulary, dtype=bool)
        if self._stop:
            last = {one[-1] for one in self._stop}
            if not all(letter.isascii() for letter in last):
                last.add(BROKEN)  # the last byte of such a letter may be a token of its own
            shown = self._text.backend.decode_batch(
                [[i] for i in range(vocabulary)], skip_special_tokens=False
            )
            closing[:] = [not last.isdisjoint(text) for text in shown]
        return closing


def checked_stops(stop: Sequence[str]) -> tuple[str, ...]:
    """The stop strings.

    Raises:
        ValueError: one is empty, or `stop` is one string.
    """
    if isinstance(stop, str) or not all(isinstance(one, str) and one for one in stop):
        raise ValueError(f"stop must be a list of strings that are not empty, got {stop!r}")
    return tuple(stop)
