"""From a fact table to chains of relations that have exactly one answer, as bridge questions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from memenvs.build.worldgen.answers import Question, Register, accepted
from memenvs.build.worldgen.draws import Dice
from memenvs.build.worldgen.facts import Value
from memenvs.build.worldgen.forms import Chain
from memenvs.build.worldgen.lexicon import SINGLE_OUT
from memenvs.build.worldgen.phrasing import ask_chain
from memenvs.build.worldgen.schema import KINDS, RELATIONS

SINGLED_OUT = 0.35  # of the chains start from a description instead of a name, where one singles out
WEIGHTS = {  # what the answer is
    "person": 16, "town": 16, "region": 7, "river": 5, "company": 13, "school": 8, "work": 8, "landmark": 5,
    "year": 11, "word": 11, "number": 3,
}  # fmt: skip

Path = tuple[str, ...]
Where = tuple[tuple[str, Value], ...]


class Chains:
    """The chains of one length in one world: drawn by the kind of their answer, or all that are left.

    Args:
        register: the world's questions so far, and its facts.
        hops: relations a chain has.
    """

    def __init__(self, register: Register, hops: int):
        self._register, self._facts = register, register.facts
        self._of = {kind: self._facts.of_kind(kind) for kind in KINDS}
        self._paths: dict[str, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
        for path in _paths(hops):
            self._paths[RELATIONS[path[-1]].range][path[-1]].append(path)

    def draw(self, rolls: Dice) -> tuple[Chain, Question] | None:
        """One try at a chain: the kind of answer, the last relation, the rest of the path, the start."""
        by_last = self._paths[_weighted(tuple(self._paths), rolls)]
        path = rolls.pick(by_last[rolls.pick(tuple(by_last))])
        entity = rolls.pick(self._of[RELATIONS[path[0]].domain])
        singled_out = rolls.chance(SINGLED_OUT)
        where = self._conditions(entity, path, rolls) if singled_out else ()
        return self._chain(entity, path, where or self._name(entity), rolls)

    def rest(self, rolls: Dice) -> Iterator[tuple[Chain, Question]]:
        """Every chain not asked yet, its start named, in random order."""
        paths = [path for by_last in self._paths.values() for group in by_last.values() for path in group]
        for entity in rolls.shuffled(range(len(self._facts.entities))):
            for path in rolls.shuffled(paths):
                found = self._chain(entity, path, self._name(entity), rolls)
                if found:
                    yield found

    def _name(self, entity: int) -> Where:
        return (("name", self._facts.entities[entity].name),)

    def _conditions(self, entity: int, path: Path, rolls: Dice) -> Where:
        """Conditions that might single an entity out and do not state the first hop; none where unknown."""
        here = self._facts.entities[entity]
        options = [keys for keys in SINGLE_OUT[here.kind] if path[0] not in keys]
        options = [keys for keys in options if all(key in here.values for key in keys)]
        return tuple((key, here.values[key]) for key in rolls.pick(options)) if options else ()

    def _chain(self, entity: int, path: Path, where: Where, rolls: Dice) -> tuple[Chain, Question] | None:
        """A chain as a question; None where a step has not exactly one value, or it loops or repeats."""
        facts = self._facts
        if path[0] not in facts.entities[entity].values or self._register.knows((entity, path)):
            return None
        chain = Chain(facts.entities[entity].kind, where, path)
        reached = chain.trail(facts)
        if any(len(values) != 1 for values in reached):
            return None
        steps = [next(iter(values)) for values in reached]
        visited = [int(step) for step in (steps if RELATIONS[path[-1]].links else steps[:-1])]
        by_name = where[0][0] == "name"
        names = [entity] if by_name else [int(v) for key, v in where if RELATIONS[key].links]
        met = visited[1:] if by_name else visited
        if len(set(visited)) < len(visited) or not set(names).isdisjoint(met):
            return None
        asked = self._register.enter(
            (entity, path),
            ask_chain(chain, visited, facts, rolls),
            accepted(facts, path[-1], steps[-1]),
            stated=[(entity, key) for key, _ in where if key != "name"]
            + list(zip(visited, path, strict=False)),
            names=names,
            kind="bridge",
        )
        return (chain, asked) if asked else None


def _paths(hops: int) -> list[Path]:
    """Every row of relations that fit end to end, none twice in one."""
    found: list[Path] = [(name,) for name in RELATIONS]
    for _ in range(hops - 1):
        found = [
            (*path, name)
            for path in found
            for name, relation in RELATIONS.items()
            if relation.domain == RELATIONS[path[-1]].range and name not in path
        ]
    return found


def _weighted(kinds: tuple[str, ...], rolls: Dice) -> str:
    point = rolls.unit() * sum(WEIGHTS[kind] for kind in kinds)
    for kind in kinds:
        point -= WEIGHTS[kind]
        if point < 0:
            break
    return kind
