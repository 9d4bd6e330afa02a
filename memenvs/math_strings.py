r"""A model's LaTeX comes in; its boxed answer, in the spelling it is compared in, goes out.

Two spellings are in use and differ: MemAgent's training reward undoes typesetting only (`light_strip`), the
MATH benchmark of Hendrycks et al. (2021) also rewrites units, roots and fractions (`full_strip`).
Both keep known oddities of their originals ("outfraction" loses a letter), or scores would not compare.
"""

from __future__ import annotations

import re

BOXED = "\\boxed"

_BRACES = re.compile(r"[{}]")
_BOX_OR_BRACE = re.compile(r"\\boxed\{|[{}]")
_INTEGER_FRACTION = re.compile(r"(0|-?[1-9][0-9]*)/(0|-?[1-9][0-9]*)")

# Order counts in both tables: an earlier line may make or break the text of a later one.
_TYPESETTING = (
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
)
_NUMBERS = (("\\%", ""), (" .", " 0."), ("{.", "{0."))  # a bare "%" stays, as in the originals


def last_boxed(text: str) -> str | None:
    r"""The last `\boxed{...}` of a text with its command, or None if there is none that closes.

    `\boxed x` wins over any braced box and runs to the next `$`; `\fbox{...}` is found only where no `\boxed`
    is. An unclosed last box hides the earlier ones. Source: MATH (Hendrycks et al., 2021), as in verl.
    """
    if BOXED + " " in text:
        return BOXED + " " + text.rpartition(BOXED + " ")[2].partition("$")[0]
    start = text.rfind(BOXED)
    if start < 0:
        start = text.rfind("\\fbox")
    if start < 0:
        return None
    depth = 0
    for brace in _BRACES.finditer(text, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0 and brace[0] == "}":
            return text[start : brace.end()]
    return None


def strip_boxed(boxed: str) -> str | None:
    r"""The content of what `last_boxed` found; None for an `\fbox` or anything else it does not open with."""
    if boxed.startswith(BOXED + " "):
        return boxed[len(BOXED) + 1 :]
    if boxed.startswith(BOXED + "{") and boxed.endswith("}"):
        return boxed[len(BOXED) + 1 : -1]
    return None


def boxed_content(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` whose braces balance; an unclosed one does not hide it.

    Of nested boxes the inner one counts, as it opens last. Escaped braces count as braces.
    """
    open_at: list[int] = []  # where each open brace's content begins; -1: not a box
    last, found = -1, None
    for token in _BOX_OR_BRACE.finditer(text):
        if token[0] != "}":
            open_at.append(token.end() if token[0] != "{" else -1)
        elif open_at and (begin := open_at.pop()) > last:
            last, found = begin, token.start()
    return None if found is None else text[last:found]


def light_strip(text: str) -> str:
    """Typesetting, dollar and percent commands and spaces gone; fractions, roots and units untouched.

    Source: MemAgent's reward for HotpotQA.
    """
    return _replace(_replace(text, _TYPESETTING), _NUMBERS).replace(" ", "")


def full_strip(text: str) -> str | None:
    r"""One spelling for equal MATH answers: no unit, no short left side ("k = "), braced roots and fractions.

    None where the original raises: two units, or a `\sqrt` or `\frac` with nothing behind it.
    Source: MATH (Hendrycks et al., 2021), as in verl.
    """
    value, *units = _replace(text, _TYPESETTING).split("\\text{ ")
    if len(units) > 1:
        return None
    value = _replace(value, _NUMBERS)
    if value.startswith("."):
        value = "0" + value
    left, *right = value.split("=")
    if len(right) == 1 and len(left) <= 2:
        value = right[0]
    rooted = _brace_roots(value)
    braced = None if rooted is None else _brace_fractions(rooted.replace(" ", ""))
    if braced == "0.5":
        return "\\frac{1}{2}"
    if braced is not None and (fraction := _INTEGER_FRACTION.fullmatch(braced)):
        return f"\\frac{{{fraction[1]}}}{{{fraction[2]}}}"
    return braced


def math_equal(first: str, second: str) -> bool:
    """Equal in the full spelling; to the character where one of them has none."""
    spellings = full_strip(first), full_strip(second)
    return first == second if None in spellings else spellings[0] == spellings[1]


def _replace(text: str, table: tuple[tuple[str, str], ...]) -> str:
    for old, new in table:
        text = text.replace(old, new)
    return text


def _brace_roots(text: str) -> str | None:
    r"""`\sqrt3` as `\sqrt{3}`: one character is the argument, a space too. None if a root has none."""
    head, *roots = text.split("\\sqrt")
    if "" in roots:
        return None
    return head + "".join("\\sqrt" + (r if r[0] == "{" else f"{{{r[0]}}}{r[1:]}") for r in roots)


def _brace_fractions(text: str) -> str | None:
    r"""`\frac12` and `\frac1{2}` as `\frac{1}{2}`; the text as it was if a numerator stands alone.

    None if a fraction has nothing behind it.
    """
    head, *fractions = text.split("\\frac")
    parts = [head]
    for fraction in fractions:
        if not fraction:
            return None
        if fraction[0] != "{":
            if len(fraction) == 1:
                return text
            below = fraction[1:] if fraction[1] == "{" else f"{{{fraction[1]}}}{fraction[2:]}"
            fraction = f"{{{fraction[0]}}}{below}"
        parts.append("\\frac" + fraction)
    return "".join(parts)
