"""Questions about an invented world, each among documents of that world."""

from __future__ import annotations

from collections.abc import Sequence

from memenvs.build.examples import Example
from memenvs.build.worldgen import generate


def world_examples(
    *, entities: int, count: int, split: str, seed: int, hops: Sequence[int] = (1, 2, 3, 4)
) -> tuple[list[Example], tuple[tuple[str, str], ...]]:
    """Multi-hop questions over invented people, places and works, and all their documents as (title, text).

    Args:
        entities: people, places and works; each has one document.
        count: questions.
        split: `"train"`, `"validation"` or `"test"`; no entity is in two of them.
        seed: any whole number of at least 0.
        hops: hops a question may have.

    Raises:
        ValueError: an argument is out of range, with the range.
    """
    made = generate(entities, count, split=split, seed=seed, hops=hops)
    examples = []
    for number, question in enumerate(made.questions):
        positions = {document: position for position, document in enumerate(question.evidence)}
        examples.append(
            Example(
                f"world-{split}-{number}",
                question.question,
                question.answers,
                tuple(made.documents[document] for document in question.evidence),
                tuple(range(len(question.evidence))),
                tuple((positions[document], start, end) for document, start, end in question.spans),
                {"type": question.kind, "hops": question.hops},
            )
        )
    return examples, made.documents
