"""From (entities, questions, split, seed) to an invented world: its documents, and questions over them.

    world = generate(2000, 512, split="train", seed=0)
    world.documents[7], world.questions[0].evidence

People, places, companies and works with one value a relation, a document each, and multi-hop questions in
HotpotQA's shape whose evidence is marked to the sentence. Nothing is downloaded; no model has read it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memenvs.build.examples import Example
from memenvs.build.worldgen import chronicle, prose
from memenvs.build.worldgen.names import PROSE, SPLITS, dice
from memenvs.build.worldgen.questions import Asker, Question
from memenvs.core.checks import Range, check_choice, check_whole

__all__ = ["LARGEST", "SMALLEST", "SPLITS", "Question", "World", "generate"]

SMALLEST, LARGEST = 20, 200_000  # entities: every kind has a member; names still come quickly


@dataclass(frozen=True)
class World:
    """`documents` are (title, text) pairs, document i about entity i; `questions` point into them."""

    documents: tuple[tuple[str, str], ...]
    questions: tuple[Question, ...]

    def examples(self, split: str) -> list[Example]:
        """The questions with ids "world-SPLIT-0", "world-SPLIT-1", … and their evidence alone."""
        return [_example(self, question, f"world-{split}-{i}") for i, question in enumerate(self.questions)]


def generate(
    entities: int, questions: int, *, split: str, seed: int, hops: Sequence[int] = (1, 2, 3, 4)
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
    check_whole(Range(SMALLEST, LARGEST), entities=entities)  # beyond it names run out
    check_whole(questions=questions)
    check_choice("split", split, SPLITS)
    check_whole(Range(0), seed=seed)
    if not hops or any(h not in (1, 2, 3, 4) for h in hops):
        raise ValueError(f"hops={tuple(hops)} is out of range; use numbers from 1 to 4, such as (1, 2, 3, 4)")
    facts = chronicle.build(entities, split, seed)
    documents = [prose.write(facts, i, dice(seed, split, i, PROSE)) for i in range(entities)]
    asker = Asker(facts, documents, split=split, seed=seed, hops=tuple(dict.fromkeys(hops)))
    pairs = asker.ask(questions)
    return World(tuple((d.title, d.text) for d in documents), tuple(question for _, question in pairs))


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
