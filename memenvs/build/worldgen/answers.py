"""From a checked form and its value to the question it becomes, with the answers that question accepts."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from memenvs.build.worldgen.facts import Facts, Value
from memenvs.build.worldgen.prose import Document
from memenvs.build.worldgen.schema import RELATIONS


@dataclass(frozen=True)
class Question:
    """One question over a world's documents.

    `answers` are the accepted forms, `answer` first. `evidence` numbers the documents that state the facts
    needed, in hop order, none twice. `spans` are (document, start, end) in characters: the sentences that
    state them, each one whole, a bridge's answer in the last. `kind` is "bridge" or "comparison",
    `hops` the number of evidence documents; `subjects` are the names the question gives.
    """

    question: str
    answer: str
    answers: tuple[str, ...]
    evidence: tuple[int, ...]
    spans: tuple[tuple[int, int, int], ...]
    kind: str
    hops: int
    subjects: tuple[str, ...]


class Register:
    """The questions of one world so far: none enters twice, and none that gives its answer away."""

    def __init__(self, facts: Facts, documents: Sequence[Document]):
        self.facts = facts
        self._documents = documents
        self._keys: set[Hashable] = set()
        self._texts: set[str] = set()

    def knows(self, key: Hashable) -> bool:
        """Whether a form with this key was asked before."""
        return key in self._keys

    def enter(
        self,
        key: Hashable,
        text: str,
        answers: tuple[str, ...],
        *,
        stated: Sequence[tuple[int, str]],
        names: Sequence[int],
        kind: str,
        choice: bool = False,
    ) -> Question | None:
        """The question, now asked; None for a repeat, or where its words hold its answer.

        Args:
            key: what the form asks, whatever its words.
            text: the question.
            answers: accepted forms, the first as the documents have it.
            stated: the facts needed as (entity, relation), in hop order.
            names: the entities the question names.
            kind: "bridge" or "comparison".
            choice: the question names its answer by nature ("Which is longer, A or B?").
        """
        given_away = not choice and any(said(form, text) for form in answers)
        if given_away or key in self._keys or text in self._texts:
            return None
        self._keys.add(key)
        self._texts.add(text)
        evidence = tuple(dict.fromkeys(i for i, _ in stated))
        told = [(i, *self._documents[i].spans[relation]) for i, relation in stated]
        told = list(dict.fromkeys(reversed(told)))[::-1]  # one that states two facts: kept last
        spans = tuple(sorted(told, key=lambda span: evidence.index(span[0])))
        subjects = tuple(dict.fromkeys(self.facts.entities[i].name for i in names))
        return Question(text, answers[0], answers, evidence, spans, kind, len(evidence), subjects)


def accepted(facts: Facts, relation: str, value: Value) -> tuple[str, ...]:
    """The accepted forms of a relation's value, the one its document states first."""
    known, answer = RELATIONS[relation], facts.answer(relation, value)
    if known.links:
        return names_of(facts, int(value))
    if known.range != "number":
        return (answer,)
    short = {"kilometres": (f"{value} km",), "square kilometres": (f"{value:,} km2", f"{value} km2")}
    return tuple(dict.fromkeys((answer, f"{value:,}", str(value), *short.get(known.unit, ()))))


def names_of(facts: Facts, entity: int) -> tuple[str, ...]:
    """The names an answer may use: the title, a river without "River", "&" spelled out."""
    here = facts.entities[entity]
    bare = here.short if here.kind == "river" else here.name
    return tuple(dict.fromkeys((here.name, bare, here.name.replace("&", "and"))))


def said(phrase: str, text: str) -> bool:
    """Whether the words of a phrase stand in a text, whatever their case and punctuation."""
    words, inside = (" ".join(re.findall(r"[0-9a-z]+", s.lower())) for s in (phrase, text))
    return f" {words} " in f" {inside} "
