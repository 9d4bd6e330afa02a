"""Prompt templates: named places, filled in one pass so that what fills them is never read."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any


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
        self.required, self.optional = tuple(required), tuple(optional)
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


def replace_templates(own: Mapping[str, Template], given: Any) -> dict[str, Template]:
    """An environment's own templates, those replaced that its argument `template` gives.

    Args:
        own: by their names.
        given: `{name: text}` of some of them, or None. A text must and may have the places that our own of
            that name must and may have.

    Raises:
        ValueError: not such a dictionary, an unknown name, or a text without a place that it must have.
    """
    if given is None:
        return dict(own)
    if not isinstance(given, Mapping) or not all(isinstance(text, str) for text in given.values()):
        form = ", ".join(f"{name!r}: text" for name in own)
        raise ValueError(f"template must be {{{form}}}, got {given!r:.80}")
    if unknown := [name for name in given if name not in own]:
        parts = " and ".join(map(repr, own))
        raise ValueError(f"template has an unknown part {unknown[0]!r}; it may have {parts}")
    return {
        name: Template(given[name], required=old.required, optional=old.optional, name=name)
        if name in given
        else old
        for name, old in own.items()
    }
