"""Steps of the chronicle about what people made in their lifetime: companies, works and landmarks.

Who made a thing is stated once, in its own document or in its maker's; both would spare a reader a hop.
"""

from __future__ import annotations

from memenvs.build.worldgen import lexicon as lex
from memenvs.build.worldgen.draft import ByYear, Draft
from memenvs.build.worldgen.draws import Dice

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
