"""Steps of the chronicle about people: their birth and trade, their careers, the offices they hold."""

from __future__ import annotations

from memenvs.build.worldgen import lexicon as lex
from memenvs.build.worldgen.draft import ByYear, Draft

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
