"""Needles in a haystack (RULER).

Every document carries its own blank (prose a space before, noise and needle lines a newline behind) and the
layout adds nothing: byte-level BPE joins those blanks to the token beside, so parts count as the joined text.
For tokenizers that do not, a sentence is counted between two others.
"""

from __future__ import annotations

import functools
import re
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from memenvs.build.draft import Documents, Draft, Ints, item_rng, make_items, progress, seam_tokens
from memenvs.core.data import Count, Whole, checked
from memenvs.tasks.taskset import Layout, Task, open_tasks
from memenvs.tasks.tokens import TextTokenizer

# Our own lists: other words than the packages that the papers' code draws from.
_TEXTS = Path(__file__).parent / "texts"
ADJECTIVES, NOUNS = ((_TEXTS / f"{name}.txt").read_text().split() for name in ("adjectives", "nouns"))
_NOISE = (_TEXTS / "noise.txt").read_text().splitlines()

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
        return self.document(f"A {MAGIC} {self.value} for {key} is {value}.")

    def document(self, sentence: str) -> str:
        """A sentence with the blank that parts it from its neighbour: a space before, or a newline behind."""
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
    "single_1",
    "single_2",
    "single_3",
    "multikey_1",
    "multikey_2",
    "multikey_3",
    "multivalue",
    "multiquery",
]
VARIANTS = get_args(Variant)


@checked
def niah(
    *,
    tokens: Count,
    prose: Sequence[str],
    tokenizer: TextTokenizer,
    variant: Variant = "single_2",
    count: Count = 100,
    split: str = "train",
    seed: Whole = 0,
    workers: Count = 1,
    inputs: tuple[Path, ...] = (),
) -> Draft:
    """Tasks that ask for the values of keys hidden in a long text (RULER's NIAH; the wording is ours).

    A task has one objective, whose accepted answers are all its values (scored by `needle_exact`);
    `evidence[i]` tells `meta["values"][i]`. `meta` also has `variant`, the asked `keys`, and for each of the
    evidence `depths`, where it begins, and `grid`, the depth drawn for it: shares of the text, 0 to 1. A
    haystack of needles is drawn for each task from one pool of the split, which holds no asked key or value.

    Args:
        tokens: most tokens of a task's text, tokenised whole; missed by less than one haystack sentence, by
            every tokenizer that splits text at words (see `seam_tokens`).
        prose: texts for the variants that hide needles in prose; repeated where it ends.
        tokenizer: counts the tokens.
        variant: what is hidden, and in what.
        count: tasks.
        split: name of the split; with the seed it decides every random choice.
        seed: decides every random choice.
        workers: processes; the result does not depend on them.
        inputs: the files that `prose` came from, for the card.

    Raises:
        ValueError: an argument out of range, no prose where it is needed, or a budget too small for the
            needles.
    """
    recipe, rng = RECIPES[variant], item_rng(seed, f"{split}\0haystack", 0)
    hay = haystack_sentences(recipe, tokens, prose, tokenizer, rng)
    haystack = Haystack(sizes_between(hay, hay, tokenizer), recipe.haystack == "needles")
    # What a tokenizer puts before a text that begins counts once.
    opening = max(0, tokenizer.count(hay.texts[0]) - int(haystack.tokens[0]))
    planner = Planner(recipe, occurring(hay.texts), f"{split}/{variant}", seed)
    plans = make_items(planner, count, workers=workers, label=f"niah {variant}")
    needles = Documents.tokenized(
        [("", recipe.needle(key, value)) for plan in plans for key, value in plan.needles], tokenizer
    )
    per_task = (count, recipe.needles)
    used = sizes_between(needles, hay, tokenizer).reshape(per_task).sum(axis=1)
    budget = tokens - opening
    if used.max() > budget:
        raise ValueError(
            f"a budget of {budget} tokens is too small for {variant}: the needles of a task alone take "
            f"up to {used.max()}; raise it"
        )
    hide = _Hider(variant, split, haystack, hay.chars, budget - used, needles.chars.reshape(per_task))
    tasks = [hide(item, plan) for item, plan in enumerate(progress(plans, count, "contexts"))]
    documents = Documents(
        [*hay.titles, *needles.titles], [*hay.texts, *needles.texts], [*hay.gaps, *needles.gaps]
    )
    return Draft(documents, tasks, Layout("", ""), inputs, "MemNIAH-v0", "needle_exact")


def haystack_sentences(
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


def sizes_between(documents: Documents, hay: Documents, tokenizer: TextTokenizer) -> Ints:
    """(D,) tokens of each document between two sentences of the haystack.

    Sentences begin and end alike, so those whose first few have no more there than alone have none.
    """
    before, behind = hay.texts[0][-16:], hay.texts[0][:16]  # of a neighbour, what touches is enough

    def more(texts: Sequence[str]) -> Ints:
        return seam_tokens(tokenizer, texts, before, behind) - tokenizer.count(before + behind)

    if not more(documents.texts[:256]).any():
        return documents.tokens
    return documents.tokens + more(documents.texts)


def interleave(order: Ints, lines: Ints, places: Ints, chars: Ints) -> tuple[Ints, NDArray[np.float64]]:
    """Documents with `lines` among them, and where each line begins, as a share of the characters.

    Args:
        order: (N,) documents of the haystack.
        lines: (L,) documents to put there.
        places: (L,) rising, 0 to N: how many of `order` stand before each.
        chars: (D,) of each document.
    """
    documents = np.insert(order, places, lines)
    ends = np.cumsum(chars[documents])
    begins = (ends - chars[documents])[places + np.arange(len(places))]
    return documents, begins / ends[-1]


@dataclass(frozen=True)
class Haystack:
    """Sentences to hide needles among: in their order from anywhere, over and over, or shuffled."""

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


@dataclass(frozen=True)
class Plan:
    """What is drawn for a task."""

    needles: tuple[tuple[str, str], ...]  # key and value of each, those asked for first
    grid: tuple[float, ...]  # the depth drawn for each, a share of the haystack
    pick: int  # chooses the haystack


@dataclass(frozen=True)
class Planner:
    """Draws the plan of an item; `taken` has what the haystack holds, so can be no key and no value."""

    recipe: Recipe
    taken: frozenset[str]
    split: str
    seed: int

    def __call__(self, item: int) -> Plan:
        """The plan of item `item`, from its own generator alone."""
        recipe, rng = self.recipe, item_rng(self.seed, self.split, item)
        keys = draw(recipe.key, recipe.keys, rng, self.taken)
        values = draw(recipe.value, recipe.needles, rng, self.taken)
        grid = rng.choice(DEPTHS, recipe.needles, replace=False)
        needles = tuple(zip(np.repeat(keys, recipe.values).tolist(), values, strict=True))
        return Plan(needles, tuple(grid.tolist()), int(rng.integers(2**63)))


@dataclass(frozen=True)
class _Hider:
    """Puts the needles of a plan into the haystack; documents are its sentences, then all needles."""

    variant: str
    split: str
    haystack: Haystack
    hay_chars: Ints  # (D,) of each sentence
    rooms: Ints  # (tasks,) tokens left for the haystack
    needle_chars: Ints  # (tasks, needles)

    @functools.cached_property
    def numbers(self) -> NDArray[np.object_]:
        """One int object a document, shared by all tasks: a task of 20,000 documents costs 160 kB."""
        return np.arange(len(self.hay_chars) + self.needle_chars.size).astype(object)

    def __call__(self, item: int, plan: Plan) -> Task:
        recipe = RECIPES[self.variant]
        order = self.haystack.take(plan.pick, int(self.rooms[item]))
        grid, chars = np.array(plan.grid), self.needle_chars[item]
        ends = np.cumsum(np.concatenate([[0], self.hay_chars[order]]))
        at = np.searchsorted(ends, grid * ends[-1])  # the first sentence end at the depth or behind it
        down = np.argsort(grid)
        own = len(self.hay_chars) + item * len(grid) + np.arange(len(grid))
        documents = np.insert(order, at[down], own[down])
        before = np.empty_like(chars)  # characters of the needles above each needle
        before[down] = np.cumsum(chars[down]) - chars[down]
        asked = recipe.answers
        depths = ((ends[at] + before) / (ends[-1] + chars.sum()))[:asked]
        keys, values = zip(*plan.needles[:asked], strict=True)
        keys = tuple(dict.fromkeys(keys))
        return Task(
            f"{self.variant}-{self.split}-{item}",
            recipe.question(keys),
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
        ValueError: there are not so many.
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


def occurring(texts: Sequence[str]) -> frozenset[str]:
    """Every string of any kind that the texts hold by chance, lower-cased, inside longer strings too."""
    return frozenset(found for text in texts for look in _LOOK for found in look.findall(text.lower()))


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


def read_prose(folder: Path | None) -> tuple[list[str], tuple[Path, ...]]:
    """The texts of every `*.txt` of a folder, and the files, sorted by name; None: the bundled world's.

    Raises:
        FileNotFoundError: the folder has none.
        ValueError: one of them is not UTF-8.
    """
    if folder is None:
        bundle = open_tasks("world-train")
        return bundle.texts(range(bundle.n_documents)), ()
    files = tuple(sorted(path for path in folder.glob("*.txt") if path.is_file()))
    if not files:
        raise FileNotFoundError(f"no *.txt in {folder}; give a folder of essays as plain text")
    texts = []
    for path in files:
        try:
            texts.append(path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8"
            ) from error
    return texts, files


_LONGEST = 100  # words of a sentence, where prose has no stops
_STOP = re.compile(r"[.!?\u2026\u3002\uff01\uff1f]\W*$")
_FULLWIDTH_STOP = re.compile(r"[\u3002\uff01\uff1f]\W*")  # Chinese and Japanese: no space behind
_ABBREVIATIONS = frozenset("dr. e.g. etc. i.e. mr. mrs. ms. no. prof. st. u.s. vs.".split())


def sentences(text: str) -> list[str]:
    """The sentences of a text, one space between two words; joined they are the text up to white space.

    A sentence ends at a stop, unless a small letter follows or the stop is an abbreviation's or an initial's;
    and after `_LONGEST` words.
    """
    words = _FULLWIDTH_STOP.sub(r"\g<0> ", text).split()
    ended: list[str] = []
    start = 0
    for end, (word, after) in enumerate(zip(words, [*words[1:], ""], strict=False), 1):
        if _stops(word, after) or end - start == _LONGEST or end == len(words):
            ended.append(" ".join(words[start:end]))
            start = end
    return ended


def _stops(word: str, after: str) -> bool:
    """Whether a sentence ends between two words."""
    if not _STOP.search(word) or after[:1].islower():
        return False
    bare = word.lstrip("([\"'").lower()
    return bare not in _ABBREVIATIONS and not (len(bare) == 2 and bare[0].isalpha() and bare[1] == ".")
