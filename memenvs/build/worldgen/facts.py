"""The fact table of a world: who and what there is, and the one value of each relation each entity has."""

from __future__ import annotations

from dataclasses import dataclass, field

from memenvs.build.worldgen.schema import RELATIONS

Value = int | str  # an entity number, a year, a quantity or a word


@dataclass
class Entity:
    """One entity; `values` holds exactly what its document states.

    `noun` is how a document calls it without its name ("town", "novel", "bridge"), `short` its short name,
    `shown` its name inside a sentence ("the River Orrel"), `pronoun` "she", "he" or "it".
    `year` (birth or founding) orders the world in time and is also known where no document states it.
    """

    kind: str
    name: str = ""
    shown: str = ""
    short: str = ""
    noun: str = ""
    pronoun: str = "it"
    culture: int = 0
    year: int = 0
    values: dict[str, Value] = field(default_factory=dict)


@dataclass
class Facts:
    """All entities in document order, and the two ways to look a fact up.

    Inverse look-ups are indexed on first use of a relation, so call them once the table is complete.
    """

    entities: list[Entity]
    _by_value: dict[str, dict[Value, list[int]]] = field(default_factory=dict, repr=False)

    def of_kind(self, kind: str) -> list[int]:
        """Entity numbers of one kind, ascending."""
        return [i for i, entity in enumerate(self.entities) if entity.kind == kind]

    def value(self, entity: int, relation: str) -> Value | None:
        """The value of a relation, None where the entity's document states none."""
        return self.entities[entity].values.get(relation)

    def holders(self, relation: str, value: Value) -> list[int]:
        """Every entity whose relation has this value, ascending; relation "name" looks a name up."""
        if relation not in self._by_value:
            index: dict[Value, list[int]] = {}
            for i, entity in enumerate(self.entities):
                held = entity.name if relation == "name" else entity.values.get(relation)
                if held is not None:
                    index.setdefault(held, []).append(i)
            self._by_value[relation] = index
        return self._by_value[relation].get(value, [])

    def answer(self, relation: str, value: Value) -> str:
        """The value as an answer: a name, "1893", "14,200", "212 kilometres", "slate"."""
        known = RELATIONS[relation]
        if known.links:
            return self.entities[int(value)].name
        if known.range == "number":
            return f"{value:,} {known.unit}".strip()
        return str(value)

    def shown(self, relation: str, value: Value) -> str:
        """The value inside a sentence; it always contains the answer, letter for letter."""
        if RELATIONS[relation].links:
            return self.entities[int(value)].shown
        return self.answer(relation, value)
