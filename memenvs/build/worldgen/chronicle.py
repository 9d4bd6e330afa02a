"""The facts of an invented world.

Who made a thing is stated once, in its own document or in its maker's: in both, it would save a reader a hop.

Time runs one way: a school is older than its pupils, a teacher than the pupil; makers are adults.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Sequence

from memenvs.build.worldgen import lexicon as lex
from memenvs.build.worldgen.lexicon import KINDS, SHARES
from memenvs.build.worldgen.names import ENTITY, LAYOUT, LINKS, Dice, Entity, FactTable, NameBook, dice

BORN = (1800, 1985)  # years of birth, the first and the last
OFFICE = 1946  # who was born from this year on may hold an office today
NOW = 2018


class Chronicle:
    """Entities by kind, still nameless at first; each draws from two streams, its own and its links'."""

    def __init__(self, kinds: Sequence[str], split: str, seed: int):
        self.seed = seed
        self.names = NameBook(split)
        self.facts = FactTable([Entity(kind, noun=kind) for kind in kinds])
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

    def __init__(self, world: Chronicle, numbers: Iterable[int]):
        self._order = sorted(numbers, key=lambda i: (world[i].year, i))
        self._years = [world[i].year for i in self._order]

    def pick(self, rolls: Dice, low: int, high: int, avoid: Container[int] = ()) -> int | None:
        """One from [low, high] that is not in `avoid`; None where a dozen draws find none."""
        start, stop = bisect_left(self._years, low), bisect_right(self._years, high)
        for _ in range(12 if start < stop else 0):
            drawn = self._order[rolls.between(start, stop - 1)]
            if drawn not in avoid:
                return drawn
        return None


def persons(world: Chronicle) -> None:
    """The first six have the trades without which a small world would lack a kind of fact."""
    for order, number in enumerate(world.of["person"]):
        rolls, person = world.own(number), world[number]
        core = order < len(lex.CORE)
        birthplace = rolls.pick(world.of["town"])
        person.culture = world[birthplace].culture
        person.pronoun = rolls.pick(("she", "he"))
        name, family = world.names.person(person.culture, person.pronoun, rolls)
        world.call(number, name, short=family)
        person.noun = lex.CORE[order] if core else rolls.pick(lex.PROFESSIONS)
        person.year = rolls.between(BORN[0], OFFICE - 30 if core else BORN[1])
        person.values |= {"birthplace": birthplace, "born": person.year, "profession": person.noun}


def careers(world: Chronicle) -> None:
    """School, teacher, employer and instrument; founders employ themselves."""
    schools, people = ByYear(world, world.of["school"]), ByYear(world, world.of["person"])
    companies = ByYear(world, world.of["company"])
    founders = {i for i in world.of["person"] if "company" in world[i].values}
    founders |= {int(world[i].values.get("founder", -1)) for i in world.of["company"]}
    for number in world.of["person"]:
        rolls, person = world.links(number), world[number]
        if rolls.chance(0.85):
            world.link(number, "school", schools.pick(rolls, 0, person.year + 8))
        if rolls.chance(0.3):
            world.link(number, "mentor", people.pick(rolls, person.year - 45, person.year - 18))
        if number not in founders and rolls.chance(0.4):
            world.link(number, "employer", companies.pick(rolls, 0, person.year + 20))
        if rolls.chance(0.22):
            person.values["instrument"] = rolls.pick(lex.INSTRUMENTS)


def offices(world: Chronicle) -> None:
    """Mayors and heads of schools are alive and hold one office; surveyors are of the trade."""
    people = ByYear(world, world.of["person"])
    surveyors = ByYear(world, [i for i in world.of["person"] if world[i].noun in lex.SURVEYORS])
    busy: set[int] = set()
    for kind, relation in (("town", "mayor"), ("school", "head")):
        for number in world.of[kind]:
            holder = people.pick(world.links(number), OFFICE, BORN[1], busy)
            world.link(number, relation, holder)
            busy |= {holder} if holder is not None else set()
    for number in world.of["river"]:
        world.link(number, "surveyor", surveyors.pick(world.links(number), *BORN))


def regions(world: Chronicle) -> None:
    """Each has a culture, which the names of its towns, rivers and people follow."""
    for order, number in enumerate(world.of["region"]):
        rolls, region = world.own(number), world[number]
        region.culture = (order + world.seed) % len(lex.CULTURES)
        world.call(number, world.names.place("region", region.culture, rolls))
        region.values |= {
            "produce": rolls.pick(lex.PRODUCE),
            "area": rolls.between(60, 990) * 10,
            "emblem": rolls.pick(lex.EMBLEMS),
        }


def rivers(world: Chronicle) -> None:
    """Each rises in a region."""
    for number in world.of["river"]:
        rolls, river = world.own(number), world[number]
        source = rolls.pick(world.of["region"])
        river.culture = world[source].culture
        name = world.names.place("river", river.culture, rolls)
        world.call(number, name, f"the {name}", name.split()[1])
        river.values |= {"source": source, "length": rolls.between(38, 940)}


def towns(world: Chronicle) -> None:
    """Each lies in a region; the first of a region is its capital."""
    everywhere = world.of["region"]
    for order, number in enumerate(world.of["town"]):
        rolls, town = world.own(number), world[number]
        capital = order < len(everywhere)
        region = everywhere[order] if capital else rolls.pick(everywhere)
        town.culture = world[region].culture
        world.call(number, world.names.place("town", town.culture, rolls))
        people = rolls.between(9, 99) * 10 ** rolls.between(2, 3) + rolls.between(1, 9) * 10
        town.values |= {"region": region, "population": people, "charter": rolls.between(1120, 1690)}
        if rolls.chance(0.75):
            town.values["craft"] = rolls.pick(lex.CRAFTS)
        if capital:
            world[region].values["capital"] = number


def waters(world: Chronicle) -> None:
    """Each river ends at a town of its own; six in ten of the other towns lie on a river."""
    mouths = world.links(0).shuffled(world.of["town"])
    for number, town in zip(world.of["river"], mouths, strict=False):
        world[number].values["mouth"] = town
        world[town].values["river"] = number
    for number in world.of["town"]:
        rolls = world.links(number)
        if "river" not in world[number].values and rolls.chance(0.6):
            world[number].values["river"] = rolls.pick(world.of["river"])


def schools(world: Chronicle) -> None:
    """Every other one is old enough for the first people born."""
    for order, number in enumerate(world.of["school"]):
        rolls, school = world.own(number), world[number]
        world.call(number, f"{world.names.house(rolls)} {rolls.pick(lex.SCHOOLS)}")
        school.year = rolls.between(1580, 1780 if order % 2 == 0 else 1930)
        town, badge = rolls.pick(world.of["town"]), rolls.pick(lex.EMBLEMS)
        school.values |= {"campus": town, "opened": school.year, "badge": badge}


def companies(world: Chronicle) -> None:
    """A company has one founder at most and a person founds one at most; some belong to an older company."""
    trade = [i for i in world.of["person"] if world[i].noun in lex.FOUNDERS and world[i].year + 25 <= NOW]
    founders = world.links(1).shuffled(trade)
    for order, number in enumerate(world.of["company"]):
        rolls, company = world.own(number), world[number]
        publisher = order == 0 or rolls.chance(0.25)
        world.call(number, world.names.company(publisher, rolls))
        company.year = rolls.between(1780, 1990)
        if order < len(founders):
            born = world[founders[order]].year
            company.year = rolls.between(born + 22, min(NOW, born + 55))
            if rolls.chance(0.4):
                world.link(founders[order], "company", number)
            else:
                world.link(number, "founder", founders[order])
        company.values |= {"founded": company.year, "headquarters": rolls.pick(world.of["town"])}
        company.values["product"] = rolls.pick(lex.PUBLISHING if publisher else lex.PRODUCTS)
    owners = ByYear(world, world.of["company"])
    for number in world.of["company"]:
        rolls = world.links(number)
        if rolls.chance(0.3):
            world.link(number, "parent", owners.pick(rolls, 0, world[number].year - 1))


def works(world: Chronicle) -> None:
    """Their sort follows from the creator's profession."""
    people = ByYear(world, world.of["person"])
    makers = [i for i in world.of["person"] if world[i].noun in lex.FORMS]
    printers = [i for i in world.of["company"] if world[i].values["product"] in lex.PUBLISHING]
    publishers = ByYear(world, printers)
    for number in world.of["work"]:
        rolls, work = world.own(number), world[number]
        creator = rolls.pick(makers)
        world.call(number, world.names.work(rolls))
        work.noun, forms = lex.FORMS[world[creator].noun]
        _made(world, number, "creator", creator, "masterpiece", rolls)
        work.values |= {"year": work.year, "form": rolls.pick(forms)}
        if work.noun in ("novel", "play", "picture", "book") and rolls.chance(0.75):
            work.values["setting"] = rolls.pick(world.of["town"])
        if work.noun != "picture":
            world.link(number, "publisher", publishers.pick(rolls, 0, work.year))
        if rolls.chance(0.4):
            world.link(number, "dedicatee", people.pick(rolls, work.year - 70, work.year - 5, {creator}))


def landmarks(world: Chronicle) -> None:
    """Designed by architects; half of them were paid for by a company."""
    architects = [i for i in world.of["person"] if world[i].noun == "architect"]
    patrons = ByYear(world, world.of["company"])
    for number in world.of["landmark"]:
        rolls, landmark = world.own(number), world[number]
        structure = rolls.pick(lex.STRUCTURES)
        name = f"{world.names.house(rolls)} {structure}"
        world.call(number, name, f"the {name}" if structure in lex.ARTICLED else name)
        landmark.noun = structure.lower()
        _made(world, number, "architect", rolls.pick(architects), "design", rolls)
        landmark.values |= {"completed": landmark.year, "material": rolls.pick(lex.MATERIALS)}
        landmark.values["site"] = rolls.pick(world.of["town"])
        if rolls.chance(0.5):
            world.link(number, "patron", patrons.pick(rolls, 0, landmark.year - 1))


def _made(world: Chronicle, number: int, relation: str, maker: int, best: str, rolls: Dice) -> None:
    """Date a thing in its maker's working life; if it is the maker's best, the maker's document states it."""
    born = world[maker].year
    world[number].year = rolls.between(born + 24, min(NOW, born + 66))
    if best not in world[maker].values and rolls.chance(0.35):
        world.link(maker, best, number)
    else:
        world.link(number, relation, maker)


def build(entities: int, split: str, seed: int) -> FactTable:
    """The fact table; `entities` and `split` as `generate` checks them."""
    counts = {kind: max(1, int(share * entities)) for kind, share in SHARES.items()}
    counts["person"] += entities - sum(counts.values())  # what rounding leaves
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    world = Chronicle(dice(seed, split, 0, LAYOUT).shuffled(kinds), split, seed)
    steps = (regions, rivers, towns, waters, schools, persons, companies, careers, offices, works, landmarks)
    for step in steps:
        step(world)
    return world.facts
