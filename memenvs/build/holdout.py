"""Questions that are set aside for evaluation, from any source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from memenvs.build.contexts import KeptContexts
from memenvs.build.draft import Draft
from memenvs.build.examples import Example, Pool, usable

Made = Draft | Pool | KeptContexts
T = TypeVar("T")
Keys = Sequence[Iterable[Hashable]]


def divide(material: Made, count: int, rng: np.random.Generator) -> tuple[Made, Made]:
    """What is left of a source's questions, and `count` questions that are set aside.

    A question that comes again, in any case of letters, is on one side. Questions about one text, or with
    the same evidence, stay together too, as far as whole groups of them fit into `count`. The distractors of
    the rest are never paragraphs of a question that was set aside; those of the questions that were set aside
    come from the whole pool.

    Raises:
        ValueError: fewer than `count` questions differ from the others.
    """
    if isinstance(material, Draft):
        same: Keys = [
            [(t.question, t.answers, t.evidence or tuple(sorted(t.documents)))] for t in material.tasks
        ]
        rest, held = _parted(material.tasks, _choose([same], count, rng))
        return replace(material, tasks=rest), replace(material, tasks=held)
    every = list(material.examples)
    if isinstance(material, Pool):
        asked: Keys = [[_asked(example)] for example in every]
        needed: Keys = [
            [_asked(example), frozenset(example.paragraphs[i] for i in example.evidence)] for example in every
        ]
        left, aside = _parted(every, _choose([needed, asked], count, rng))
        others = dict.fromkeys(part for example in left for part in example.paragraphs)
        return replace(material, examples=left), replace(
            material, examples=aside, extra=[*material.extra, *others]
        )
    examples = list(usable(every, material.source))
    read: Keys = [[_asked(example), *filter(None, [example.paragraphs])] for example in examples]
    alone: Keys = [
        [(_asked(example), example.paragraphs)] for example in examples
    ]  # the same words ask another text for more
    aside = _parted(examples, _choose([read, alone], count, rng))[1]
    ids = {example.id for example in aside}
    left = [
        example for example in every if example.id not in ids
    ]  # with those that cannot be scored, which are counted
    return replace(material, examples=left), replace(material, examples=aside)


def _asked(example: Example) -> str:
    return " ".join(example.question.casefold().split())


def _choose(tiers: Sequence[Keys], count: int, rng: np.random.Generator) -> set[int]:
    """`count` items by number, in whole groups: of the first tier as far as they fit, then of the next.

    Args:
        tiers: the keys of every item; items that share a key are of one group.
        count: items to choose.
        rng: orders the groups.
    """
    chosen: set[int] = set()
    for keys in tiers:
        groups = [group for group in _groups(keys) if chosen.isdisjoint(group)]
        for number in rng.permutation(len(groups)).tolist():
            if len(chosen) + len(groups[number]) <= count:
                chosen.update(groups[number])
    most = len(_groups(tiers[-1])) - 1
    if len(chosen) < count or most < 1 or len(chosen) == len(tiers[-1]):
        raise ValueError(
            f"--holdout {count}: there are {len(tiers[-1]):,} questions, {most + 1:,} of them different; "
            "set fewer aside, or give a larger source"
        )
    return chosen


def _groups(keys: Keys) -> list[list[int]]:
    """Items by number, together where they share a key, directly or through others."""
    parents: list[int] = []
    first: dict[Hashable, int] = {}

    def root(item: int) -> int:
        while parents[item] != item:
            parents[item] = parents[parents[item]]
            item = parents[item]
        return item

    for item, item_keys in enumerate(keys):
        parents.append(item)
        for key in item_keys:
            parents[root(item)] = root(first.setdefault(key, item))
    groups = defaultdict[int, list[int]](list)
    for item in range(len(parents)):
        groups[root(item)].append(item)
    return list(groups.values())


def _parted(items: Sequence[T], chosen: set[int]) -> tuple[list[T], list[T]]:
    """The items that were not chosen, and those that were, in their order."""
    return (
        [item for number, item in enumerate(items) if number not in chosen],
        [item for number, item in enumerate(items) if number in chosen],
    )
