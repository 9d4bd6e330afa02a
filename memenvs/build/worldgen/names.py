"""Draws, facts, and names made of the lexicon's words."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from memenvs.build.worldgen import lexicon as lex
from memenvs.build.worldgen.lexicon import CULTURES, RELATIONS, Culture

SPLITS = ("train", "validation", "test")
LAYOUT, ENTITY, LINKS, PROSE, HOPS, QUESTION, REST, AGGREGATE = range(8)  # stages: no two share a stream

T = TypeVar("T")


class Dice:
    """Choices from a Generator, read in blocks of uniform floats (ten times faster than scalar calls)."""

    BLOCK = 64

    def __init__(self, rng: np.random.Generator):
        self._rng = rng
        self._floats: list[float] = []

    def unit(self) -> float:
        """A float in [0, 1)."""
        if not self._floats:
            self._floats = self._rng.random(self.BLOCK).tolist()
        return self._floats.pop()

    def below(self, n: int) -> int:
        """A whole number in [0, n), n >= 1."""
        return int(self.unit() * n)

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high], both ends included."""
        return low + self.below(high - low + 1)

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return self.unit() < p

    def pick(self, options: Sequence[T]) -> T:
        """One of a non-empty sequence, each equally likely."""
        return options[self.below(len(options))]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in a random order (Fisher-Yates)."""
        out = list(items)
        for i in range(len(out) - 1, 0, -1):
            j = self.below(i + 1)
            out[i], out[j] = out[j], out[i]
        return out


def dice(seed: int, split: str, item: int, stage: int) -> Dice:
    """The stream of one item of a split at one stage; stages are spawn keys, so they never overlap."""
    entropy = [seed, SPLITS.index(split), item]
    return Dice(np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(stage,))))


Value = int | str  # an entity number, a year, a quantity or a word


@dataclass
class Entity:
    """One entity; `values` holds exactly what its document states.

    `noun` is how a document calls it without its name ("town", "novel", "bridge"), `short` its short name,
    `shown` its name inside a sentence ("the River Orrel"), `pronoun` "she", "he" or "it".
    `year` (birth or founding) orders the world in time and is also known where no document states it.
    """

    kind: str
    name: str = ""
    shown: str = ""
    short: str = ""
    noun: str = ""
    pronoun: str = "it"
    culture: int = 0
    year: int = 0
    values: dict[str, Value] = field(default_factory=dict)


@dataclass
class FactTable:
    """All entities in document order, and the two ways to look a fact up.

    Inverse look-ups are indexed on first use of a relation, so call them once the table is complete.
    """

    entities: list[Entity]
    _by_value: dict[str, dict[Value, list[int]]] = field(default_factory=dict, repr=False)

    def of_kind(self, kind: str) -> list[int]:
        """Entity numbers of one kind, ascending."""
        return [i for i, entity in enumerate(self.entities) if entity.kind == kind]

    def value(self, entity: int, relation: str) -> Value | None:
        """The value of a relation, None where the entity's document states none."""
        return self.entities[entity].values.get(relation)

    def holders(self, relation: str, value: Value) -> list[int]:
        """Every entity whose relation has this value, ascending; relation "name" looks a name up."""
        if relation not in self._by_value:
            index: dict[Value, list[int]] = {}
            for i, entity in enumerate(self.entities):
                held = entity.name if relation == "name" else entity.values.get(relation)
                if held is not None:
                    index.setdefault(held, []).append(i)
            self._by_value[relation] = index
        return self._by_value[relation].get(value, [])

    def answer(self, relation: str, value: Value) -> str:
        """The value as an answer: a name, "1893", "14,200", "212 kilometres", "slate"."""
        schema = RELATIONS[relation]
        if schema.links:
            return self.entities[int(value)].name
        if schema.range == "number":
            return f"{value:,} {schema.unit}".strip()
        return str(value)

    def shown(self, relation: str, value: Value) -> str:
        """The value inside a sentence; it always contains the answer, letter for letter."""
        if RELATIONS[relation].links:
            return self.entities[int(value)].shown
        return self.answer(relation, value)


@dataclass(frozen=True)
class Chain:
    """The entities of `kind` that meet every condition of `where`, then one relation after another.

    A condition is ("name", the name) or (relation, value); the first should be the rarest.
    """

    kind: str
    where: tuple[tuple[str, Value], ...]
    path: tuple[str, ...]

    def trail(self, facts: FactTable) -> list[set[Value]]:
        """What each step reaches: the start, then the values of each relation; len(path) + 1 sets."""
        first, *others = self.where
        starts = {i for i in facts.holders(*first) if facts.entities[i].kind == self.kind}
        for relation, value in others:
            starts = {i for i in starts if facts.value(i, relation) == value}
        reached: list[set[Value]] = [{*starts}]
        for relation in self.path:
            values = (facts.value(int(entity), relation) for entity in reached[-1])
            reached.append({value for value in values if value is not None})
        return reached


@dataclass(frozen=True)
class FactComparison:
    """Two entities of a kind held against each other in one relation.

    `order` "least" or "most" picks the entity with the smaller or larger value, then `ask` (a relation of the
    one picked, or "" for itself); order "same" asks whether both values are equal.
    """

    relation: str
    left: int
    right: int
    order: str
    ask: str = ""

    def winner(self, facts: FactTable) -> int | None:
        """The entity picked; None on a tie or a missing value."""
        left, right = (facts.value(i, self.relation) for i in (self.left, self.right))
        if left is None or right is None or left == right:
            return None
        return self.left if (int(left) < int(right)) == (self.order == "least") else self.right


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
        word = self._word(dice, CULTURES[culture], getattr(CULTURES[culture], kind))
        return f"River {word}" if kind == "river" else word

    def person(self, culture: int, gender: str, dice: Dice) -> tuple[str, str]:
        """A full name and its family name; gender is "she" or "he"."""
        syllables = CULTURES[culture]

        def full() -> str:
            first = self._word(dice, syllables, getattr(syllables, gender), "given")
            return f"{first} {self._word(dice, syllables, syllables.surname, 'family')}"

        name = self._fresh(full)
        return name, name.split()[1]

    def company(self, publisher: bool, dice: Dice) -> str:
        """Such as "Tamsel & Orrick"; the pattern tells publishers and nothing else of the trade."""
        shapes = lex.PUBLISHERS if publisher else lex.COMPANIES
        return dice.pick(shapes).format(self.house(dice), self.house(dice))

    def house(self, dice: Dice) -> str:
        """The first word of companies, schools ("Tarrow Academy") and landmarks ("Tarrow Lighthouse")."""
        culture = dice.pick(CULTURES)
        return self._word(dice, culture, culture.house)

    def work(self, dice: Dice) -> str:
        """A title of ordinary words, such as "The Salt Ledger"."""
        words = lex.TITLE_WORDS

        def title() -> str | None:
            noun = dice.pick(words["noun"])
            drawn = dice.pick(lex.TITLES).format(
                noun=noun,
                a_noun="A" + article(noun)[1:],
                other=dice.pick([other for other in words["noun"] if other != noun]),
                **{name: dice.pick(options) for name, options in words.items() if name != "noun"},
            )
            return drawn if belongs(drawn, self._split) else None

        return self._fresh(title)

    def _word(self, dice: Dice, culture: Culture, tails: tuple[str, ...], owner: str = "") -> str:
        """A new invented word; given and family names may repeat among persons."""
        for attempt in range(TRIES):
            stem = dice.pick(culture.onsets) + dice.pick(culture.vowels) + dice.pick(culture.middles)
            if dice.chance(min(0.9, 0.03 * (attempt - 2))):  # short words first; longer ones as those run out
                stem += dice.pick(culture.vowels) + dice.pick(culture.middles)
            word = stem + dice.pick(tails)
            bearer = self._owner.get(word)
            if bearer is not None and (bearer != owner or not owner):
                continue
            if bearer is None and not self._may_enter(word, owner):
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
