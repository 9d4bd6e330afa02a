"""Porter's stemmer (1980) with NLTK's extensions, by which LoCoMo's F1 compares words."""

from __future__ import annotations

import functools
import itertools

_IRREGULAR = {
    **{"skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "innings": "inning"},
    **{"outings": "outing", "cannings": "canning"},
    **{word: word for word in ("sky", "news", "inning", "outing", "canning", "howe")},
    **{word: word for word in ("proceed", "exceed", "succeed")},
}
# The first ending of a table that a word has decides, whether or not its stem is long enough.
_STEP_2 = (
    *(("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize")),
    *(("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous")),
    *(("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive")),
    *(("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
    *(("fulli", "ful"),),
)
_STEP_3 = (
    *(("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic")),
    *(("ful", ""), ("ness", "")),
)
_STEP_4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism"),
    *("ate", "iti", "ous", "ive", "ize"),
)


@functools.lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The stem of a word in lower case.

    >>> [stem(word) for word in ("running", "relational", "happily", "skies", "went")]
    ['run', 'relat', 'happili', 'sky', 'went']
    """
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = _past(_plural(word))
    if word.endswith("y") and len(word) > 2 and _consonant(word, len(word) - 2):
        word = word[:-1] + "i"
    return _last(_suffix(_replaced(_noun(word), _STEP_3)))


def _plural(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    for ending, instead in (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", "")):
        if word.endswith(ending):
            return word[: len(word) - len(ending)] + instead
    return word


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    ending = "ed" if word.endswith("ed") else "ing" if word.endswith("ing") else ""
    bare = word[: len(word) - len(ending)] if ending else ""
    if all(_consonants(bare)):
        return word
    if bare.endswith(("at", "bl", "iz")):
        return bare + "e"
    if len(bare) > 1 and bare[-1] == bare[-2] and _consonant(bare, len(bare) - 1):
        return bare if bare[-1] in "lsz" else bare[:-1]
    return bare + "e" if _measure(bare) == 1 and _short(bare) else bare


def _noun(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]):
        return _noun(word[:-2])
    if word.endswith("logi") and not word.endswith(tuple(ending for ending, _ in _STEP_2)):
        return word[:-1] if _measure(word[:-3]) else word
    return _replaced(word, _STEP_2)


def _replaced(word: str, table: tuple[tuple[str, str], ...]) -> str:
    for ending, instead in table:
        if word.endswith(ending):
            bare = word[: len(word) - len(ending)]
            return bare + instead if _measure(bare) else word
    return word


def _suffix(word: str) -> str:
    for ending in _STEP_4:
        if word.endswith(ending):
            bare = word[: len(word) - len(ending)]
            fits = _measure(bare) > 1 and (ending != "ion" or bare.endswith(("s", "t")))
            return bare if fits else word
    return word


def _last(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _consonants(word: str) -> list[bool]:
    """Whether each letter is a consonant; y is one at the start and after a vowel."""
    found: list[bool] = []
    for letter in word:
        found.append(letter not in "aeiou" if letter != "y" else not found or not found[-1])
    return found


def _consonant(word: str, place: int) -> bool:
    return _consonants(word)[place]


def _measure(word: str) -> int:
    """How often a vowel is followed by a consonant."""
    found = _consonants(word)
    return sum(after and not before for before, after in itertools.pairwise(found))


def _short(word: str) -> bool:
    """Whether it ends with consonant, vowel, consonant (not w, x, y), or is a vowel and a consonant."""
    found = _consonants(word)
    if len(word) == 2:
        return found == [False, True]
    return len(word) > 2 and found[-3:] == [True, False, True] and word[-1] not in "wxy"
