"""The words of a text in any language."""

from __future__ import annotations

import itertools
import re
import unicodedata

import regex

# The scripts that put no blanks between words: Chinese, Japanese, Korean (whose particles join the word), and
# those that Unicode's line breaking leaves to a dictionary (Thai, Lao, Khmer, Myanmar …).
UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Hangul}\p{Bopomofo}\p{Yi}\p{Line_Break=Complex_Context}"
_SPACED = re.compile(r"\w+")
_NOT_SPACED = regex.compile(rf"[\p{{M}}{UNSPACED}]")  # what Python's `\w+` cuts wrongly
_WORD = regex.compile(rf"(?V1)(?P<unspaced>[{UNSPACED}]+)|[\w--[{UNSPACED}]]+")
_CHARACTER = regex.compile(r"\X")  # a letter with its marks
# Accents, points of Arabic and Hebrew, soft hyphens, joiners; not the marks that make another letter.
_IGNORED = regex.compile(
    r"(?V1)[[\p{Mn}&&[\p{Inherited}\p{Arabic}\p{Hebrew}\p{Syriac}\p{Cyrillic}]--[\u3099\u309a]]\p{Cf}\u0640]+"
)
_OTHER_DIGIT = regex.compile(r"(?V1)[\p{Nd}--[0-9]]")


def words(text: str) -> list[str]:
    """The words by which a text is searched, in order.

    Runs of letters, digits and underscores, in one case and without accents. Where a script has no blanks
    between words, each pair of neighbouring characters is a word.

    >>> words("Čapek's R.U.R.")
    ['capek', 's', 'r', 'u', 'r']
    >>> words("東京都 2020")
    ['東京', '京都', '2020']
    """
    return _parts(text, in_pairs=True)


def units(text: str) -> list[str]:
    """The words of a text that can be compared one by one, in order.

    As `words`, but underscores separate, and each character of a script without blanks is one by itself.

    >>> units("_Ann_ Lee’s 東京")
    ['ann', 'lee', 's', '東', '京']
    """
    return _parts(text.replace("_", " "), in_pairs=False)


def fold_digits(text: str) -> str:
    """The text with the decimal digits of all scripts as those of ASCII.

    >>> fold_digits("१९३३")
    '1933'
    """
    return _OTHER_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0])), text)


def _parts(text: str, in_pairs: bool) -> list[str]:
    """The runs of a text in one case and without accents; of scripts without blanks characters, or pairs."""
    if text.isascii():  # most texts, and the rules below change none of them
        return _SPACED.findall(text.lower())
    letters = _IGNORED.sub("", unicodedata.normalize("NFKD", text))
    folded = fold_digits(unicodedata.normalize("NFC", letters).casefold())
    if not _NOT_SPACED.search(folded):
        return _SPACED.findall(folded)
    parts: list[str] = []
    for run in _WORD.finditer(folded):
        characters = _CHARACTER.findall(run[0]) if run["unspaced"] else [run[0]]
        are_paired = in_pairs and len(characters) > 1
        parts += map("".join, itertools.pairwise(characters)) if are_paired else characters
    return parts
