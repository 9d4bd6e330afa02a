"""The facts of an invented world.

Who made a thing is stated once, in its own document or in its maker's; both would spare a reader a hop.

Time runs one way: a school is older than its pupils, a teacher than the pupil; makers are adults.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Sequence

from memenvs.build.worldgen import lexicon as lex
from memenvs.build.worldgen.lexicon import KINDS, SHARES
from memenvs.build.worldgen.names import ENTITY, LAYOUT, LINKS, Dice, Entity, Facts, NameBook, dice


class Draft:
    """Entities by kind, still nameless at first; each draws from two streams, its own and its links'."""

    def __init__(self, kinds: Sequence[str], split: str, seed: int):
        self.seed = seed
        self.names = NameBook(split)
        self.facts = Facts([Entity(kind, noun=kind) for kind in kinds])
        self.of = {kind: self.facts.of_kind(kind) for kind in KINDS}
        self._split = split

    def __getitem__(self, number: int) -> Entity:
        return self.facts.entities[number]

    def own(self, item: int) -> Dice:
        """The stream for what an entity is."""
        return dice(self.seed, self._split, item, ENTITY)

    def links(self, item: int) -> Dice:
        """The stream for what an entity is tied to once all of both kinds exist."""
        return dice(self.seed, self._split, item, LINKS)

    def call(self, number: int, name: str, shown: str = "", short: str = "") -> None:
        """Name an entity; inside a sentence and for short as well, where that differs."""
        entity = self[number]
        entity.name, entity.shown, entity.short = name, shown or name, short or name

    def link(self, number: int, relation: str, value: int | None) -> None:
        """State a relation to another entity; nothing for None."""
        if value is not None:
            self[number].values[relation] = value


class ByYear:
    """Entities in order of their year, to draw one from a span of years."""

    def __init__(self, draft: Draft, numbers: Iterable[int]):
        self._order = sorted(numbers, key=lambda i: (draft[i].year, i))
        self._years = [draft[i].year for i in self._order]

    def pick(self, rolls: Dice, low: int, high: int, avoid: Container[int] = ()) -> int | None:
        """One from [low, high] that is not in `avoid`; None where a dozen draws find none."""
        start, stop = bisect_left(self._years, low), bisect_right(self._years, high)
        for _ in range(12 if start < stop else 0):
            found = self._order[rolls.between(start, stop - 1)]
            if found not in avoid:
                return found
        return None


BORN = (1800, 1985)
OFFICE = 1946  # who was born from this year on may hold an office today


def persons(draft: Draft) -> None:
    """The first six have the trades without which a small world would lack a kind of fact."""
    for order, number in enumerate(draft.of["person"]):
        rolls, person = draft.own(number), draft[number]
        core = order < len(lex.CORE)
        birthplace = rolls.pick(draft.of["town"])
        person.culture = draft[birthplace].culture
        person.pronoun = rolls.pick(("she", "he"))
        name, family = draft.names.person(person.culture, person.pronoun, rolls)
        draft.call(number, name, short=family)
        person.noun = lex.CORE[order] if core else rolls.pick(lex.PROFESSIONS)
        person.year = rolls.between(BORN[0], OFFICE - 30 if core else BORN[1])
        person.values |= {"birthplace": birthplace, "born": person.year, "profession": person.noun}


def careers(draft: Draft) -> None:
    """School, teacher, employer and instrument; founders employ themselves."""
    schools, people = ByYear(draft, draft.of["school"]), ByYear(draft, draft.of["person"])
    companies = ByYear(draft, draft.of["company"])
    founders = {i for i in draft.of["person"] if "company" in draft[i].values}
    founders |= {int(draft[i].values.get("founder", -1)) for i in draft.of["company"]}
    for number in draft.of["person"]:
        rolls, person = draft.links(number), draft[number]
        if rolls.chance(0.85):
            draft.link(number, "school", schools.pick(rolls, 0, person.year + 8))
        if rolls.chance(0.3):
            draft.link(number, "mentor", people.pick(rolls, person.year - 45, person.year - 18))
        if number not in founders and rolls.chance(0.4):
            draft.link(number, "employer", companies.pick(rolls, 0, person.year + 20))
        if rolls.chance(0.22):
            person.values["instrument"] = rolls.pick(lex.INSTRUMENTS)


def offices(draft: Draft) -> None:
    """Mayors and heads of schools are alive and hold one office; surveyors are of the trade."""
    people = ByYear(draft, draft.of["person"])
    surveyors = ByYear(draft, [i for i in draft.of["person"] if draft[i].noun in lex.SURVEYORS])
    busy: set[int] = set()
    for kind, relation in (("town", "mayor"), ("school", "head")):
        for number in draft.of[kind]:
            holder = people.pick(draft.links(number), OFFICE, BORN[1], busy)
            draft.link(number, relation, holder)
            busy |= {holder} if holder is not None else set()
    for number in draft.of["river"]:
        draft.link(number, "surveyor", surveyors.pick(draft.links(number), *BORN))


def regions(draft: Draft) -> None:
    """Each has a culture, which the names of its towns, rivers and people follow."""
    for order, number in enumerate(draft.of["region"]):
        rolls, region = draft.own(number), draft[number]
        region.culture = (order + draft.seed) % len(lex.CULTURES)
        draft.call(number, draft.names.place("region", region.culture, rolls))
        region.values |= {
            "produce": rolls.pick(lex.PRODUCE),
            "area": rolls.between(60, 990) * 10,
            "emblem": rolls.pick(lex.EMBLEMS),
        }


def rivers(draft: Draft) -> None:
    """Each rises in a region."""
    for number in draft.of["river"]:
        rolls, river = draft.own(number), draft[number]
        source = rolls.pick(draft.of["region"])
        river.culture = draft[source].culture
        name = draft.names.place("river", river.culture, rolls)
        draft.call(number, name, f"the {name}", name.split()[1])
        river.values |= {"source": source, "length": rolls.between(38, 940)}


def towns(draft: Draft) -> None:
    """Each lies in a region; the first of a region is its capital."""
    everywhere = draft.of["region"]
    for order, number in enumerate(draft.of["town"]):
        rolls, town = draft.own(number), draft[number]
        capital = order < len(everywhere)
        region = everywhere[order] if capital else rolls.pick(everywhere)
        town.culture = draft[region].culture
        draft.call(number, draft.names.place("town", town.culture, rolls))
        people = rolls.between(9, 99) * 10 ** rolls.between(2, 3) + rolls.between(1, 9) * 10
        town.values |= {"region": region, "population": people, "charter": rolls.between(1120, 1690)}
        if rolls.chance(0.75):
            town.values["craft"] = rolls.pick(lex.CRAFTS)
        if capital:
            draft[region].values["capital"] = number


def waters(draft: Draft) -> None:
    """Each river ends at a town of its own; six in ten of the other towns lie on a river."""
    mouths = draft.links(0).shuffled(draft.of["town"])
    for number, town in zip(draft.of["river"], mouths, strict=False):
        draft[number].values["mouth"] = town
        draft[town].values["river"] = number
    for number in draft.of["town"]:
        rolls = draft.links(number)
        if "river" not in draft[number].values and rolls.chance(0.6):
            draft[number].values["river"] = rolls.pick(draft.of["river"])


def schools(draft: Draft) -> None:
    """Every other one is old enough for the first people born."""
    for order, number in enumerate(draft.of["school"]):
        rolls, school = draft.own(number), draft[number]
        draft.call(number, draft.names.school(rolls))
        school.year = rolls.between(1580, 1780 if order % 2 == 0 else 1930)
        town, badge = rolls.pick(draft.of["town"]), rolls.pick(lex.EMBLEMS)
        school.values |= {"campus": town, "opened": school.year, "badge": badge}


NOW = 2018


def companies(draft: Draft) -> None:
    """A company has one founder at most and a person founds one at most; some belong to an older company."""
    trade = [i for i in draft.of["person"] if draft[i].noun in lex.FOUNDERS and draft[i].year + 25 <= NOW]
    founders = draft.links(1).shuffled(trade)
    for order, number in enumerate(draft.of["company"]):
        rolls, company = draft.own(number), draft[number]
        publisher = order == 0 or rolls.chance(0.25)
        draft.call(number, draft.names.company(publisher, rolls))
        company.year = rolls.between(1780, 1990)
        if order < len(founders):
            born = draft[founders[order]].year
            company.year = rolls.between(born + 22, min(NOW, born + 55))
            _state(draft, number, "founder", founders[order], "company", rolls.chance(0.4))
        company.values |= {"founded": company.year, "headquarters": rolls.pick(draft.of["town"])}
        company.values["product"] = rolls.pick(lex.PUBLISHING if publisher else lex.PRODUCTS)
    owners = ByYear(draft, draft.of["company"])
    for number in draft.of["company"]:
        rolls = draft.links(number)
        if rolls.chance(0.3):
            draft.link(number, "parent", owners.pick(rolls, 0, draft[number].year - 1))


def works(draft: Draft) -> None:
    """Their sort follows from the creator's profession."""
    people = ByYear(draft, draft.of["person"])
    makers = [i for i in draft.of["person"] if draft[i].noun in lex.FORMS]
    printers = [i for i in draft.of["company"] if draft[i].values["product"] in lex.PUBLISHING]
    publishers = ByYear(draft, printers)
    for number in draft.of["work"]:
        rolls, work = draft.own(number), draft[number]
        creator = rolls.pick(makers)
        draft.call(number, draft.names.work(rolls))
        work.noun, forms = lex.FORMS[draft[creator].noun]
        _made(draft, number, "creator", creator, "masterpiece", rolls)
        work.values |= {"year": work.year, "form": rolls.pick(forms)}
        if work.noun in ("novel", "play", "picture", "book") and rolls.chance(0.75):
            work.values["setting"] = rolls.pick(draft.of["town"])
        if work.noun != "picture":
            draft.link(number, "publisher", publishers.pick(rolls, 0, work.year))
        if rolls.chance(0.4):
            draft.link(number, "dedicatee", people.pick(rolls, work.year - 70, work.year - 5, {creator}))


def landmarks(draft: Draft) -> None:
    """Designed by architects; half of them were paid for by a company."""
    architects = [i for i in draft.of["person"] if draft[i].noun == "architect"]
    patrons = ByYear(draft, draft.of["company"])
    for number in draft.of["landmark"]:
        rolls, landmark = draft.own(number), draft[number]
        structure = rolls.pick(lex.STRUCTURES)
        name = draft.names.landmark(structure, rolls)
        draft.call(number, name, f"the {name}" if structure in lex.ARTICLED else name)
        landmark.noun = structure.lower()
        _made(draft, number, "architect", rolls.pick(architects), "design", rolls)
        landmark.values |= {"completed": landmark.year, "material": rolls.pick(lex.MATERIALS)}
        landmark.values["site"] = rolls.pick(draft.of["town"])
        if rolls.chance(0.5):
            draft.link(number, "patron", patrons.pick(rolls, 0, landmark.year - 1))


def _made(draft: Draft, number: int, relation: str, maker: int, best: str, rolls: Dice) -> None:
    """Date a thing in its maker's working life; as the maker's best, the maker's document tells of it."""
    born = draft[maker].year
    draft[number].year = rolls.between(born + 24, min(NOW, born + 66))
    told_by_maker = best not in draft[maker].values and rolls.chance(0.35)
    _state(draft, number, relation, maker, best, told_by_maker)


def _state(draft: Draft, number: int, relation: str, maker: int, inverse: str, told_by_maker: bool) -> None:
    if told_by_maker:
        draft.link(maker, inverse, number)
    else:
        draft.link(number, relation, maker)


def build(entities: int, split: str, seed: int) -> Facts:
    """The fact table; `entities` and `split` as `generate` checks them."""
    kinds = dice(seed, split, 0, LAYOUT).shuffled(_kinds(entities))
    draft = Draft(kinds, split, seed)
    for step in (
        regions,
        rivers,
        towns,
        waters,
        schools,
        persons,
        companies,
        careers,
        offices,
        works,
        landmarks,
    ):
        step(draft)
    return draft.facts


def _kinds(entities: int) -> list[str]:
    """The kind of every entity, unshuffled: at least one of each, persons taking what rounding leaves."""
    counts = {kind: max(1, int(share * entities)) for kind, share in SHARES.items()}
    counts["person"] += entities - sum(counts.values())
    return [kind for kind, count in counts.items() for _ in range(count)]
