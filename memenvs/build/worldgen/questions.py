"""From a fact table and its documents to questions, each checked over all facts and asked once.

Item i draws its hops, its form and its words from its own stream, so the first n do not depend on how many follow.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memenvs.build.worldgen.draws import HOPS, QUESTION, REST, Dice, dice
from memenvs.build.worldgen.facts import Facts, Value
from memenvs.build.worldgen.forms import Chain, Comparison
from memenvs.build.worldgen.phrasing import ask_chain, ask_comparison
from memenvs.build.worldgen.prose import Document
from memenvs.build.worldgen.schema import KINDS, RELATIONS
from memenvs.build.worldgen.wording import COMPARE, SAME, SINGLE_OUT

COMPARISONS = 0.2  # of the 2-hop questions
SAME_PLACE = 0.3  # of the comparisons are yes or no
SINGLED_OUT = 0.35  # of the chains start from a description
TRIES = 80
WEIGHTS = {  # what the answer is
    "person": 16, "town": 16, "region": 7, "river": 5, "company": 13, "school": 8, "work": 8, "landmark": 5,
    "year": 11, "word": 11, "number": 3,
}  # fmt: skip


@dataclass(frozen=True)
class Question:
    """One question over a world's documents.

    `answers` are the accepted forms, `answer` first. `evidence` numbers the documents that state the facts
    needed, in hop order, none twice. `spans` are (document, start, end) in characters: the sentences that state
    them, each one whole. `kind` is "bridge" or "comparison"; `subjects` the names the question gives.
    """

    question: str
    answer: str
    answers: tuple[str, ...]
    evidence: tuple[int, ...]
    spans: tuple[tuple[int, int, int], ...]
    kind: str
    hops: int
    subjects: tuple[str, ...]


class Asker:
    """Asks questions of one world; `ask(count, hops)` gives (logical form, question) pairs.

    Raises:
        ValueError: from `ask`, when the world holds fewer questions; the line says how many.
    """

    def __init__(self, facts: Facts, documents: Sequence[Document], split: str, seed: int):
        self._facts, self._documents = facts, documents
        self._split, self._seed = split, seed
        self._of = {kind: facts.of_kind(kind) for kind in KINDS}
        self._seen: set[object] = set()
        self._rest: dict[int, Iterator[tuple[Chain, Question]]] = {}

    def ask(self, count: int, hops: Sequence[int]) -> list[tuple[Chain | Comparison, Question]]:
        """The first `count` questions; every len(hops) of them have each number of hops once."""
        paths = {h: _paths(h) for h in hops}
        out: list[tuple[Chain | Comparison, Question]] = []
        for i in range(count):
            block = dice(self._seed, self._split, i // len(hops), HOPS).shuffled(hops)
            wanted = block[i % len(hops)]
            rolls = dice(self._seed, self._split, i, QUESTION)
            found = self._try(wanted, paths[wanted], rolls)
            for other in dict.fromkeys(
                (wanted, *block)
            ):  # a small world runs dry: take what is left, in turn
                found = found or self._next(other, paths[other])
            if found is None:
                raise ValueError(
                    f"questions={count} is more than this world of {len(self._facts.entities)} entities holds: "
                    f"ask for at most {i}, or for more entities"
                )
            out.append(found)
        return out

    def _try(self, hops: int, paths: _Paths, rolls: Dice) -> tuple[Chain | Comparison, Question] | None:
        if hops in self._rest:
            return None
        comparing = hops == 2 and rolls.chance(COMPARISONS)
        for _ in range(TRIES):
            found = self._comparison(rolls) if comparing else self._bridge(paths, rolls)
            if found:
                return found
        return None

    def _next(self, hops: int, paths: _Paths) -> tuple[Chain, Question] | None:
        """The next chain of these hops not asked yet, from a walk over all of them in random order."""
        if hops not in self._rest:
            self._rest[hops] = self._all(paths, dice(self._seed, self._split, hops, REST))
        return next(self._rest[hops], None)

    def _all(self, paths: _Paths, rolls: Dice) -> Iterator[tuple[Chain, Question]]:
        every = [path for by_last in paths.values() for group in by_last.values() for path in group]
        for entity in rolls.shuffled(range(len(self._facts.entities))):
            for path in rolls.shuffled(every):
                if RELATIONS[path[0]].domain == self._facts.entities[entity].kind:
                    found = self._chain(entity, path, (("name", self._facts.entities[entity].name),), rolls)
                    if found:
                        yield found

    def _bridge(self, paths: _Paths, rolls: Dice) -> tuple[Chain, Question] | None:
        by_last = paths[_weighted(paths, rolls)]
        path = rolls.pick(by_last[rolls.pick(tuple(by_last))])
        entity = rolls.pick(self._of[RELATIONS[path[0]].domain])
        where: tuple[tuple[str, Value], ...] = (("name", self._facts.entities[entity].name),)
        if rolls.chance(SINGLED_OUT):
            where = self._conditions(entity, path, rolls) or where
        return self._chain(entity, path, where, rolls)

    def _conditions(self, entity: int, path: tuple[str, ...], rolls: Dice) -> tuple[tuple[str, Value], ...]:
        """Conditions that might single an entity out without its name and do not state the first hop."""
        here = self._facts.entities[entity]
        known = [
            keys
            for keys in SINGLE_OUT.get(here.kind, ())
            if path[0] not in keys and all(key in here.values for key in keys)
        ]
        return tuple((key, here.values[key]) for key in rolls.pick(known)) if known else ()

    def _chain(
        self, entity: int, path: tuple[str, ...], where: tuple[tuple[str, Value], ...], rolls: Dice
    ) -> tuple[Chain, Question] | None:
        """The chain as a question, or None where it is not one: several values, a loop, a giveaway, a repeat."""
        facts, chain = self._facts, Chain(self._facts.entities[entity].kind, where, path)
        if (entity, path) in self._seen or path[0] not in facts.entities[entity].values:
            return None
        reached = chain.trail(facts)
        if any(len(values) != 1 for values in reached):
            return None
        steps = [next(iter(values)) for values in reached]
        trail = [int(step) for step in (steps if RELATIONS[path[-1]].links else steps[:-1])]
        names = [entity] if where[0][0] == "name" else [int(v) for key, v in where if RELATIONS[key].links]
        if len(set(trail) | set(names)) != len(trail) + len(set(names) - {trail[0]}):
            return None
        text = ask_chain(chain, trail, facts, rolls)
        answers = accepted(facts, path[-1], steps[-1])
        stated = [(entity, key) for key, _ in where if key != "name"] + list(zip(trail, path, strict=False))
        asked = self._question(text, answers, stated, "bridge", len(path), names)
        if asked is None:
            return None
        self._seen.add((entity, path))
        return chain, asked

    def _comparison(self, rolls: Dice) -> tuple[Comparison, Question] | None:
        facts, same = self._facts, rolls.chance(SAME_PLACE)
        relation = rolls.pick(tuple(SAME if same else COMPARE))
        members = self._of[RELATIONS[relation].domain]
        left, right = rolls.pick(members), rolls.pick(members)
        value = facts.value(left, relation)
        if same and value is not None and rolls.chance(0.5):
            right = rolls.pick(facts.holders(relation, value))
        if left == right or None in (value, facts.value(right, relation)):
            return None
        if same:
            equal = value == facts.value(right, relation)
            form, winner = Comparison(relation, left, right, "same"), None
            answers: tuple[str, ...] = ("yes",) if equal else ("no",)
        else:
            form = Comparison(relation, left, right, rolls.pick(("least", "most")))
            winner = form.winner(facts)
            if winner is None:
                return None
            answers = names_of(facts, winner)
            others = [r for r in facts.entities[winner].values if r != relation]
            if rolls.chance(0.5) and others:
                form = Comparison(relation, left, right, form.order, rolls.pick(others))
                answers = accepted(facts, form.ask, facts.entities[winner].values[form.ask])
                if facts.value(left, form.ask) == facts.value(right, form.ask):
                    return None
        return self._compare(form, winner, answers, rolls)

    def _compare(
        self, form: Comparison, winner: int | None, answers: tuple[str, ...], rolls: Dice
    ) -> tuple[Comparison, Question] | None:
        key = (frozenset((form.left, form.right)), form.relation, form.order, form.ask)
        if key in self._seen:
            return None
        text = ask_comparison(form, winner, self._facts, rolls)
        stated = [(form.left, form.relation), (form.right, form.relation)]
        if winner is not None and form.ask:
            stated.append((winner, form.ask))
        choice = (
            winner is not None and not form.ask
        )  # "which of the two": the answer is one of the names given
        asked = self._question(text, answers, stated, "comparison", 2, [form.left, form.right], choice)
        if asked is None:
            return None
        self._seen.add(key)
        return form, asked

    def _question(
        self, text: str, answers: tuple[str, ...], stated: list[tuple[int, str]], kind: str, hops: int,
        names: list[int], choice: bool = False,
    ) -> Question | None:  # fmt: skip
        if text in self._seen or (not choice and any(said(form, text) for form in answers)):
            return None
        self._seen.add(text)
        spans = dict.fromkeys((i, *self._documents[i].spans[relation]) for i, relation in stated)
        evidence = tuple(dict.fromkeys(i for i, _ in stated))
        subjects = tuple(dict.fromkeys(self._facts.entities[i].name for i in names))
        return Question(text, answers[0], answers, evidence, tuple(spans), kind, hops, subjects)


_Paths = dict[str, dict[str, list[tuple[str, ...]]]]  # range of the last relation -> last relation -> paths


def _paths(hops: int) -> _Paths:
    """Every chain of relations that fit end to end, none twice in one chain."""
    found: list[tuple[str, ...]] = [(name,) for name in RELATIONS]
    for _ in range(hops - 1):
        found = [
            (*path, name)
            for path in found
            for name, relation in RELATIONS.items()
            if relation.domain == RELATIONS[path[-1]].range and name not in path
        ]
    out: _Paths = defaultdict(lambda: defaultdict(list))
    for path in found:
        out[RELATIONS[path[-1]].range][path[-1]].append(path)
    return out


def _weighted(paths: _Paths, rolls: Dice) -> str:
    point = rolls.unit() * sum(WEIGHTS[key] for key in paths)
    for key in paths:
        point -= WEIGHTS[key]
        if point < 0:
            return key
    return key


def accepted(facts: Facts, relation: str, value: Value) -> tuple[str, ...]:
    """The accepted forms of a value, the one its document states first."""
    known, answer = RELATIONS[relation], facts.answer(relation, value)
    if known.links:
        return names_of(facts, int(value))
    if known.range != "number":
        return (answer,)
    plain = (f"{value:,}", str(value))
    short = {"kilometres": (f"{value} km",), "square kilometres": (f"{value:,} km2", f"{value} km2")}
    return tuple(dict.fromkeys((answer, *plain, *short.get(known.unit, ()))))


def names_of(facts: Facts, entity: int) -> tuple[str, ...]:
    """The names an answer may use: the title, a river without "River", "&" spelled out."""
    here = facts.entities[entity]
    forms = [here.name, here.short if here.kind == "river" else here.name, here.name.replace("&", "and")]
    return tuple(dict.fromkeys(forms))


def said(phrase: str, text: str) -> bool:
    """Whether the words of a phrase stand in a text, whatever their case and punctuation."""
    inside = f" {' '.join(re.findall(r'[0-9a-z]+', text.lower()))} "
    return f" {' '.join(re.findall(r'[0-9a-z]+', phrase.lower()))} " in inside
