"""From (entities, questions, split, seed) to an invented world: its documents, and questions over them.

    world = generate(2000, 512, split="train", seed=0)
    world.documents[7], world.questions[0].evidence

People, places, companies and works with one value a relation, a document each, and multi-hop questions in
HotpotQA's shape whose evidence is marked to the sentence. Nothing is downloaded; no model has read it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from memenvs.build.examples import Example, Pool
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
    """`documents` are (title, text) pairs, document i about entity i; `questions` point into them."""

    documents: tuple[tuple[str, str], ...]
    questions: tuple[Question, ...]

    def examples(self, split: str) -> list[Example]:
        """The questions with ids "world-SPLIT-0", "world-SPLIT-1", … and their evidence alone."""
        return [_example(self, question, f"world-{split}-{i}") for i, question in enumerate(self.questions)]


def generate(
    entities: Entities, questions: Count, *, split: Split, seed: Whole, hops: Hops = (1, 2, 3, 4)
) -> World:
    """A world of `entities` documents and `questions` questions, the same bytes for the same arguments.

    Args:
        entities: documents, 20 to 200,000; each has 4 to 8 sentences and 60 to 110 words.
        questions: 1 or more; the first n are the same however many are asked.
        split: "train", "validation" or "test"; no two splits share an entity's name, whatever their seeds.
        seed: 0 or more.
        hops: numbers of documents to chain, each 1 to 4, asked equally often. A fifth of the 2-hop questions
            compare two documents.

    Raises:
        ValueError: an argument out of range, or more questions than the world holds (the line says how many).
    """
    _, documents, pairs = generate_forms(entities, questions, split=split, seed=seed, hops=hops)
    return World(tuple((d.title, d.text) for d in documents), tuple(question for _, question in pairs))


@checked
def generate_forms(
    entities: Entities, questions: Count, *, split: Split, seed: Whole, hops: Hops = (1, 2, 3, 4)
) -> tuple[FactTable, list[prose.Document], list[Asked]]:
    """The world of `generate` with its facts, and with the logical form of each question.

    Raises:
        ValueError: see `generate`.
    """
    facts, documents = _write_world(entities, split, seed)
    asker = Asker(facts, documents, split=split, seed=seed, hops=tuple(dict.fromkeys(hops)))
    return facts, documents, asker.ask(questions)


@checked
def generate_aggregates(
    entities: Entities,
    questions: Count,
    *,
    split: Split,
    seed: Whole,
    operations: Sequence[Operation] = OPERATIONS,
) -> tuple[tuple[tuple[str, str], ...], list[Example]]:
    """The documents of the world that `generate` makes too, and questions over many of them at once.

    Args:
        entities: documents, 20 to 200,000.
        questions: 1 or more; the first n are the same however many are asked.
        split: "train", "validation" or "test".
        seed: 0 or more.
        operations: of "count", "extreme", "sum" and "common", asked in turn.

    Raises:
        ValueError: an argument out of range, or more questions than the world holds (the line says how many).
    """
    facts, documents = _write_world(entities, split, seed)
    asked = Aggregates(facts, documents, tuple(dict.fromkeys(operations))).ask(questions, split, seed)
    return tuple((d.title, d.text) for d in documents), list(asked)


def entities_for(tokens: int, *, tokenizer: TextTokenizer, split: Split, seed: int) -> int:
    """Entities of a world whose documents fill `tokens` tokens and a little more, by those of a small world.

    Raises:
        ValueError: no world is so large.
    """
    documents = generate(_SAMPLE, 1, split=split, seed=seed).documents
    texts = [f"Document 99:\n{title}\n{text}\n\n" for title, text in documents]
    a_document = sum(tokenizer.counts(texts)) / _SAMPLE
    wanted = math.ceil(1.05 * tokens / a_document) + SMALLEST
    if wanted > LARGEST:
        most = int(LARGEST / 1.05 * a_document)
        raise ValueError(f"--tokens {tokens} is more than a world fills; ask for at most {most:,}")
    return wanted


def _write_world(entities: int, split: str, seed: int) -> tuple[FactTable, list[prose.Document]]:
    """The facts of a world, and document i about entity i."""
    facts = chronicle.build(entities, split, seed)
    return facts, [prose.write(facts, i, dice(seed, split, i, PROSE)) for i in range(entities)]


@checked
def world(
    *,
    entities: Entities = 2000,
    hops: Hops = (1, 2, 3, 4),
    count: Count = 512,
    split: Split = "train",
    seed: Whole = 0,
) -> Pool:
    """The questions of `generate`, to be asked among documents of the same world (50 by default).

    Args:
        entities: people, places and works of the world, a document each.
        hops: documents that a question chains, asked equally often.
        count: tasks.
        split: of the world; no two splits share an entity's name.
        seed: decides every random choice.

    Raises:
        ValueError: an argument out of range, or more tasks than the world holds.
    """
    made = generate(entities, count, split=split, seed=seed, hops=hops)
    return Pool(made.examples(split), made.documents, documents=50)


@checked
def aggregate(
    *,
    tokenizer: TextTokenizer,
    ask: Sequence[Operation] = OPERATIONS,
    entities: Entities | None = None,
    documents: Count | None = None,
    tokens: Count | None = None,
    count: Count = 100,
    split: Split = "train",
    seed: Whole = 0,
) -> Pool:
    """The questions of `generate_aggregates`, to be asked over documents of the same world.

    Args:
        tokenizer: counts the tokens.
        ask: what is asked, in turn.
        entities: documents of the world (default: as many as a task reads).
        documents: documents of a task.
        tokens: instead: most tokens of a task's text, tokenised whole; met within one document.
        count: tasks.
        split: of the world; no two splits share an entity's name.
        seed: decides every random choice.

    Raises:
        ValueError: an argument out of range, or more tasks than the world holds.
    """
    if entities is None and tokens is not None:
        entities = entities_for(tokens, tokenizer=tokenizer, split=split, seed=seed)
    entities = entities or max(documents or 0, SMALLEST)
    texts, examples = generate_aggregates(entities, count, split=split, seed=seed, operations=ask)
    return Pool(examples, texts)


def _example(world: World, question: Question, name: str) -> Example:
    positions = {document: position for position, document in enumerate(question.evidence)}
    return Example(
        name,
        question.question,
        question.answers,
        tuple(world.documents[document] for document in question.evidence),
        tuple(range(len(question.evidence))),
        tuple((positions[document], start, end) for document, start, end in question.spans),
        {"type": question.kind, "hops": question.hops},
    )
