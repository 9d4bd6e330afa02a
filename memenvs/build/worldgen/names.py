"""From a kind and a stream of choices to a name no other entity of the world, or of another split, bears."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable

from memenvs.build.worldgen import lexicon as lex
from memenvs.build.worldgen.draws import SPLITS, Dice
from memenvs.build.worldgen.lexicon import CULTURES, Culture

TRIES = 2000  # a small world needs about 3; the largest that `generate` allows still succeeds
UGLY = re.compile(
    r"(.{2,})\1|(.)\2\2|r[aeiouy]r|l[aeiouy]l[aeiouy]l|[^aeiouy]([^aeiouy])\3|[bcdfghjklmnpqrstvwxz]{4,}|"
    + "|".join(lex.BANNED),
    re.IGNORECASE,
)


def belongs(word: str, split: str) -> bool:
    """Whether a split may use this word or title: a fixed hash deals every possible one to one split."""
    return zlib.crc32(word.lower().encode()) % len(SPLITS) == SPLITS.index(split)


def article(phrase: str) -> str:
    """The phrase after "a" or "an"."""
    return f"an {phrase}" if phrase[0].lower() in "aeiou" else f"a {phrase}"


class NameBook:
    """The names taken so far in one world.

    A word invented for a town is in no other entity's name, and so for every kind; only given names and
    family names repeat among persons, whose full names differ. So no name is part of another name.

    Raises:
        ValueError: from any method, when the syllables give no new name (well above 200,000 entities).
    """

    def __init__(self, split: str):
        self._split = split
        self._taken: set[str] = set()
        self._owner: dict[str, str] = {}  # word -> who may use it again: "given", "family" or nobody ("")

    def place(self, kind: str, culture: int, dice: Dice) -> str:
        """The name of a region, river ("River Orrel") or town."""
        tails = {"region": CULTURES[culture].region, "river": CULTURES[culture].river}
        word = self._word(dice, CULTURES[culture], tails.get(kind, CULTURES[culture].town))
        return f"River {word}" if kind == "river" else word

    def person(self, culture: int, gender: str, dice: Dice) -> tuple[str, str]:
        """A full name and its family name; gender is "she" or "he"."""
        syllables = CULTURES[culture]
        given_tails = syllables.she if gender == "she" else syllables.he

        def full() -> str:
            given = self._word(dice, syllables, given_tails, "given")
            return f"{given} {self._word(dice, syllables, syllables.surname, 'family')}"

        name = self._fresh(full)
        return name, name.split()[1]

    def company(self, publisher: bool, dice: Dice) -> str:
        """Such as "Tamsel & Orrick"; the pattern tells publishers and nothing else of the trade."""
        shapes = lex.PUBLISHERS if publisher else lex.COMPANIES
        return dice.pick(shapes).format(self._house(dice), self._house(dice))

    def school(self, dice: Dice) -> str:
        """Such as "Tarrow Academy"."""
        return f"{self._house(dice)} {dice.pick(lex.SCHOOLS)}"

    def landmark(self, structure: str, dice: Dice) -> str:
        """Such as "Tarrow Lighthouse"."""
        return f"{self._house(dice)} {structure}"

    def work(self, dice: Dice) -> str:
        """A title of ordinary words, such as "The Salt Ledger"."""

        def title() -> str | None:
            words = _title(dice)
            return words if belongs(words, self._split) else None

        return self._fresh(title)

    def _house(self, dice: Dice) -> str:
        culture = dice.pick(CULTURES)
        return self._word(dice, culture, culture.house)

    def _word(self, dice: Dice, culture: Culture, tails: tuple[str, ...], owner: str = "") -> str:
        """A new invented word; for given and family names also one that its like already bears."""
        for attempt in range(TRIES):
            stem = dice.pick(culture.onsets) + dice.pick(culture.vowels) + dice.pick(culture.middles)
            if dice.chance(min(0.9, 0.03 * (attempt - 2))):  # short words first; longer ones as those run out
                stem += dice.pick(culture.vowels) + dice.pick(culture.middles)
            word = stem + dice.pick(tails)
            known = self._owner.get(word)
            if known is not None and (known != owner or not owner):
                continue
            if known is None and not self._may_enter(word, owner):
                continue
            self._owner[word] = owner
            return word
        raise ValueError("the syllables give no new name; ask for fewer entities")

    def _may_enter(self, word: str, owner: str) -> bool:
        dealt = owner == "given" or belongs(word, self._split)  # the family name already parts the splits
        return dealt and 4 <= len(word) <= 13 and word.lower() not in lex.RESERVED and not UGLY.search(word)

    def _fresh(self, draw: Callable[[], str | None]) -> str:
        for _ in range(TRIES):
            name = draw()
            if name and name not in self._taken:
                self._taken.add(name)
                return name
        raise ValueError("the word stock gives no new name; ask for fewer entities")


def _title(dice: Dice) -> str:
    words = lex.TITLE_WORDS
    noun = dice.pick(words["noun"])
    return dice.pick(lex.TITLES).format(
        noun=noun,
        a_noun="A" + article(noun)[1:],
        other=dice.pick([other for other in words["noun"] if other != noun]),
        **{name: dice.pick(options) for name, options in words.items() if name != "noun"},
    )
