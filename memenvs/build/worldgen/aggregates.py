"""Questions over many documents of a world at once: counts, extremes, sums and the most common value.

In the kind of CorpusQA (`memenvs build corpusqa`), InfoMem's benchmark of aggregation over a corpus. The
answer is computed from the facts, and every document that it needs is marked. It holds in any text with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from memenvs.build.contexts import Example
from memenvs.build.worldgen.lexicon import COMMON, CONDITIONS, EXTREMES, PLURALS, RELATIONS, SUMS
from memenvs.build.worldgen.names import AGGREGATE, Dice, FactTable, Value, dice
from memenvs.build.worldgen.prose import Page
from memenvs.build.worldgen.questions import accepted, names_of, said

Operation = Literal["count", "extreme", "sum", "common"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
MOST_EVIDENCE = 64  # documents
LEAST_GROUP = 2  # members; an extreme and a sum are of one more
TRIES = 2000  # draws of a question before the world is said to hold no more
_INVERSES = (("masterpiece", "creator"), ("design", "architect"), ("company", "founder"))

Stated = tuple[int, str]  # the entity whose document states a fact, and by which relation
Told = dict[str, dict[int, tuple[Value, Stated]]]  # by relation and entity: its value, and where it is stated


def facts_told(facts: FactTable) -> Told:
    """The facts of a world by relation and entity.

    Who made a thing is stated in its document or in its maker's; here it is a fact of the thing either way.
    """
    told: Told = {name: {} for name in RELATIONS}
    for number, entity in enumerate(facts.entities):
        for name, value in entity.values.items():
            told[name][number] = value, (number, name)
    for of_maker, of_thing in _INVERSES:
        for maker, (thing, stated) in told[of_maker].items():
            told[of_thing][int(thing)] = maker, stated
    return {name: dict(sorted(rows.items())) for name, rows in told.items()}


class EntityGroup(NamedTuple):
    """Entities with something in common; `key` tells the group from others."""

    words: str  # what they are called
    members: list[int]
    stated: list[Stated]  # that they are members
    hops: int
    key: Hashable


class Aggregates:
    """Draws the questions of one world, none twice.

    Args:
        facts: of the world.
        documents: that state them, in the same order.
        operations: of `OPERATIONS`, asked in turn.
    """

    def __init__(self, facts: FactTable, documents: Sequence[Page], operations: Sequence[str]) -> None:
        self._facts, self._documents, self._operations = facts, documents, operations
        self._told = facts_told(facts)
        self._bearers = {name: tuple(rows) for name, rows in self._told.items()}  # who has a value at all
        self._holders: dict[str, dict[Value, list[int]]] = {name: {} for name in CONDITIONS}
        for name, holders in self._holders.items():
            for number, (value, _) in self._told[name].items():
                holders.setdefault(value, []).append(number)
        self._asked: set[Hashable] = set()

    def ask(self, count: int, split: str, seed: int) -> Iterator[Example]:
        """The first `count` questions.

        Raises:
            ValueError: the world holds fewer.
        """
        for item in range(count):
            name, rolls = f"aggregate-{split}-{item}", dice(seed, split, item, AGGREGATE)
            operation = self._operations[item % len(self._operations)]
            drawn = (self._draw_question(name, operation, rolls) for _ in range(TRIES))
            example = next((candidate for candidate in drawn if candidate), None)
            if example is None:
                raise ValueError(
                    f"{count} questions are more than this world of {len(self._documents)} documents holds; "
                    f"ask for at most {item}, or for more documents"
                )
            yield example

    def _draw_question(self, name: str, operation: str, rolls: Dice) -> Example | None:
        """A question; None where the draw gives none."""
        relation = rolls.pick(tuple(CONDITIONS))
        group = self._group(relation, 1 + rolls.chance(0.5), rolls)
        if group is None:
            return None
        drawn: tuple[str, tuple[str, ...], list[Stated], tuple[str, ...]] | None
        if operation == "count":
            question = f"How many {group.words} do the documents tell of?"
            drawn = question, (str(len(group.members)),), [], ("", "")
        else:
            drawn = self._compare(operation, relation, group, rolls)
        if drawn is None:
            return None
        question, answers, stated, by = drawn
        stated = [*group.stated, *stated]
        key = (operation, *by, group.key)
        if len({number for number, _ in stated}) > MOST_EVIDENCE or key in self._asked:
            return None
        if any(said(answer, question) for answer in answers):
            return None
        self._asked.add(key)
        meta = {"type": operation, "hops": group.hops, "members": len(group.members)}
        place = {number: i for i, number in enumerate(dict.fromkeys(number for number, _ in stated))}
        spans = {(place[number], *self._documents[number].spans[by]) for number, by in stated}
        pages = [self._documents[number] for number in place]
        paragraphs = tuple((page.title, page.text) for page in pages)
        return Example(name, question, answers, paragraphs, tuple(place.values()), tuple(sorted(spans)), meta)

    def _compare(
        self, operation: str, relation: str, group: EntityGroup, rolls: Dice
    ) -> tuple[str, tuple[str, ...], list[Stated], tuple[str, ...]] | None:
        """A question about a value of each member, its answers, where they are stated, what is compared."""
        words, members, domain = group.words, group.members, RELATIONS[relation].domain
        comparable = {"extreme": [*EXTREMES], "sum": [*SUMS], "common": [*COMMON]}[operation]
        options = [
            name
            for name, schema in RELATIONS.items()
            if schema.domain == domain and name in comparable and name != relation
        ]
        if not options or len(members) <= LEAST_GROUP:
            return None
        by, order = rolls.pick(options), ""
        rows = [self._told[by][member] for member in members if member in self._told[by]]
        known, stated = [value for value, _ in rows], [place for _, place in rows]
        if operation == "common":
            ranked = Counter(known).most_common(2)
            if not ranked or ranked[0][1] < 2 or (len(ranked) > 1 and ranked[0][1] == ranked[1][1]):
                return None
            question = f"What is the most common {COMMON[by]} of the {words}?"
            answers = accepted(self._facts, by, ranked[0][0])
        elif len(known) < len(members):
            return None
        elif operation == "sum":
            question = SUMS[by].format(group=words)
            answers = accepted(self._facts, by, sum(map(int, known)))
        else:
            order = rolls.pick(("least", "most"))
            best = (min if order == "least" else max)(map(int, known))
            if known.count(best) > 1:
                return None
            question = f"Which of the {words} {EXTREMES[by][order == 'most']}?"
            answers = names_of(self._facts, members[known.index(best)])
        return question, answers, stated, (by, order)

    def _group(self, relation: str, hops: int, rolls: Dice) -> EntityGroup | None:
        """The entities with one value of a relation; None where they are too few or too many.

        With two hops the value is not named but described by one of its own values.
        """
        told, schema = self._told[relation], RELATIONS[relation]
        if not told:
            return None
        value, _ = told[rolls.pick(self._bearers[relation])]
        second, means, end = "", [value], value
        x = self._facts.shown(relation, value)
        if hops == 2:
            further = [name for name in CONDITIONS if RELATIONS[name].domain == schema.range]
            further = [name for name in further if int(value) in self._told[name]]
            if not further:
                return None
            second = rolls.pick(further)
            end, _ = self._told[second][int(value)]
            means = list[Value](self._holders[second][end])
            x = f"a {schema.range} {CONDITIONS[second][0].format(x=self._facts.shown(second, end))}"
        members: list[int] = []
        for mean in means:
            members += self._holders[relation].get(mean, [])
            if len(members) > MOST_EVIDENCE:
                return None
        if len(members) < LEAST_GROUP:
            return None
        members.sort()
        stated: list[Stated] = []
        for member in members:
            mean, place = told[member]
            stated += [self._told[second][int(mean)][1], place] if second else [place]
        words = f"{PLURALS[schema.domain]} {CONDITIONS[relation][1].format(x=x)}"
        return EntityGroup(words, members, stated, hops, (relation, second, end))
