"""Questions over one fact or several, with their answers and evidence.

Item i draws its hops, form and words from its own stream: the first n do not depend on how many follow.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from memenvs.build.worldgen.lexicon import COMPARE, KINDS, RELATIONS, SAME, SINGLE_OUT
from memenvs.build.worldgen.names import (
    HOPS,
    QUESTION,
    REST,
    Chain,
    Dice,
    FactComparison,
    FactTable,
    Value,
    dice,
)
from memenvs.build.worldgen.prose import Page, ask_chain, ask_comparison

SINGLED_OUT = 0.35  # of the chains start from a description instead of a name, where one singles out
WEIGHTS = {  # what the answer is
    "person": 16, "town": 16, "region": 7, "river": 5, "company": 13, "school": 8, "work": 8, "landmark": 5,
    "year": 11, "word": 11, "number": 3,
}  # fmt: skip
YES_NO = 0.3  # of the comparisons
ASK_ON = 0.5  # of the others ask for a fact of the one picked, so that the question does not name the answer
COMPARISONS = 0.2  # of the 2-hop questions
TRIES = 80  # draws of a chain before all that are left are walked over

Path = tuple[str, ...]
Where = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Question:
    """One question over a world's documents.

    Attributes:
        question: the question.
        answers: the accepted forms, the one in the documents first.
        evidence: the documents that state the facts needed, in hop order, none twice.
        spans: (document, start, end) in characters: the sentences that state them, whole, a bridge's answer
            in the last.
        kind: "bridge" or "comparison".
    """

    question: str
    answers: tuple[str, ...]
    evidence: tuple[int, ...]
    spans: tuple[tuple[int, int, int], ...]
    kind: str


class Register:
    """The questions of one world so far: none enters twice, and none that gives its answer away."""

    def __init__(self, facts: FactTable, documents: Sequence[Page]):
        self.facts = facts
        self._documents = documents
        self.keys: set[Hashable] = set()  # of the forms asked
        self._texts: set[str] = set()

    def enter(
        self,
        key: Hashable,
        text: str,
        answers: tuple[str, ...],
        *,
        stated: Sequence[tuple[int, str]],
        kind: str,
        choice: bool = False,
    ) -> Question | None:
        """The question, now asked; None for a repeat, or where its words hold its answer.

        Args:
            key: what the form asks, whatever its words.
            text: the question.
            answers: accepted forms, the first as the documents have it.
            stated: the facts needed as (entity, relation), in hop order.
            kind: "bridge" or "comparison".
            choice: the question names its answer by nature ("Which is longer, A or B?").
        """
        given_away = not choice and any(said(form, text) for form in answers)
        if given_away or key in self.keys or text in self._texts:
            return None
        self.keys.add(key)
        self._texts.add(text)
        evidence = tuple(dict.fromkeys(i for i, _ in stated))
        sentences = [(i, *self._documents[i].spans[relation]) for i, relation in stated]
        sentences = list(dict.fromkeys(reversed(sentences)))[::-1]  # one that states two facts: kept last
        spans = tuple(sorted(sentences, key=lambda span: evidence.index(span[0])))
        return Question(text, answers, evidence, spans, kind)


def accepted(facts: FactTable, relation: str, value: Value) -> tuple[str, ...]:
    """The accepted forms of a relation's value, the one its document states first."""
    schema, answer = RELATIONS[relation], facts.answer(relation, value)
    if schema.links:
        return names_of(facts, int(value))
    if schema.range != "number":
        return (answer,)
    short = {"kilometres": (f"{value} km",), "square kilometres": (f"{value:,} km2", f"{value} km2")}
    return tuple(dict.fromkeys((answer, f"{value:,}", str(value), *short.get(schema.unit, ()))))


def names_of(facts: FactTable, entity: int) -> tuple[str, ...]:
    """The names an answer may use: the title, a river without "River", "&" spelled out."""
    here = facts.entities[entity]
    bare = here.short if here.kind == "river" else here.name
    return tuple(dict.fromkeys((here.name, bare, here.name.replace("&", "and"))))


def said(phrase: str, text: str) -> bool:
    """Whether the words of a phrase occur in a text, whatever their case and punctuation."""
    words, inside = (" ".join(re.findall(r"[0-9a-z]+", s.lower())) for s in (phrase, text))
    return f" {words} " in f" {inside} "


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
        where: Where = ()
        if rolls.chance(SINGLED_OUT):  # by conditions that do not state the first hop, where some are known
            here = self._facts.entities[entity]
            options = [keys for keys in SINGLE_OUT[here.kind] if path[0] not in keys]
            options = [keys for keys in options if all(key in here.values for key in keys)]
            where = tuple((key, here.values[key]) for key in rolls.pick(options)) if options else ()
        return self._chain(entity, path, where, rolls)

    def rest(self, rolls: Dice) -> Iterator[tuple[Chain, Question]]:
        """Every chain not asked yet, its start named, in random order."""
        paths = [path for by_last in self._paths.values() for group in by_last.values() for path in group]
        for entity in rolls.shuffled(range(len(self._facts.entities))):
            for path in rolls.shuffled(paths):
                asked = self._chain(entity, path, (), rolls)
                if asked:
                    yield asked

    def _chain(self, entity: int, path: Path, where: Where, rolls: Dice) -> tuple[Chain, Question] | None:
        """A chain as a question; None where a step has not exactly one value, or it loops or repeats.

        It starts from the entity's name where no conditions are given.
        """
        facts, start = self._facts, self._facts.entities[entity]
        if path[0] not in start.values or (entity, path) in self._register.keys:
            return None
        chain = Chain(start.kind, where or (("name", start.name),), path)
        reached = chain.trail(facts)
        if any(len(values) != 1 for values in reached):
            return None
        steps = [next(iter(values)) for values in reached]
        visited = [int(step) for step in (steps if RELATIONS[path[-1]].links else steps[:-1])]
        names = [int(v) for key, v in where if RELATIONS[key].links] if where else [entity]
        met = visited if where else visited[1:]
        if len(set(visited)) < len(visited) or not set(names).isdisjoint(met):
            return None
        asked = self._register.enter(
            (entity, path),
            ask_chain(chain, visited, facts, rolls),
            accepted(facts, path[-1], steps[-1]),
            stated=[*((entity, key) for key, _ in where), *zip(visited, path, strict=False)],
            kind="bridge",
        )
        return (chain, asked) if asked else None


def _paths(hops: int) -> list[Path]:
    """Every row of relations that fit end to end, none twice in one."""
    paths: list[Path] = [(name,) for name in RELATIONS]
    for _ in range(hops - 1):
        paths = [
            (*path, name)
            for path in paths
            for name, relation in RELATIONS.items()
            if relation.domain == RELATIONS[path[-1]].range and name not in path
        ]
    return paths


def _weighted(kinds: tuple[str, ...], rolls: Dice) -> str:
    point = rolls.unit() * sum(WEIGHTS[kind] for kind in kinds)
    for kind in kinds:
        point -= WEIGHTS[kind]
        if point < 0:
            break
    return kind


_Drawn = tuple[FactComparison, int | None, tuple[str, ...]]
"""The form, the entity that it picks, the accepted answers."""


class Comparisons:
    """Pairs of one kind, drawn at random; half of the yes-or-no questions are true."""

    def __init__(self, register: Register):
        self._register, self._facts = register, register.facts
        self._of = {kind: self._facts.of_kind(kind) for kind in KINDS}

    def draw(self, rolls: Dice) -> tuple[FactComparison, Question] | None:
        """One try at a comparison; None where a value is missing, or equal where one must be larger."""
        drawn = self._same(rolls) if rolls.chance(YES_NO) else self._which(rolls)
        if drawn is None:
            return None
        form, winner, answers = drawn
        stated = [(form.left, form.relation), (form.right, form.relation)]
        if winner is not None and form.ask:
            stated.append((winner, form.ask))
        question = self._register.enter(
            (frozenset((form.left, form.right)), form.relation, form.order, form.ask),
            ask_comparison(form, winner, self._facts, rolls),
            answers,
            stated=stated,
            kind="comparison",
            choice=winner is not None and not form.ask,
        )
        return (form, question) if question else None

    def _pair(self, relations: Iterable[str], rolls: Dice) -> tuple[int, int, str]:
        """Any entity, another of its kind, and a relation to compare them in ("" where the kind has none)."""
        left = rolls.below(len(self._facts.entities))
        kind = self._facts.entities[left].kind
        options = [name for name in relations if RELATIONS[name].domain == kind]
        return left, rolls.pick(self._of[kind]), rolls.pick(options or [""])

    def _same(self, rolls: Dice) -> _Drawn | None:
        left, right, relation = self._pair(SAME, rolls)
        if not relation:
            return None
        value = self._facts.value(left, relation)
        if rolls.chance(0.5) and value is not None:
            right = rolls.pick(self._facts.holders(relation, value))
        other = self._facts.value(right, relation)
        if left == right or value is None or other is None:
            return None
        return FactComparison(relation, left, right, "same"), None, ("yes" if value == other else "no",)

    def _which(self, rolls: Dice) -> _Drawn | None:
        facts = self._facts
        left, right, relation = self._pair(COMPARE, rolls)
        order, ask = rolls.pick(("least", "most")), ""
        winner = FactComparison(relation, left, right, order).winner(facts)
        if winner is None:
            return None
        answers = names_of(facts, winner)
        others = [name for name in facts.entities[winner].values if name != relation]
        if rolls.chance(ASK_ON) and others:
            ask = rolls.pick(others)
            if facts.value(left, ask) == facts.value(right, ask):
                return None  # no need to compare
            answers = accepted(facts, ask, facts.entities[winner].values[ask])
        return FactComparison(relation, left, right, order, ask), winner, answers


Asked = tuple[Chain | FactComparison, Question]


class Asker:
    """Asks the questions of one world: `ask(count)` gives (logical form, question) pairs.

    Args:
        facts: the world's facts.
        documents: what states them, in the same order.
        split: the split.
        seed: the seed.
        hops: different numbers from 1 to 4, asked in turn (each block of len(hops) shuffled).
    """

    def __init__(
        self, facts: FactTable, documents: Sequence[Page], *, split: str, seed: int, hops: Sequence[int]
    ):
        self._split, self._seed, self._hops = split, seed, hops
        self._entities = len(facts.entities)
        register = Register(facts, documents)
        self._chains = {h: Chains(register, h) for h in hops}
        self._comparisons = Comparisons(register)
        self._rest: dict[int, Iterator[Asked]] = {}  # for numbers of hops where drawing finds no more

    def ask(self, count: int) -> list[Asked]:
        """The first `count` questions. A world short of one number of hops gives others in its place.

        Raises:
            ValueError: the world holds fewer; the line says how many.
        """
        out: list[Asked] = []
        for i in range(count):
            pair = self._item(i)
            if pair is None:
                raise ValueError(
                    f"questions={count} is more than this world of {self._entities} entities holds; "
                    f"ask for at most {i}, or for more entities"
                )
            out.append(pair)
        return out

    def _item(self, i: int) -> Asked | None:
        block = dice(self._seed, self._split, i // len(self._hops), HOPS).shuffled(self._hops)
        wanted = block[i % len(block)]
        pair = self._drawn(wanted, dice(self._seed, self._split, i, QUESTION))
        for hops in dict.fromkeys((wanted, *block)):
            pair = pair or self._left(hops)
        return pair

    def _drawn(self, hops: int, rolls: Dice) -> Asked | None:
        comparing = hops == 2 and rolls.chance(COMPARISONS)
        source = self._comparisons if comparing else self._chains[hops]
        for _ in range(0 if hops in self._rest else TRIES):
            pair = source.draw(rolls)
            if pair:
                return pair
        return None

    def _left(self, hops: int) -> Asked | None:
        """The next chain not asked yet, from a walk over all of them."""
        if hops not in self._rest:
            self._rest[hops] = self._chains[hops].rest(dice(self._seed, self._split, hops, REST))
        return next(self._rest[hops], None)
