"""What the docstring of an environment promises, with those of the classes that it extends."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

from memenvs.core.env import TextEnv

_ORDER = ["Action", "Observation", "Reward", "End", "Info", "Metrics", "Privileged", "Args", "Version"]
_HEADING = re.compile(r"^([A-Z]\w*):$", re.MULTILINE)


def contract(creator: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """What comes before the first heading of a docstring, and the text under each heading.

    A section that a class lacks is that of the class it extends.
    """
    summary, _ = _sections(creator)
    sections: dict[str, str] = {}
    for kind in _with_extended(creator):
        sections = {**_sections(kind)[1], **sections}
    titles = sorted(sections, key=lambda title: (*_ORDER, title).index(title))
    return summary, {title: sections[title] for title in titles}


def argument_texts(creator: Callable[..., Any]) -> dict[str, str]:
    """What the docstrings of a class and of those it extends say of each argument, each on one line."""
    texts: dict[str, str] = {}
    for kind in reversed(_with_extended(creator)):
        for item in re.split(r"\n(?=\S)", _sections(kind)[1].get("Args", "")):
            name, colon, meaning = item.partition(":")
            if colon and not name.startswith("*"):
                texts[name] = " ".join(meaning.split())
    return texts


def _with_extended(creator: Callable[..., Any]) -> list[Any]:
    """A class and the environments that it extends, without bases that are not environments."""
    kinds = inspect.getmro(creator) if isinstance(creator, type) else (creator,)
    return [kind for kind in kinds if kind not in TextEnv.__mro__]


def _sections(kind: Any) -> tuple[str, dict[str, str]]:
    first, *rest = _HEADING.split(inspect.cleandoc(vars(kind).get("__doc__") or kind.__doc__ or ""))
    texts = (textwrap.dedent(body.strip("\n")) for body in rest[1::2])
    return first.strip(), dict(zip(rest[::2], texts, strict=True))
