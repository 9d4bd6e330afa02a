"""The logical form of a question, and its value over every fact of a world."""

from __future__ import annotations

from dataclasses import dataclass

from memenvs.build.worldgen.facts import Facts, Value
from memenvs.build.worldgen.schema import RELATIONS


@dataclass(frozen=True)
class Chain:
    """The entities of `kind` that meet every condition of `where`, then one relation after another.

    A condition is ("name", the name) or (relation, value); the first should be the rarest.
    """

    kind: str
    where: tuple[tuple[str, Value], ...]
    path: tuple[str, ...]

    def start(self, facts: Facts) -> list[int]:
        """Every entity that meets the conditions; a question needs exactly one."""
        found = [i for i in facts.holders(*self.where[0]) if facts.entities[i].kind == self.kind]
        return [
            i for i in found if all(facts.value(i, relation) == value for relation, value in self.where[1:])
        ]

    def trail(self, facts: Facts) -> list[set[Value]]:
        """What each step reaches: the start, then the values of each relation; len(path) + 1 sets."""
        reached: list[set[Value]] = [set(self.start(facts))]
        for relation in self.path:
            values = (facts.value(int(entity), relation) for entity in reached[-1])
            reached.append({value for value in values if value is not None})
        return reached


@dataclass(frozen=True)
class Comparison:
    """Two entities of a kind held against each other in one relation.

    `order` "least" or "most" picks the entity with the smaller or larger value, then `ask` (a relation of the
    one picked, or "" for itself); order "same" asks whether both values are equal.
    """

    relation: str
    left: int
    right: int
    order: str
    ask: str = ""

    def winner(self, facts: Facts) -> int | None:
        """The entity picked; None on a tie, a missing value, or two entities of unlike kinds."""
        pair = [(facts.value(i, self.relation), i) for i in (self.left, self.right)]
        low, high = sorted((int(value), i) for value, i in pair if value is not None) or [(0, 0)] * 2
        alike = all(facts.entities[i].kind == RELATIONS[self.relation].domain for _, i in pair)
        if any(value is None for value, _ in pair) or low[0] == high[0] or not alike:
            return None
        return low[1] if self.order == "least" else high[1]
