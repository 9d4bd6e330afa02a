"""Steps of the chronicle that lay out the land: regions, rivers, towns, the waters between them, schools."""

from __future__ import annotations

from memenvs.build.worldgen import lexicon as lex
from memenvs.build.worldgen.draft import Draft


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
