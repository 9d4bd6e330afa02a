"""Questions about an invented world, each among documents of that world."""

from __future__ import annotations

from collections.abc import Sequence

from memenvs.build.draft import Draft
from memenvs.build.examples import Example, among_distractors
from memenvs.build.worldgen import Question, World, generate
from memenvs.tasks.tokens import TextTokenizer


def world(
    *,
    entities: int,
    count: int,
    tokenizer: TextTokenizer,
    split: str,
    seed: int,
    documents: int | None = None,
    tokens: int | None = None,
    hops: Sequence[int] = (1, 2, 3, 4),
    workers: int = 1,
) -> Draft:
    """Multi-hop questions over invented people, places and works, in RULER-HotpotQA's shape.

    Args:
        entities: people, places and works; each has one document.
        count: questions.
        tokenizer: counts the tokens.
        split: `"train"`, `"validation"` or `"test"`; no entity is in two of them.
        seed: any whole number of at least 0.
        documents: documents a task.
        tokens: instead, the most tokens a task's text may have.
        hops: hops a question may have.
        workers: processes.

    Raises:
        ValueError: an argument is out of range, with the range.
    """
    examples, everything = world_examples(entities=entities, count=count, split=split, seed=seed, hops=hops)
    return among_distractors(
        examples,
        tokenizer=tokenizer,
        split=split,
        seed=seed,
        documents=documents,
        tokens=tokens,
        workers=workers,
        extra=everything,
    )


def world_examples(
    *, entities: int, count: int, split: str, seed: int, hops: Sequence[int] = (1, 2, 3, 4)
) -> tuple[list[Example], tuple[tuple[str, str], ...]]:
    """The questions of a world, and all its documents as (title, text); arguments as for `world`."""
    made = generate(entities, count, split=split, seed=seed, hops=hops)
    examples = [_example(made, question, f"world-{split}-{i}") for i, question in enumerate(made.questions)]
    return examples, made.documents


def _example(made: World, question: Question, name: str) -> Example:
    positions = {document: position for position, document in enumerate(question.evidence)}
    return Example(
        name,
        question.question,
        question.answers,
        tuple(made.documents[document] for document in question.evidence),
        tuple(range(len(question.evidence))),
        tuple((positions[document], start, end) for document, start, end in question.spans),
        {"type": question.kind, "hops": question.hops},
    )
