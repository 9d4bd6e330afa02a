"""The fact table while it is built, with what every step of the building needs at hand."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Container, Iterable, Sequence

from memenvs.build.worldgen.draws import ENTITY, LINKS, Dice, dice
from memenvs.build.worldgen.facts import Entity, Facts
from memenvs.build.worldgen.names import NameBook
from memenvs.build.worldgen.schema import KINDS


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
