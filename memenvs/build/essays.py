"""A folder of texts comes in; their sentences, the hay of a haystack, go out."""

from __future__ import annotations

import re
from pathlib import Path

_LONGEST = 100  # words of a sentence, where prose has no stops
_STOP = re.compile(r"[.!?\u2026\u3002\uff01\uff1f]\W*$")
_FULLWIDTH_STOP = re.compile(r"[\u3002\uff01\uff1f]\W*")  # Chinese and Japanese: no space behind
_ABBREVIATIONS = frozenset("dr. e.g. etc. i.e. mr. mrs. ms. no. prof. st. u.s. vs.".split())


def read_prose(folder: Path) -> tuple[list[str], tuple[Path, ...]]:
    """The texts of every `*.txt` of a folder, and the files, sorted by name.

    Raises:
        FileNotFoundError: the folder has none.
        ValueError: one of them is not UTF-8.
    """
    files = tuple(sorted(path for path in folder.glob("*.txt") if path.is_file()))
    if not files:
        raise FileNotFoundError(f"no *.txt in {folder}; give a folder of essays as plain text")
    texts = []
    for path in files:
        try:
            texts.append(path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8"
            ) from error
    return texts, files


def sentences(text: str) -> list[str]:
    """The sentences of a text, one space between two words; joined they are the text up to white space.

    A sentence ends at a stop, unless a small letter follows or the stop is an abbreviation's or an initial's;
    and after `_LONGEST` words.
    """
    words = _FULLWIDTH_STOP.sub(r"\g<0> ", text).split()
    found: list[str] = []
    start = 0
    for end, (word, after) in enumerate(zip(words, [*words[1:], ""], strict=False), 1):
        if _stops(word, after) or end - start == _LONGEST or end == len(words):
            found.append(" ".join(words[start:end]))
            start = end
    return found


def _stops(word: str, after: str) -> bool:
    """Whether a sentence ends between two words."""
    if not _STOP.search(word) or after[:1].islower():
        return False
    bare = word.lstrip("([\"'").lower()
    return bare not in _ABBREVIATIONS and not (len(bare) == 2 and bare[0].isalpha() and bare[1] == ".")
