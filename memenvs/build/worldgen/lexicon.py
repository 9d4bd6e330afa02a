"""Kinds and relations of the invented world, and its words, read from texts/."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from memenvs.build.draft import Words, read_lists

FIELD = re.compile(r"\{(\w*)\}")
_lists_of = partial(read_lists, Path(__file__).parent / "texts")


def _under(lists: dict[str, Words], prefix: str) -> dict[str, Words]:
    """The lists whose names begin with `prefix` and a space, by the rest of their names."""
    start = f"{prefix} "
    return {name.removeprefix(start): entries for name, entries in lists.items() if name.startswith(start)}


_relations = _lists_of("relations")
SHARES = {kind: float(share) for kind, share in map(str.split, _relations["kinds"])}  # of a world's entities
KINDS = tuple(SHARES)


@dataclass(frozen=True)
class Relation:
    """A functional relation: `domain` is the kind it is stated of, `range` a kind or year, number, word.

    `unit` follows a number in prose and in answers ("kilometres"); empty for counts of people.
    """

    name: str
    domain: str
    range: str
    unit: str = ""

    @property
    def links(self) -> bool:
        """True where the value is another entity."""
        return self.range in SHARES


RELATIONS = {
    name: Relation(name, kind, range_, " ".join(unit))
    for kind in KINDS
    for name, range_, *unit in map(str.split, _relations[kind])
}


@dataclass(frozen=True)
class Culture:
    """Syllables of one phonology: a stem is onset, vowel, middle; a tail tells a town from a surname."""

    onsets: Words
    vowels: Words
    middles: Words
    town: Words
    region: Words
    river: Words
    surname: Words
    house: Words  # companies, schools and landmarks
    she: Words
    he: Words


_PARTS = tuple(field.name for field in fields(Culture))


_syllables = _lists_of("syllables", spaced=True)
_cultures = dict.fromkeys(name.rpartition(" ")[0] for name in _syllables if " " in name)
CULTURES = tuple(Culture(*(_syllables[f"{name} {part}"] for part in _PARTS)) for name in _cultures)
BANNED = _syllables["banned"]

TITLE_WORDS = _lists_of("titles")
TITLES = TITLE_WORDS.pop("titles")

_works = [row.split(" | ") for row in _relations["works"]]
MAKING = {  # plain noun of a work: the words that its documents and questions say of its making
    noun: dict(zip(("made", "active", "maker", "out", "outing", "set_in"), words, strict=True))
    for noun, _, *words in _works
}
_things = _lists_of("things")
# A creator's profession fixes what they make.
FORMS = {profession: (noun, _things[f"forms of a {noun}"]) for noun, profession, *_ in _works}
FOUNDERS, SURVEYORS = _things["founders"], _things["surveyors"]
PROFESSIONS = (*FORMS, "architect", "architect", *FOUNDERS, *SURVEYORS, *_things["other professions"])
# The smallest world has these.
CORE = ("novelist", FOUNDERS[0], "architect", "composer", SURVEYORS[0], FOUNDERS[1])
PUBLISHING, PRODUCTS, CRAFTS = _things["publications"], _things["products"], _things["crafts"]
PRODUCE, EMBLEMS, INSTRUMENTS = _things["produce"], _things["emblems"], _things["instruments"]
MATERIALS, STRUCTURES, SCHOOLS = _things["materials"], _things["structures"], _things["schools"]
ARTICLED = frozenset(_things["structures with an article"])
PUBLISHERS, COMPANIES = _things["publishers"], _things["companies"]

RESERVED = frozenset(  # no invented word is one of these
    word.lower()
    for entries in (
        *(*TITLE_WORDS.values(), PROFESSIONS, PUBLISHING, PRODUCTS, CRAFTS, PRODUCE, EMBLEMS, INSTRUMENTS),
        *(MATERIALS, STRUCTURES, SCHOOLS, _syllables["reserved"]),
    )
    for entry in entries
    for word in entry.split()
)

FILLERS = _lists_of("fillers")
SELF = frozenset({"N", "S", "s", "Ss", "ss", "o", "n"})  # fields that name the subject
SENTENCES = _lists_of("sentences")  # openers and facts of a kind, colour of a kind or a noun
_questions = _lists_of("questions")
ASK, DESCRIBE = _under(_questions, "ask"), _under(_questions, "describe")
COMPARE, PICK, SAME = (_under(_questions, sort) for sort in ("compare", "pick", "same"))
SINGLE_OUT: dict[str, dict[Words, Words]] = {kind: {} for kind in KINDS}  # kind -> conditions -> wordings
for _name, _wordings in _under(_questions, "single out").items():
    _conditions = tuple(_name.split(" "))
    SINGLE_OUT[RELATIONS[_conditions[0]].domain][_conditions] = _wordings

# What is said of many things at once: of each line the name, then the words.
_aggregates = {
    name: {row[0]: row[1:] for row in (line.split(" | ") for line in lines)}
    for name, lines in _lists_of("aggregates").items()
}
PLURALS = {kind: words[0] for kind, words in _aggregates["plurals"].items()}
CONDITIONS, EXTREMES = _aggregates["conditions"], _aggregates["extremes"]
SUMS = {relation: words[0] for relation, words in _aggregates["sums"].items()}
COMMON = {relation: words[0] for relation, words in _aggregates["common"].items()}
