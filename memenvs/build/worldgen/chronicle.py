"""From (entities, split, seed) to a world's fact table: places first, then people, then what people made.

Time runs one way: a school is older than its pupils, a teacher than the pupil, a founder or author is an adult.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable

from memenvs.build.worldgen import lexicon as lex
from memenvs.build.worldgen.draws import ENTITY, LAYOUT, LINKS, Dice, dice
from memenvs.build.worldgen.facts import Entity, Facts
from memenvs.build.worldgen.names import NameBook
from memenvs.build.worldgen.schema import KINDS, SHARES

LIVING = 1946  # born from this year on: may hold an office today
BORN = (1800, 1985)
NOW = 2018


def build(entities: int, split: str, seed: int) -> Facts:
    """The fact table; `entities` >= 20 and `split` as `generate` checks them."""
    return _Chronicle(entities, split, seed).facts


class _ByYear:
    """Entities in order of their year, to draw one from a span of years."""

    def __init__(self, facts: Facts, numbers: Iterable[int]):
        self._order = sorted(numbers, key=lambda i: (facts.entities[i].year, i))
        self._years = [facts.entities[i].year for i in self._order]

    def pick(self, rolls: Dice, low: int, high: int, avoid: Container[int] = ()) -> int | None:
        """One from [low, high] that is not in `avoid`; None where a dozen draws find none."""
        start, stop = bisect_left(self._years, low), bisect_right(self._years, high)
        for _ in range(12 if start < stop else 0):
            found = self._order[rolls.between(start, stop - 1)]
            if found not in avoid:
                return found
        return None


class _Chronicle:
    """Builds the table kind by kind; each entity draws from its own two streams (itself, then its links)."""

    def __init__(self, entities: int, split: str, seed: int):
        self._seed, self._split = seed, split
        self._names = NameBook(split)
        kinds = dice(seed, split, 0, LAYOUT).shuffled(_kinds(entities))
        self.facts = Facts([Entity(kind, noun=kind) for kind in kinds])
        self._of = {kind: self.facts.of_kind(kind) for kind in KINDS}
        self._places()
        self._schools()
        self._persons()
        self._companies()
        self._careers()
        self._offices()
        self._works()
        self._landmarks()

    def _roll(self, number: int, stage: int = ENTITY) -> Dice:
        return dice(self._seed, self._split, number, stage)

    def _call(self, number: int, name: str, shown: str = "", short: str = "") -> None:
        entity = self.facts.entities[number]
        entity.name, entity.shown, entity.short = name, shown or name, short or name

    def _places(self) -> None:
        everything, regions, rivers = self.facts.entities, self._of["region"], self._of["river"]
        for order, number in enumerate(regions):
            rolls, region = self._roll(number), everything[number]
            region.culture = (order + self._seed) % len(lex.CULTURES)
            self._call(number, self._names.place("region", region.culture, rolls))
            region.values |= {
                "produce": rolls.pick(lex.PRODUCE),
                "area": rolls.between(60, 990) * 10,
                "emblem": rolls.pick(lex.EMBLEMS),
            }
        for number in rivers:
            rolls, river = self._roll(number), everything[number]
            source = rolls.pick(regions)
            river.culture = everything[source].culture
            name = self._names.place("river", river.culture, rolls)
            self._call(number, name, f"the {name}", name.split()[1])
            river.values |= {"source": source, "length": rolls.between(38, 940)}
        for order, number in enumerate(self._of["town"]):
            self._town(number, regions[order] if order < len(regions) else None)
        self._waters()

    def _town(self, number: int, region: int | None) -> None:
        """A town; the first of each region is its capital."""
        rolls, town = self._roll(number), self.facts.entities[number]
        place = rolls.pick(self._of["region"]) if region is None else region
        town.culture = self.facts.entities[place].culture
        self._call(number, self._names.place("town", town.culture, rolls))
        people = rolls.between(9, 99) * 10 ** rolls.between(2, 3) + rolls.between(1, 9) * 10
        town.values |= {"region": place, "population": people, "charter": rolls.between(1120, 1690)}
        if rolls.chance(0.75):
            town.values["craft"] = rolls.pick(lex.CRAFTS)
        if region is not None:
            self.facts.entities[region].values["capital"] = number

    def _waters(self) -> None:
        """Each river ends at a town of its own; six in ten of the others lie on a river."""
        everything, mouths = self.facts.entities, self._roll(0, LINKS).shuffled(self._of["town"])
        for number, town in zip(self._of["river"], mouths, strict=False):
            everything[number].values["mouth"] = town
            everything[town].values["river"] = number
        for number in self._of["town"]:
            rolls = self._roll(number, LINKS)
            if "river" not in everything[number].values and rolls.chance(0.6):
                everything[number].values["river"] = rolls.pick(self._of["river"])

    def _schools(self) -> None:
        for order, number in enumerate(self._of["school"]):
            rolls, school = self._roll(number), self.facts.entities[number]
            self._call(number, self._names.school(rolls))
            school.year = rolls.between(1580, 1780 if order % 2 == 0 else 1930)
            town, badge = rolls.pick(self._of["town"]), rolls.pick(lex.EMBLEMS)
            school.values |= {"campus": town, "opened": school.year, "badge": badge}

    def _persons(self) -> None:
        for order, number in enumerate(self._of["person"]):
            rolls, person = self._roll(number), self.facts.entities[number]
            birthplace = rolls.pick(self._of["town"])
            person.culture = self.facts.entities[birthplace].culture
            person.pronoun = rolls.pick(("she", "he"))
            name, family = self._names.person(person.culture, person.pronoun, rolls)
            self._call(number, name, short=family)
            person.noun = lex.CORE[order] if order < len(lex.CORE) else rolls.pick(lex.PROFESSIONS)
            person.year = (
                rolls.between(BORN[0], LIVING - 30) if order < len(lex.CORE) else rolls.between(*BORN)
            )
            person.values |= {"birthplace": birthplace, "born": person.year, "profession": person.noun}

    def _companies(self) -> None:
        """Each has at most one founder, each person founds at most one; four founders in ten tell it."""
        everything = self.facts.entities
        founders = [i for i in self._of["person"] if everything[i].noun in lex.FOUNDERS]
        founders = [i for i in self._roll(1, LINKS).shuffled(founders) if everything[i].year + 25 <= NOW]
        for order, number in enumerate(self._of["company"]):
            rolls, company = self._roll(number), everything[number]
            publisher = order == 0 or rolls.chance(0.25)
            self._call(number, self._names.company(publisher, rolls))
            company.year = rolls.between(1780, 1990)
            if order < len(founders):
                founder = founders[order]
                born = everything[founder].year
                company.year = rolls.between(born + 22, min(NOW, born + 55))
                told_by_founder = rolls.chance(0.4)
                teller, relation = (founder, "company") if told_by_founder else (number, "founder")
                everything[teller].values[relation] = number if told_by_founder else founder
            company.values |= {"founded": company.year, "headquarters": rolls.pick(self._of["town"])}
            company.values["product"] = rolls.pick(lex.PUBLISHING if publisher else lex.PRODUCTS)
        owners = _ByYear(self.facts, self._of["company"])
        for number in self._of["company"]:
            rolls = self._roll(number, LINKS)
            if rolls.chance(0.3):
                self._link(number, "parent", owners.pick(rolls, 0, everything[number].year - 1))

    def _link(self, number: int, relation: str, value: int | None) -> None:
        if value is not None:
            self.facts.entities[number].values[relation] = value

    def _careers(self) -> None:
        """School, teacher, employer and instrument."""
        schools = _ByYear(self.facts, self._of["school"])
        people = _ByYear(self.facts, self._of["person"])
        companies = _ByYear(self.facts, self._of["company"])
        founded = {i for i in self._of["person"] if "company" in self.facts.entities[i].values}
        founded |= {int(e.values["founder"]) for e in self.facts.entities if "founder" in e.values}
        for number in self._of["person"]:
            rolls, person = self._roll(number, LINKS), self.facts.entities[number]
            if rolls.chance(0.85):
                self._link(number, "school", schools.pick(rolls, 0, person.year + 8))
            if rolls.chance(0.3):
                self._link(number, "mentor", people.pick(rolls, person.year - 45, person.year - 18))
            if number not in founded and rolls.chance(0.4):
                self._link(number, "employer", companies.pick(rolls, 0, person.year + 20))
            if rolls.chance(0.22):
                person.values["instrument"] = rolls.pick(lex.INSTRUMENTS)

    def _offices(self) -> None:
        """Mayors and heads of schools are alive and hold one office; surveyors are of the trade."""
        everything, people = self.facts.entities, self._of["person"]
        living = _ByYear(self.facts, people)
        surveyors = _ByYear(self.facts, [i for i in people if everything[i].noun in lex.SURVEYORS])
        busy: set[int] = set()
        for kind, relation in (("town", "mayor"), ("school", "head")):
            for number in self._of[kind]:
                holder = living.pick(self._roll(number, LINKS), LIVING, BORN[1], busy)
                self._link(number, relation, holder)
                busy.add(-1 if holder is None else holder)
        for number in self._of["river"]:
            self._link(number, "surveyor", surveyors.pick(self._roll(number, LINKS), *BORN))

    def _works(self) -> None:
        everything, people = self.facts.entities, _ByYear(self.facts, self._of["person"])
        makers = [i for i in self._of["person"] if everything[i].noun in lex.FORMS]
        companies = self._of["company"]
        printers = _ByYear(
            self.facts, [i for i in companies if everything[i].values["product"] in lex.PUBLISHING]
        )
        for number in self._of["work"]:
            rolls, work = self._roll(number), everything[number]
            creator = rolls.pick(makers)
            self._call(number, self._names.work(rolls))
            work.noun, forms = lex.FORMS[everything[creator].noun]
            self._made(number, "creator", creator, "masterpiece", rolls)
            work.values |= {"year": work.year, "form": rolls.pick(forms)}
            if work.noun in ("novel", "play", "painting", "book") and rolls.chance(0.75):
                work.values["setting"] = rolls.pick(self._of["town"])
            if work.noun != "painting":
                self._link(number, "publisher", printers.pick(rolls, 0, work.year))
            if rolls.chance(0.4):
                friend = people.pick(rolls, work.year - 70, work.year - 5, {creator})
                self._link(number, "dedicatee", friend)

    def _landmarks(self) -> None:
        everything = self.facts.entities
        architects = [i for i in self._of["person"] if everything[i].noun == "architect"]
        companies = _ByYear(self.facts, self._of["company"])
        for number in self._of["landmark"]:
            rolls, landmark = self._roll(number), everything[number]
            structure = rolls.pick(lex.STRUCTURES)
            name = self._names.landmark(structure, rolls)
            self._call(number, name, f"the {name}" if structure in lex.ARTICLED else name)
            landmark.noun = structure.lower()
            self._made(number, "architect", rolls.pick(architects), "design", rolls)
            landmark.values |= {"completed": landmark.year, "material": rolls.pick(lex.MATERIALS)}
            landmark.values["site"] = rolls.pick(self._of["town"])
            if rolls.chance(0.5):
                self._link(number, "patron", companies.pick(rolls, 0, landmark.year - 1))

    def _made(self, number: int, relation: str, maker: int, best: str, rolls: Dice) -> None:
        """Date a thing in its maker's working life, and state its maker once: here, or as the maker's best."""
        born = self.facts.entities[maker].year
        self.facts.entities[number].year = rolls.between(born + 24, min(NOW, born + 66))
        told_by_maker = best not in self.facts.entities[maker].values and rolls.chance(0.35)
        teller, fact, value = (maker, best, number) if told_by_maker else (number, relation, maker)
        self.facts.entities[teller].values[fact] = value


def _kinds(entities: int) -> list[str]:
    """The kind of every entity, unshuffled: at least one of each, persons taking what rounding leaves."""
    counts = {kind: max(1, int(share * entities)) for kind, share in SHARES.items()}
    counts["person"] += entities - sum(counts.values())
    return [kind for kind, count in counts.items() for _ in range(count)]
