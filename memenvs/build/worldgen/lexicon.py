"""Kinds and relations of the invented world, and its words, read from texts/."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

TEXTS = Path(__file__).parent / "texts"
FIELD = re.compile(r"\{(\w*)\}")
Words = tuple[str, ...]


def read_lists(name: str, spaced: bool = False) -> dict[str, Words]:
    """The lists of a file of texts/ by name, in its order.

    A list begins with `[name]`, or `[name, name]`, on a line; each further line is an entry, or with `spaced`
    several between spaces. A `#` opens a line of comment.
    """
    lists: dict[str, list[str]] = {}
    for line in map(str.strip, (TEXTS / f"{name}.txt").read_text(encoding="utf-8").splitlines()):
        if line.startswith("["):
            entries: list[str] = []
            lists |= dict.fromkeys(map(str.strip, line.strip("[]").split(",")), entries)
        elif line and not line.startswith("#"):
            entries += line.split() if spaced else [line]
    return {name: tuple(entries) for name, entries in lists.items()}


def _under(lists: dict[str, Words], prefix: str) -> dict[str, Words]:
    """The lists whose names begin with `prefix` and a space, by the rest of their names."""
    start = f"{prefix} "
    return {name.removeprefix(start): entries for name, entries in lists.items() if name.startswith(start)}


_relations = read_lists("relations")
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


_syllables = read_lists("syllables", spaced=True)
_cultures = dict.fromkeys(name.rpartition(" ")[0] for name in _syllables if " " in name)
CULTURES = tuple(Culture(*(_syllables[f"{name} {part}"] for part in _PARTS)) for name in _cultures)
BANNED = _syllables["banned"]

TITLE_WORDS = read_lists("titles")
TITLES = TITLE_WORDS.pop("titles")

_works = [row.split(" | ") for row in _relations["works"]]
MAKING = {  # plain noun of a work: the words that its documents and questions say of its making
    noun: dict(zip(("made", "active", "maker", "out", "outing", "set_in"), words, strict=True))
    for noun, _, *words in _works
}
_things = read_lists("things")
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

FILLERS = read_lists("fillers")
SELF = frozenset({"N", "S", "s", "Ss", "ss", "o", "n"})  # fields that name the subject
SENTENCES = read_lists("sentences")  # openers and facts of a kind, colour of a kind or a noun
_questions = read_lists("questions")
ASK, DESCRIBE = _under(_questions, "ask"), _under(_questions, "describe")
COMPARE, PICK, SAME = (_under(_questions, sort) for sort in ("compare", "pick", "same"))
SINGLE_OUT: dict[str, dict[Words, Words]] = {kind: {} for kind in KINDS}  # kind -> conditions -> wordings
for _name, _wordings in _under(_questions, "single out").items():
    _conditions = tuple(_name.split(" "))
    SINGLE_OUT[RELATIONS[_conditions[0]].domain][_conditions] = _wordings

# What is said of many things at once: of each line the name, then the words.
_aggregates = {
    name: {row[0]: row[1:] for row in (line.split(" | ") for line in lines)}
    for name, lines in read_lists("aggregates").items()
}
PLURALS = {kind: words[0] for kind, words in _aggregates["plurals"].items()}
CONDITIONS, EXTREMES = _aggregates["conditions"], _aggregates["extremes"]
SUMS = {relation: words[0] for relation, words in _aggregates["sums"].items()}
COMMON = {relation: words[0] for relation, words in _aggregates["common"].items()}
