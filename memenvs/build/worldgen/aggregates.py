"""Questions over many documents of a world at once: counts, extremes, sums and the most common value.

In the kind of CorpusQA, the benchmark of InfoMem that aggregates over a corpus and is not public. The answer
is computed from the facts, and every document that it needs is marked: it holds in any text with these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Literal, get_args

from memenvs.build.examples import Example
from memenvs.build.worldgen.lexicon import COMMON, CONDITIONS, EXTREMES, PLURALS, RELATIONS, SUMS
from memenvs.build.worldgen.names import AGGREGATE, Dice, FactTable, Value, dice
from memenvs.build.worldgen.prose import Document
from memenvs.build.worldgen.questions import accepted, names_of, said

Operation = Literal["count", "extreme", "sum", "common"]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
MOST_EVIDENCE = 64  # documents
LEAST_GROUP = 2  # members; an extreme and a sum are of one more
TRIES = 2000  # draws of a question before the world is said to hold no more
_INVERSES = (("masterpiece", "creator"), ("design", "architect"), ("company", "founder"))

Stated = tuple[int, str]  # the entity whose document states a fact, and by which relation


class Memberships:
    """The entities of a world by their values, and which document states each.

    Who made a thing is stated in its document or in its maker's; here it is a fact of the thing either way.
    """

    def __init__(self, facts: FactTable) -> None:
        self.facts = facts
        self.values: dict[str, dict[int, Value]] = {name: {} for name in RELATIONS}
        self._told: dict[tuple[str, int], Stated] = {}
        for number, entity in enumerate(facts.entities):
            for name, value in entity.values.items():
                self.values[name][number] = value
        for of_maker, of_thing in _INVERSES:
            for maker, thing in self.values[of_maker].items():
                self.values[of_thing][int(thing)] = maker
                self._told[of_thing, int(thing)] = maker, of_maker
        self._holders: dict[str, dict[Value, list[int]]] = {}
        for name in CONDITIONS:
            index = self._holders[name] = {}
            for number in sorted(self.values[name]):
                index.setdefault(self.values[name][number], []).append(number)

    def holders(self, relation: str, value: Value) -> list[int]:
        """The entities with a value, ascending."""
        return self._holders[relation].get(value, [])

    def stated(self, relation: str, entity: int) -> Stated:
        """Where a fact is stated."""
        return self._told.get((relation, entity), (entity, relation))


class Aggregates:
    """Draws the questions of one world, none twice.

    Args:
        facts: of the world.
        documents: that state them, in the same order.
        operations: of `OPERATIONS`, asked in turn.
    """

    def __init__(self, facts: FactTable, documents: Sequence[Document], operations: Sequence[str]) -> None:
        self._groups, self._facts, self._documents = Memberships(facts), facts, documents
        self._operations = operations
        self._asked: set[Hashable] = set()
        self._known: dict[str, list[int]] = {}

    def ask(self, count: int, split: str, seed: int) -> Iterator[Example]:
        """The first `count` questions.

        Raises:
            ValueError: the world holds fewer.
        """
        for item in range(count):
            rolls = dice(seed, split, item, AGGREGATE)
            drawn = (
                self._draw_question(self._operations[item % len(self._operations)], rolls)
                for _ in range(TRIES)
            )
            found = next((example for example in drawn if example), None)
            if found is None:
                raise ValueError(
                    f"{count} questions are more than this world of {len(self._documents)} documents holds; "
                    f"ask for at most {item}, or for more documents"
                )
            question, answers, stated, meta = found
            yield self._example(f"aggregate-{split}-{item}", question, answers, stated, meta)

    def _draw_question(
        self, operation: str, rolls: Dice
    ) -> tuple[str, tuple[str, ...], list[Stated], dict[str, object]] | None:
        """A question, its answers, where its facts are stated, its meta; None where the draw gives none."""
        relation = rolls.pick(tuple(CONDITIONS))
        hops = 1 + rolls.chance(0.5)
        group = self._group(relation, hops, rolls)
        if group is None:
            return None
        words, members, stated, path = group
        of_kind = [name for name, schema in RELATIONS.items() if schema.domain == RELATIONS[relation].domain]
        by, order = "", ""
        if operation == "count":
            question = f"How many {words} do the documents tell of?"
            answers: tuple[str, ...] = (str(len(members)),)
        else:
            named = {"extreme": [*EXTREMES], "sum": [*SUMS], "common": [*COMMON]}[operation]
            options = [name for name in of_kind if name in named and name != relation]
            if not options or len(members) <= LEAST_GROUP:
                return None
            by = rolls.pick(options)
            values = [self._groups.values[by].get(member) for member in members]
            known = [value for value in values if value is not None]
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
            stated += [
                self._groups.stated(by, member)
                for member, value in zip(members, values, strict=True)
                if value is not None
            ]
        if len({number for number, _ in stated}) > MOST_EVIDENCE:
            return None
        if (key := (operation, by, order, path)) in self._asked or any(
            said(one, question) for one in answers
        ):
            return None
        self._asked.add(key)
        return question, answers, stated, {"type": operation, "hops": hops, "members": len(members)}

    def _group(
        self, relation: str, hops: int, rolls: Dice
    ) -> tuple[str, list[int], list[Stated], Hashable] | None:
        """What a group is called, its members, where it is stated that they are, and what tells it apart.

        With two hops the members' value is not named but described by a value of its own.
        """
        groups, schema = self._groups, RELATIONS[relation]
        if not groups.values[relation]:
            return None
        value, second = groups.values[relation][rolls.pick(self._facts_of(relation))], ""
        means, end = [value], value
        x = self._facts.shown(relation, value)
        if hops == 2:
            further = [name for name in CONDITIONS if RELATIONS[name].domain == schema.range]
            further = [name for name in further if int(value) in groups.values[name]]
            if not further:
                return None
            second = rolls.pick(further)
            end = groups.values[second][int(value)]
            means = list[Value](groups.holders(second, end))
            x = f"a {schema.range} {CONDITIONS[second][0].format(x=self._facts.shown(second, end))}"
        members: list[int] = []
        for mean in means:
            members += groups.holders(relation, mean)
            if len(members) > MOST_EVIDENCE:
                return None
        members.sort()
        if not LEAST_GROUP <= len(members) <= MOST_EVIDENCE:
            return None
        stated: list[Stated] = []
        for member in members:
            if second:
                stated.append(groups.stated(second, int(groups.values[relation][member])))
            stated.append(groups.stated(relation, member))
        words = f"{PLURALS[schema.domain]} {CONDITIONS[relation][1].format(x=x)}"
        return words, members, stated, (relation, second, end)

    def _facts_of(self, relation: str) -> list[int]:
        """The entities that have a value of a relation."""
        return self._known.setdefault(relation, sorted(self._groups.values[relation]))

    def _example(
        self,
        name: str,
        question: str,
        answers: tuple[str, ...],
        stated: Sequence[Stated],
        meta: dict[str, object],
    ) -> Example:
        numbers = list(dict.fromkeys(number for number, _ in stated))
        place = {number: i for i, number in enumerate(numbers)}
        spans = dict.fromkeys((place[number], *self._documents[number].spans[by]) for number, by in stated)
        paragraphs = tuple(
            (self._documents[number].title, self._documents[number].text) for number in numbers
        )
        return Example(
            name, question, answers, paragraphs, tuple(range(len(numbers))), tuple(sorted(spans)), meta
        )
