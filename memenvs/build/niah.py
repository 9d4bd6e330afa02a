"""Needles in a haystack (RULER): `memenvs build niah --variant multikey_1 --tokens 32768 --out DIR`."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from memenvs.build.draft import TEXTS, DiskList, Draft, item_rng, make_items
from memenvs.build.haystack import JOINED, NOISE, Haystack, prose_sentences, read_prose
from memenvs.build.options import Hidden
from memenvs.core.data import Count
from memenvs.core.processes import Workers
from memenvs.core.progress import progress
from memenvs.tasks.taskset import Task
from memenvs.tasks.tokens import TextTokenizer

# Our own lists: other words than the packages that the papers' code draws from.
ADJECTIVES, NOUNS = ((TEXTS / f"{name}.txt").read_text().split() for name in ("adjectives", "nouns"))

DEPTHS = np.linspace(0.0, 1.0, 40)  # shares of the haystack's characters
MAGIC = "special magic"  # every needle and every question says it
_LEAST_POOL = 2048  # needles, so that the tasks of a small budget differ too


@dataclass(frozen=True)
class Recipe:
    """What a variant hides, and in what.

    Attributes:
        haystack: `"noise"`, `"prose"` or `"needles"`.
        key: kind of the keys, `"word"` or `"uuid"`.
        value: kind of the values, `"number"` or `"uuid"`.
        keys: keys hidden in a task, a haystack of needles not counted.
        asked: how many of them are asked for.
        values: values of each key.
    """

    haystack: str
    key: str
    value: str
    keys: int = 1
    asked: int = 1
    values: int = 1

    @property
    def needles(self) -> int:
        """Needles of a task, a haystack of needles not counted."""
        return self.keys * self.values

    @property
    def answers(self) -> int:
        """Those of them that answer."""
        return self.asked * self.values

    def needle(self, key: str, value: str) -> str:
        """The document that tells a value of a key."""
        sentence = f"A {MAGIC} {self.value} for {key} is {value}."
        return f" {sentence}" if self.haystack == "prose" else f"{sentence}\n"

    def question(self, keys: Sequence[str]) -> str:
        """What is asked, of all values of `keys`."""
        names = " and ".join(filter(None, [", ".join(keys[:-1]), keys[-1]]))
        if self.answers == 1:
            return f"What is the {MAGIC} {self.value} for {names} that the text gives?"
        return f"What are all the {MAGIC} {self.value}s for {names} that the text gives?"


RECIPES = {
    "single_1": Recipe("noise", "word", "number"),
    "single_2": Recipe("prose", "word", "number"),
    "single_3": Recipe("prose", "word", "uuid"),
    "multikey_1": Recipe("prose", "word", "number", keys=4),
    "multikey_2": Recipe("needles", "word", "number"),
    "multikey_3": Recipe("needles", "uuid", "uuid"),
    "multivalue": Recipe("prose", "word", "number", values=4),
    "multiquery": Recipe("prose", "word", "number", keys=4, asked=4),
}
Variant = Literal[
    "single_1", "single_2", "single_3", "multikey_1", "multikey_2", "multikey_3", "multivalue", "multiquery",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NiahOptions(Hidden):
    """Needles in a haystack."""

    num_tasks: Count = 100
    """number of tasks."""
    variant: Variant = "single_2"
    """what is hidden, and in what."""
    workers: Workers = 1
    """number of processes, or ray for the workers of a Ray cluster; the result is the same."""


def niah(options: NiahOptions, tokenizer: TextTokenizer, prose: Sequence[str] | None = None) -> Draft:
    """Tasks that ask for the values of keys hidden in a long text (RULER's NIAH; the wording is ours).

    A task has one objective, whose accepted answers are all its values (scored by `needle_exact`);
    `evidence[i]` tells `meta["values"][i]`. `meta` also has `variant`, the asked `keys`, and for each of the
    evidence `depths`, where it begins, and `grid`, the depth drawn for it: shares of the text, 0 to 1. A
    haystack of needles is drawn for each task from one pool of the split, which holds no asked key or value.

    Args:
        options: the tasks; their texts miss the budget by less than one haystack sentence, by every tokenizer
            that splits text at words (`seam_tokens`).
        tokenizer: counts the tokens.
        prose: texts for the variants that hide needles in prose, in the place of the essays; repeated where
            it ends.

    Raises:
        ValueError: no prose where it is needed, or a budget too small for the needles.
    """
    variant, tokens, count = options.variant, options.tokens, options.num_tasks
    prose = read_prose(options.essays) if prose is None else prose
    split, seed = options.split, options.seed
    recipe = RECIPES[variant]
    hay = _haystack(recipe, tokens, prose, tokenizer, item_rng(seed, f"{split}\0haystack", 0))
    # what occurs by chance, also inside longer strings, is no key and no value
    taken = frozenset(match for text in hay for look in _LOOK for match in look.findall(text.lower()))
    plan = partial(_plan, recipe, taken, f"{split}/{variant}", seed)
    plans = make_items(plan, count, workers=options.workers, label=f"niah {variant} tasks")
    pieces = ([recipe.needle(key, value) for key, value in plan.needles] for plan in plans)
    haystack = Haystack(hay, pieces, tokens, tokenizer, shuffled=recipe.haystack == "needles")
    haystack.check_room(f"the needles of {variant}")
    tasks = DiskList[Task]()
    for item, (needles, grid, pick) in enumerate(progress(plans, count, "contexts")):
        order, down = haystack.take(item, pick), np.argsort(grid)
        places = haystack.places_at(order, np.array(grid))[down]
        documents, holding, depths = haystack.hide(item, order, places, down)
        asked = recipe.answers
        keys, values = zip(*needles[:asked], strict=True)
        keys = tuple(dict.fromkeys(keys))
        meta = {
            "variant": variant,
            "keys": list(keys),
            "values": list(values),
            "depths": depths[:asked].tolist(),
            "grid": list(grid[:asked]),
        }
        id_ = f"{variant}-{split}-{item}"
        tasks.append(Task(id_, recipe.question(keys), (values,), documents, holding[:asked], meta))
    return Draft(haystack.documents, tasks, JOINED, "MemNIAH-v0", "needle_exact")


def _haystack(
    recipe: Recipe, tokens: int, prose: Sequence[str], tokenizer: TextTokenizer, rng: np.random.Generator
) -> list[str]:
    """The haystack's sentences; of needles, about twice as many as fit."""
    if recipe.haystack == "noise":
        return NOISE
    if recipe.haystack == "prose":
        return prose_sentences(prose)
    (key,), (value,) = draw(recipe.key, 1, rng), draw(recipe.value, 1, rng)
    size = max(_LEAST_POOL, 2 * tokens // tokenizer.count(recipe.needle(key, value)))
    return list(map(recipe.needle, draw(recipe.key, size, rng), draw(recipe.value, size, rng)))


class Plan(NamedTuple):
    """What is drawn for a task."""

    needles: tuple[tuple[str, str], ...]  # key and value of each, those asked for first
    grid: tuple[float, ...]  # the depth drawn for each, a share of the haystack
    pick: int  # chooses the haystack


def _plan(recipe: Recipe, taken: frozenset[str], split: str, seed: int, item: int) -> Plan:
    """The plan of an item, from its own generator alone; `taken` can be no key and no value."""
    rng = item_rng(seed, split, item)
    keys = draw(recipe.key, recipe.keys, rng, taken)
    values = draw(recipe.value, recipe.needles, rng, taken)
    grid = rng.choice(DEPTHS, recipe.needles, replace=False)
    needles = tuple(zip(np.repeat(keys, recipe.values).tolist(), values, strict=True))
    return Plan(needles, tuple(grid.tolist()), int(rng.integers(2**63)))


def draw(kind: str, count: int, rng: np.random.Generator, taken: Collection[str] = frozenset()) -> list[str]:
    """`count` different strings of a kind, none of them in `taken`.

    Numbers and uuids are all of one length, so none is a part of another; a word may be ("icy-bee" of
    "spicy-beetle"), which matters to no score, because answers are never words.

    Args:
        kind: `"word"` (an adjective and a noun), `"number"` (seven digits) or `"uuid"` (version 4).
        count: strings.
        rng: the chance.
        taken: strings that must not come out; give a set.

    Raises:
        ValueError: there are fewer than `count`.
    """
    make, most = _KINDS[kind]
    if count > most - len(taken):
        raise ValueError(
            f"{count} different keys or values of kind {kind!r} are wanted, there are {most - len(taken)}; "
            "ask for fewer tokens, or for a variant with uuids"
        )
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        drawn.update((text, None) for text in make(count - len(drawn), rng) if text not in taken)
    return list(drawn)


def _words(count: int, rng: np.random.Generator) -> list[str]:
    first = rng.integers(len(ADJECTIVES), size=count).tolist()
    second = rng.integers(len(NOUNS), size=count).tolist()
    return [f"{ADJECTIVES[i]}-{NOUNS[j]}" for i, j in zip(first, second, strict=True)]


def _numbers(count: int, rng: np.random.Generator) -> list[str]:
    return [str(number) for number in rng.integers(10**6, 10**7, size=count).tolist()]


def _uuids(count: int, rng: np.random.Generator) -> list[str]:
    bits = rng.bytes(16 * count)
    return [str(uuid.UUID(bytes=bits[i : i + 16], version=4)) for i in range(0, len(bits), 16)]


_KINDS: dict[str, tuple[Callable[[int, np.random.Generator], list[str]], int]] = {
    "word": (_words, len(ADJECTIVES) * len(NOUNS)),
    "number": (_numbers, 9 * 10**6),
    "uuid": (_uuids, 2**122),
}
_LOOK = [  # look-ahead finds what overlaps
    re.compile(r"(?=\b([a-z]+-[a-z]+))"),
    re.compile(r"(?=([0-9]{7}))"),
    re.compile(r"(?=([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}))"),
]
