"""Prompt templates: named places, filled in one pass so that what fills them is never read."""

from __future__ import annotations

import re
from collections.abc import Collection


class Template:
    r"""A text with places such as `{question}`; every other brace is plain text (`\boxed{…}`).

    Args:
        text: the template.
        required: places it must have.
        optional: places it may have.
        name: what the template is called in errors.

    Raises:
        ValueError: a required place is missing.

    >>> Template("Q: {question} {x}", required=["question"], name="read").fill(question="{question}?")
    'Q: {question}? {x}'
    """

    def __init__(
        self, text: str, *, required: Collection[str], optional: Collection[str] = (), name: str = "template"
    ) -> None:
        for place in required:
            if f"{{{place}}}" not in text:
                raise ValueError(f"the {name!r} template has no place {{{place}}}; put it where it belongs")
        self._parts = re.split(r"\{(" + "|".join((*required, *optional)) + r")\}", text)

    def longest(self, **most: int) -> int:
        """Characters of the longest text it can give, from those of what can fill each place.

        >>> Template("Q: {question}! {question}", required=["question"]).longest(question=10)
        25
        """
        return sum(map(len, self._parts[::2])) + sum(most[place] for place in self._parts[1::2])

    def fill(self, **values: object) -> str:
        """The text with its places filled; values that it has no place for are left out."""
        parts = list(self._parts)
        parts[1::2] = [str(values[place]) for place in parts[1::2]]
        return "".join(parts)
