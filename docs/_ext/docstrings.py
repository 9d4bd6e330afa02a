"""Docstrings as memenvs writes them, in the form that reStructuredText wants.

They are read in a terminal first: code stands in single backticks, equations are indented, and `*` and `_`
are themselves. Each of these means something else to reStructuredText.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

_CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)
_ITEM = re.compile(r"^\s*(- |\d+\. |>>> )")


def to_rst(lines: list[str]) -> list[str]:
    r"""The lines of a docstring, without markup but code, lists and equations.

    >>> to_rst(["Sum of *x* in `a_b`:", "", "    y = x_ + 1", "", "Done."])
    ['Sum of \\*x\\* in ``a_b``:', '', '::', '', '    y = x_ + 1', '', 'Done.']
    """
    found: list[str] = []
    section, equation = False, False
    for before, line in zip(["", *lines], lines, strict=False):
        indent = len(line) - len(line.lstrip())
        if re.fullmatch(r"[A-Z]\w+:", line):
            section, equation = True, False
        elif line and indent == 0:
            section = equation = False
        if not section and not equation and indent >= 2 and not before.strip() and not _ITEM.match(line):
            found += ["::", ""]
            equation = True
        found.append(line if equation else _escaped(line))
    return found


def _escaped(line: str) -> str:
    parts = _CODE.split(line)
    for i, part in enumerate(parts):
        if i % 2:
            parts[i] = part if part.startswith("``") else f"`{part}`"
        else:
            parts[i] = re.sub(r"(\*|\||\w_(?!\w))", _escape, part)
    return "".join(parts)


def _escape(match: re.Match[str]) -> str:
    return match[0].replace("*", r"\*").replace("|", r"\|").replace("_", r"\_")


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_rst(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to Sphinx, before napoleon reads the sections."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
