"""Prose and a seed come in; needle-in-a-haystack tasks, the eight variants of RULER, go out as a draft.

Every document carries its own blank (prose a space before, noise and needle lines a newline behind) and the
layout adds nothing: byte-level BPE joins those blanks to the token beside, so parts count as the joined text.
For tokenizers that do not, a sentence is counted between two others.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memenvs.build.chance import item_rng, make_items, progress
from memenvs.build.draft import Documents, Draft, seam_tokens
from memenvs.build.essays import sentences
from memenvs.build.needles import Plan, Planner, Recipe, draw, occurring
from memenvs.card import Layout
from memenvs.tasks import Task
from memenvs.tokens import TextTokenizer, check_positive

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
VARIANTS = tuple(RECIPES)

_NOISE = (
    "Rain taps on the roof.",
    "A clock ticks in the hall.",
    "The road is long and quiet.",
    "Nobody is in a hurry.",
    "Then it all begins again.",
)
_LEAST_POOL = 2048  # needles, so that the tasks of a small budget differ too

Ints = NDArray[np.int64]


def niah(
    *,
    variant: str,
    count: int,
    tokens: int,
    prose: Sequence[str],
    tokenizer: TextTokenizer,
    split: str,
    seed: int,
    workers: int = 1,
    inputs: tuple[Path, ...] = (),
) -> Draft:
    """Tasks that ask for the values of keys hidden in a long text (RULER's NIAH; the wording is ours).

    A task has one objective, whose accepted answers are all its values (the card says `string_match_all`);
    `evidence[i]` tells `meta["values"][i]`. `meta` also has `variant`, the asked `keys`, and for each of the
    evidence `depths`, where it begins, and `grid`, the depth drawn for it: shares of the text, 0 to 1. A
    haystack of needles is drawn for each task from one pool of the split, which holds no asked key or value.

    Args:
        variant: one of `VARIANTS`.
        count: tasks.
        tokens: budget of a context tokenised whole, never exceeded and missed by less than one haystack
            sentence, by every tokenizer that splits text at words (see `seam_tokens`).
        prose: texts for the variants that hide needles in prose; it starts anew where it ends.
        tokenizer: counts the tokens.
        split: its name goes into the chance and the ids.
        seed: the chance.
        workers: processes that draw.
        inputs: the files that `prose` came from, for the card.

    Raises:
        ValueError: unknown variant, no prose where it is needed, or a budget too small for the needles.
    """
    if variant not in RECIPES:
        raise ValueError(f"no NIAH variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    check_positive("count", count, "tasks")
    check_positive("tokens", tokens, "tokens")
    recipe, rng = RECIPES[variant], item_rng(seed, f"{split}\0haystack", 0)
    hay = _hay(recipe, tokens, prose, tokenizer, rng)
    haystack = _Haystack(hay, _sizes(hay, hay, tokenizer), recipe.haystack == "needles")
    # What a tokenizer puts before a text that begins counts once.
    opening = max(0, tokenizer.count(hay.texts[0]) - int(haystack.tokens[0]))
    planner = Planner(recipe, occurring(haystack.documents.texts), f"{split}/{variant}", seed)
    plans = make_items(planner, count, workers=workers, label=f"niah {variant}")
    needles = Documents.tokenized(
        [("", recipe.needle(key, value)) for plan in plans for key, value in plan.needles], tokenizer
    )
    hider = _Hider(variant, split, tokens - opening, haystack, needles, _sizes(needles, hay, tokenizer))
    tasks = [hider.task(i, plan) for i, plan in enumerate(progress(plans, count, "contexts"))]
    return Draft(hider.documents, tasks, Layout("", ""), inputs, "MemNIAH-v0", "string_match_all")


def _hay(
    recipe: Recipe, tokens: int, prose: Sequence[str], tokenizer: TextTokenizer, rng: np.random.Generator
) -> Documents:
    """The haystack's sentences; of needles, about twice as many as fit."""
    if recipe.haystack == "needles":
        (key,), (value,) = draw(recipe.key, 1, rng), draw(recipe.value, 1, rng)
        size = max(_LEAST_POOL, 2 * tokens // tokenizer.count(recipe.needle(key, value)))
        pairs = zip(draw(recipe.key, size, rng), draw(recipe.value, size, rng), strict=True)
        texts = [recipe.needle(key, value) for key, value in pairs]
    elif recipe.haystack == "noise":
        texts = [recipe.document(sentence) for sentence in _NOISE]
    else:
        texts = [recipe.document(sentence) for text in prose for sentence in sentences(text)]
    if not texts:
        raise ValueError("this NIAH variant hides its needles in prose and got none; give a folder of essays")
    return Documents.tokenized([("", text) for text in texts], tokenizer)


def _sizes(documents: Documents, hay: Documents, tokenizer: TextTokenizer) -> Ints:
    """(D,) tokens of each document between two sentences of the haystack.

    Sentences begin and end alike, so those whose first few have no more there than alone have none.
    """
    before, behind = hay.texts[0][-16:], hay.texts[0][:16]  # of a neighbour, what touches is enough

    def more(texts: Sequence[str]) -> Ints:
        return seam_tokens(tokenizer, texts, before, behind) - tokenizer.count(before + behind)

    if not more(documents.texts[:256]).any():
        return documents.tokens
    return documents.tokens + more(documents.texts)


@dataclass(frozen=True)
class _Haystack:
    """Sentences to hide needles among: in their order from anywhere, over and over, or shuffled."""

    documents: Documents
    tokens: Ints  # (D,) of each sentence between two others
    shuffled: bool

    @functools.cached_property
    def ends(self) -> Ints:
        """Tokens before each sentence of two rounds, and behind the last."""
        return np.cumsum(np.concatenate([[0], self.tokens, self.tokens]))

    def take(self, pick: int, room: int) -> Ints:
        """The sentences that `pick` chooses, in reading order, as many as fit in `room` tokens."""
        n = len(self.tokens)
        if self.shuffled:
            order = np.random.default_rng(pick).permutation(n)
            return order[: np.searchsorted(np.cumsum(self.tokens[order]), room, side="right")]
        rounds, rest = divmod(room, int(self.ends[n]))
        start = pick % n
        end = int(np.searchsorted(self.ends, self.ends[start] + rest, side="right")) - 1
        return np.arange(start, rounds * n + end) % n


class _Hider:
    """Puts the needles of plans into the haystack.

    Raises:
        ValueError: the needles of some task alone exceed the budget.
    """

    def __init__(
        self,
        variant: str,
        split: str,
        budget: int,
        haystack: _Haystack,
        needles: Documents,
        needle_tokens: Ints,
    ) -> None:
        self.variant, self.split, self.recipe, self.haystack = variant, split, RECIPES[variant], haystack
        per_task = self.recipe.needles
        used = needle_tokens.reshape(-1, per_task).sum(axis=1)
        if used.max() > budget:
            raise ValueError(
                f"a budget of {budget} tokens is too small for {variant}: the needles of a task alone take "
                f"up to {used.max()}; raise it"
            )
        hay = haystack.documents
        self.rooms = budget - used
        self.hay_chars, self.needle_chars = hay.chars, needles.chars.reshape(-1, per_task)
        self.documents = Documents(
            [*hay.titles, *needles.titles], [*hay.texts, *needles.texts], [*hay.gaps, *needles.gaps]
        )
        # one int object a document, shared by all tasks: a task of 20,000 documents costs 160 kB
        self.numbers = np.arange(len(self.documents.texts)).astype(object)

    def task(self, item: int, plan: Plan) -> Task:
        """The task of item `item`."""
        order = self.haystack.take(plan.pick, int(self.rooms[item]))
        grid, chars = np.array(plan.grid), self.needle_chars[item]
        ends = np.cumsum(np.concatenate([[0], self.hay_chars[order]]))
        at = np.searchsorted(ends, grid * ends[-1])  # the first sentence end at the depth or behind it
        down = np.argsort(grid)
        own = len(self.hay_chars) + item * len(grid) + np.arange(len(grid))
        documents = np.insert(order, at[down], own[down])
        before = np.empty_like(chars)  # characters of the needles above each needle
        before[down] = np.cumsum(chars[down]) - chars[down]
        asked = self.recipe.answers
        depths = ((ends[at] + before) / (ends[-1] + chars.sum()))[:asked]
        keys, values = zip(*plan.needles[:asked], strict=True)
        keys = tuple(dict.fromkeys(keys))
        return Task(
            f"{self.variant}-{self.split}-{item}",
            self.recipe.question(keys),
            (values,),
            tuple(self.numbers[documents].tolist()),
            tuple(self.numbers[own[:asked]].tolist()),
            {
                "variant": self.variant,
                "keys": list(keys),
                "values": list(values),
                "depths": depths.tolist(),
                "grid": list(plan.grid[:asked]),
            },
        )
