"""From (entities, questions, split, seed) to an invented world: its documents, and questions over them.

    world = generate(2000, 512, split="train", seed=0)
    world.documents[7], world.questions[0].evidence

People, places, companies and works with one value a relation, a document each, and multi-hop questions in
HotpotQA's shape whose evidence is marked to the sentence. Nothing is downloaded; no model has read it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from memenvs.build.contexts import Example
from memenvs.build.examples import Pool
from memenvs.build.options import Drawn
from memenvs.build.worldgen import chronicle, prose
from memenvs.build.worldgen.aggregates import OPERATIONS, Aggregates, Operation
from memenvs.build.worldgen.names import PROSE, FactTable, dice
from memenvs.build.worldgen.questions import Asked, Asker, Question
from memenvs.core.data import Count, Whole, checked
from memenvs.tasks.tokens import TextTokenizer

_SAMPLE = 300  # documents by which those of a large world are estimated
SMALLEST, LARGEST = 20, 200_000  # entities: every kind has a member; names still come quickly
Entities = Annotated[int, Meta(ge=SMALLEST, le=LARGEST)]
Split = Literal["train", "validation", "test"]
Hops = Annotated[Sequence[Annotated[int, Meta(ge=1, le=4)]], Meta(min_length=1)]


@dataclass(frozen=True)
class World:
    """An invented world and questions about it.

    Attributes:
        facts: what holds in it.
        pages: its documents; number i is about entity i.
        asked: the questions, each with its logical form.
    """

    facts: FactTable
    pages: list[prose.Page]
    asked: list[Asked]

    @functools.cached_property
    def documents(self) -> tuple[tuple[str, str], ...]:
        """(title, text) of the pages."""
        return tuple((page.title, page.text) for page in self.pages)

    @functools.cached_property
    def questions(self) -> tuple[Question, ...]:
        """The questions, which point into the documents."""
        return tuple(question for _, question in self.asked)

    def examples(self, split: str) -> list[Example]:
        """The questions with ids "world-SPLIT-0", "world-SPLIT-1", … and their evidence alone."""
        examples = []
        for i, question in enumerate(self.questions):
            place = {document: position for position, document in enumerate(question.evidence)}
            examples.append(
                Example(
                    f"world-{split}-{i}",
                    question.question,
                    question.answers,
                    tuple(self.documents[document] for document in question.evidence),
                    tuple(range(len(question.evidence))),
                    tuple((place[document], start, end) for document, start, end in question.spans),
                    {"type": question.kind, "hops": len(question.evidence)},
                )
            )
        return examples


@checked
def generate(
    entities: Entities, questions: Count, *, split: Split, seed: Whole, hops: Hops = (1, 2, 3, 4)
) -> World:
    """A world of `entities` documents and `questions` questions, the same bytes for the same arguments.

    Args:
        entities: documents, 20 to 200,000; each has 4 to 8 sentences and 60 to 110 words.
        questions: 1 or more; the first n are the same however many are asked.
        split: "train", "validation" or "test"; no two splits share an entity's name, whatever their seeds.
        hops: numbers of documents to chain, each 1 to 4, asked equally often. A fifth of the 2-hop questions
            compare two documents.

    Raises:
        ValueError: an argument out of range, or more questions than the world holds (the line says how many).
    """
    facts, pages = _write_world(entities, split, seed)
    asker = Asker(facts, pages, split=split, seed=seed, hops=tuple(dict.fromkeys(hops)))
    return World(facts, pages, asker.ask(questions))


def _write_world(entities: int, split: str, seed: int) -> tuple[FactTable, list[prose.Page]]:
    facts = chronicle.build(entities, split, seed)
    return facts, [prose.write(facts, i, dice(seed, split, i, PROSE)) for i in range(entities)]


@dataclass(frozen=True, kw_only=True)
class WorldOptions(Drawn):
    """The invented world."""

    num_tasks: Count = 512
    """number of tasks."""
    split: Split = "train"
    """split of the world; no two splits share an entity's name."""
    documents: Count | None = None
    """number of documents in a task (default: 50)."""
    entities: Entities = 2000
    """number of people, places and works in the world, with a document each."""
    hops: Hops = (1, 2, 3, 4)
    """documents that a question chains, asked equally often."""


def world(options: WorldOptions) -> Pool:
    """The questions of `generate`, to be asked among documents of the same world (50 by default).

    Raises:
        ValueError: more tasks than the world holds.
    """
    invented = generate(
        options.entities, options.num_tasks, split=options.split, seed=options.seed, hops=options.hops
    )
    return Pool(invented.examples(options.split), invented.documents, documents=50)


@dataclass(frozen=True, kw_only=True)
class AggregateOptions(Drawn):
    """Questions over a whole invented world."""

    num_tasks: Count = 100
    """number of tasks; the first n are the same however many are asked."""
    split: Split = "train"
    """split of the world; no two splits share an entity's name."""
    documents: Count | None = None
    """number of documents in a task."""
    ask: Annotated[Sequence[Operation], Meta(min_length=1)] = OPERATIONS
    """kinds of question, used in turn."""
    entities: Entities | None = None
    """number of documents in the world (default: as many as a task reads)."""


def aggregate(options: AggregateOptions, tokenizer: TextTokenizer) -> Pool:
    """Questions over many documents at once of the world that `generate` makes, asked over documents of it.

    Raises:
        ValueError: more tasks than the world holds (the line says how many), or more tokens than it fills.
    """
    entities, split, seed = options.entities, options.split, options.seed
    if entities is None and options.tokens is not None:
        # Its documents fill a little more than that many tokens, judged by a small world.
        _, pages = _write_world(_SAMPLE, split, seed)
        texts = [f"Document 99:\n{page.title}\n{page.text}\n\n" for page in pages]
        a_document = sum(tokenizer.counts(texts)) / _SAMPLE
        entities = math.ceil(1.05 * options.tokens / a_document) + SMALLEST
        if entities > LARGEST:
            most = int(LARGEST / 1.05 * a_document)
            raise ValueError(
                f"--tokens {options.tokens} is more than a world fills; ask for at most {most:,}"
            )
    facts, pages = _write_world(entities or max(options.documents or 0, SMALLEST), split, seed)
    examples = Aggregates(facts, pages, tuple(dict.fromkeys(options.ask))).ask(options.num_tasks, split, seed)
    return Pool(list(examples), [(page.title, page.text) for page in pages])
