"""Kinds and relations of the invented world, and its words, read from texts/."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from pathlib import Path

TEXTS = Path(__file__).parent / "texts"
FIELD = re.compile(r"\{(\w*)\}")
Words = tuple[str, ...]
Allowed = Callable[[str], Collection[str] | None]


class Lists(dict[str, Words]):
    """The lists of one file by name, in its order; one that is not there raises a one-line `ValueError`."""

    def __init__(self, path: Path):
        self.path = path

    def __missing__(self, name: str) -> Words:
        raise ValueError(f"{self.path}: there is no list [{name}]; add it")

    def under(self, prefix: str) -> dict[str, Words]:
        """The lists whose names begin with `prefix` and a space, by the rest of their names."""
        start = f"{prefix} "
        return {name[len(start) :]: entries for name, entries in self.items() if name.startswith(start)}


def read_lists(path: Path, allowed: Allowed, *, spaced: bool = False) -> Lists:
    """Read lists: `[name]` or `[name, name]` on a line, then one entry a line; a `#` opens a line of comment.

    Args:
        path: UTF-8 text.
        allowed: the fields in braces that entries of a list may have; None for a list that is not read.
        spaced: entries are separated by spaces too.

    Raises:
        ValueError: of one line, with file, line number and mend: an entry outside a list; a list unknown,
            empty or given twice; an unknown field, or a brace without its pair.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text ({error}); save it as UTF-8") from error
    lists = Lists(path)
    names: list[str] = []
    fields: set[str] = set()
    entries: list[str] = []
    for number, line in enumerate(map(str.strip, [*lines, "[]"]), 1):
        try:
            if line.startswith("["):
                if names and not entries:
                    raise ValueError(f"the list [{names[0]}] above is empty; give it an entry or remove it")
                lists.update(dict.fromkeys(names, tuple(entries)))
                if number <= len(lines):
                    names, entries = [name.strip() for name in line.strip("[]").split(",")], []
                    fields = _fields(names, lists, allowed)
            elif line and not line.startswith("#"):
                if not names:
                    raise ValueError(f"{line!r} is in no list; write it under a [list]")
                _check_entry(line, fields)
                entries += line.split() if spaced else [line]
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
    return lists


def _fields(names: list[str], known: Lists, allowed: Allowed) -> set[str]:
    """The fields that an entry may have which is in all of these lists."""
    field_sets = []
    for name in names:
        fields = allowed(name)
        if fields is None:
            raise ValueError(f"no list is called [{name}]; correct its name")
        if name in known or names.count(name) > 1:
            raise ValueError(f"the list [{name}] stands twice; join the two")
        field_sets.append(set(fields))
    return set.intersection(*field_sets)


def _check_entry(line: str, fields: set[str]) -> None:
    if "{" not in line and "}" not in line:
        return
    for field in FIELD.findall(line):
        if field not in fields:
            listed = " ".join(f"{{{name}}}" for name in sorted(fields))
            raise ValueError(f"{{{field}}} is no field of this list; its fields: {listed or 'none'}")
    if "{" in (rest := FIELD.sub("", line)) or "}" in rest:
        raise ValueError(f"a brace without its pair in {line!r}; write a field as {{name}}")


_relations = read_lists(TEXTS / "relations.txt", lambda name: ())
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
OF_KIND = {kind: tuple(r.name for r in RELATIONS.values() if r.domain == kind) for kind in KINDS}


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


_syllables = read_lists(TEXTS / "syllables.txt", lambda name: (), spaced=True)
_cultures = dict.fromkeys(name.rpartition(" ")[0] for name in _syllables if " " in name)
CULTURES = tuple(Culture(*(_syllables[f"{name} {part}"] for part in _PARTS)) for name in _cultures)
BANNED = _syllables["banned"]

_IN_TITLES = ("adjective", "noun", "plural", "agent", "belonging", "number", "repose", "where")
_titles = read_lists(
    TEXTS / "titles.txt", lambda name: (*_IN_TITLES, "a_noun", "other") if name == "titles" else ()
)
TITLES = _titles["titles"]
TITLE_WORDS = {name: _titles[name] for name in _IN_TITLES}

_works = [row.split(" | ") for row in _relations["works"]]
MAKING = {  # plain noun of a work: the words that its documents and questions say of its making
    noun: dict(zip(("made", "active", "maker", "out", "outing", "set_in"), words, strict=True))
    for noun, _, *words in _works
}
_things = read_lists(TEXTS / "things.txt", lambda name: ("",) if name in ("publishers", "companies") else ())
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

FILLERS = dict(read_lists(TEXTS / "fillers.txt", lambda name: ()))
SELF = frozenset({"N", "S", "s", "Ss", "ss", "o", "n"})  # fields that name the subject
_FILLED = frozenset(FILLERS) | {f"a_{name}" for name in FILLERS}


def _agreeing(kind: str) -> frozenset[str]:
    agreeing = frozenset({"he", "his", "him", "himself", "was", "noun", "a_noun"})
    return agreeing.union(MAKING["novel"]) if kind == "work" else agreeing


def _stated(kind: str) -> frozenset[str]:
    return frozenset(field for name in OF_KIND[kind] for field in (name, f"a_{name}"))


def _sentence_fields(name: str) -> Collection[str] | None:
    """Of openers and facts of a kind, and of the colour of a kind or a noun."""
    noun, _, part = name.partition(" ")
    landmarks = {structure.lower() for structure in STRUCTURES}
    kind = "work" if noun in MAKING else "landmark" if noun in landmarks else noun
    if kind not in KINDS or part not in ("openers", "facts", "colour") or (kind != noun and part != "colour"):
        return None
    return SELF | _agreeing(kind) | _FILLED | (_stated(kind) if part != "colour" else frozenset())


_SORTS = ("ask", "describe", "single out", "compare", "pick", "same")


def _question_fields(name: str) -> Collection[str] | None:
    """Of what is asked or described of one relation, or singles out by one or two."""
    sort = next((sort for sort in _SORTS if name.startswith(f"{sort} ")), "")
    relations = name[len(sort) + 1 :].partition(":")[0].split(" ")
    if not sort or any(relation not in RELATIONS for relation in relations):
        return None
    if sort in ("compare", "pick", "same"):
        return ("a", "b")
    domain = RELATIONS[relations[0]].domain
    return _agreeing(domain) | (_stated(domain) if sort == "single out" else {"x"})


SENTENCES = read_lists(TEXTS / "sentences.txt", _sentence_fields)
_questions = read_lists(TEXTS / "questions.txt", _question_fields)
ASK, DESCRIBE = _questions.under("ask"), _questions.under("describe")
COMPARE, PICK, SAME = _questions.under("compare"), _questions.under("pick"), _questions.under("same")
SINGLE_OUT: dict[str, dict[Words, Words]] = {kind: {} for kind in KINDS}  # kind -> conditions -> wordings
for _name, _wordings in _questions.under("single out").items():
    _conditions = tuple(_name.split(" "))
    SINGLE_OUT[RELATIONS[_conditions[0]].domain][_conditions] = _wordings
