"""RULER's thirteen tasks by their own names (Hsieh et al., 2024; counts and rules are RULER's, wording ours).

Needles (`niah_…`) are those of `memenvs.build.niah`, here scored by RULER's `string_match_all`. A budget is
for the text alone, as there; RULER's also covers its prompt, a worked example and the reply, so our texts are
that much longer.

    memenvs build ruler --kind vt cwe fwe --tokens 32768 --num-tasks 500 --out data/ruler32k
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from memenvs.build.contexts import Example
from memenvs.build.draft import DiskList, Documents, Draft, Ints, item_rng, sizes_with_headers
from memenvs.build.examples import Pool
from memenvs.build.haystack import JOINED, NOISE, Haystack, TaskDocuments, too_small
from memenvs.build.niah import ADJECTIVES, NOUNS, NiahOptions, Variant, draw, niah
from memenvs.build.options import DrawnFile, Hidden
from memenvs.build.readers.hotpotqa import read_hotpotqa
from memenvs.core.data import Count
from memenvs.core.processes import Workers
from memenvs.core.progress import progress
from memenvs.tasks.cells import scorable
from memenvs.tasks.records import Id, read_records
from memenvs.tasks.taskset import Layout, Task
from memenvs.tasks.tokens import TextTokenizer

FILES = {"qa_1": "SQuAD's", "qa_2": "HotpotQA's"}  # whose official file a task reads
Kind = Literal[
    "niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2",
    "niah_multikey_3", "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "qa_1", "qa_2",
]  # fmt: skip

COMMON = 10  # common words of `cwe`
LONG = 4096  # tokens from which `cwe` repeats its words more often
REPEATS = {False: (6, 1), True: (30, 3)}  # of a common and of another word, by `tokens >= LONG`
ALPHA = 2.0  # of the zeta distribution of `fwe`
ZETA = math.pi**2 / 6  # zeta(2)
FREQUENT = 3  # words that `fwe` asks for, after the first, which is noise
DOTS = "..."
_TOKENS_A_WORD = 50  # `fwe` has a vocabulary of one word for each 50 tokens
_LIST = Layout(" {i}.", "")  # of `cwe`; blanks as in `niah`, so that parts count as the joined text


@dataclass(frozen=True, kw_only=True)
class RulerOptions(Hidden):
    """RULER's tasks."""

    num_tasks: Count | None = None
    """number of tasks (default: 100, of qa_1 and qa_2 every question once)."""
    kind: Sequence[Kind]
    """RULER's names of the tasks; each becomes a task set."""
    source: str | None = None
    """official file, of SQuAD for qa_1, of HotpotQA for qa_2."""
    chains: Count = 1
    """number of chains in vt; the question is about one of them."""
    hops: Count = 4
    """number of assignments in a chain of vt after the first."""
    workers: Workers = 1
    """number of processes, or ray for the workers of a Ray cluster; the result is the same."""


def ruler(options: RulerOptions, tokenizer: TextTokenizer, prose: Sequence[str] | None = None) -> Draft:
    """Tasks of the first of the kinds.

    Raises:
        ValueError: a budget too small for the task, or a source that is missing.
    """
    kind, source, count = options.kind[0], options.source, options.num_tasks or 100
    if kind.startswith("niah_"):
        needles = NiahOptions(
            variant=cast(Variant, kind.removeprefix("niah_")),
            tokens=options.tokens,
            num_tasks=count,
            essays=options.essays,
            split=options.split,
            seed=options.seed,
            workers=options.workers,
        )
        return replace(niah(needles, tokenizer, prose), metric="string_match_all")
    if kind in FILES:
        if source is None:
            raise ValueError(f"--kind {kind} needs --source, {FILES[kind]} official file")
        pool = (read_squad if kind == "qa_1" else read_hotpotqa)(source, options.split)
        drawn = DrawnFile(source=source, tokens=options.tokens, seed=options.seed, workers=options.workers)
        draft = pool.draw(drawn, tokenizer, options.num_tasks, options.split)
        return replace(draft, metric="string_match_part")
    make = {"vt": _variables, "cwe": _common_words, "fwe": _frequent_words}[kind]
    return make(options, count, tokenizer)


# Variable tracking.


def _variables(options: RulerOptions, count: int, tokenizer: TextTokenizer) -> Draft:
    """`vt`: a variable gets a number, others one after the other its value; all of them are asked for.

    Names have five capitals, numbers five digits. The assignments of a chain keep their order, at places
    drawn from all of the noise. `meta` has `value`, the asked `variables`, and `depths` of their lines.
    """
    chains, hops, split = options.chains, options.hops, options.split
    taken = "".join(NOISE).lower()
    rngs = (item_rng(options.seed, f"{split}/vt", item) for item in range(count))
    drawn = DiskList((_chains(chains, hops, taken, rng), rng) for rng in rngs)
    each = chains * (hops + 1)  # assignments of a task
    lines = ([f"{line}\n" for *_, chain in of_task for line in chain] for of_task, _ in drawn)
    haystack = Haystack(NOISE, lines, options.tokens, tokenizer)
    tasks = DiskList[Task]()
    for item, (of_task, rng) in enumerate(progress(drawn, count, "vt tasks")):
        order = haystack.take(item, int(rng.integers(2**63)))
        if len(order) < each:
            why = f"its {each} assignments take {haystack.used[item]} and need as many lines"
            raise too_small("vt", options.tokens, why)
        places = np.sort(rng.choice(len(order), each, replace=False))
        shuffled = rng.permutation(np.repeat(np.arange(chains), hops + 1))
        line = np.empty(each, np.int64)  # which is at each place
        line[np.argsort(shuffled, kind="stable")] = np.arange(each)
        documents, holding, depths = haystack.hide(item, order, places, line)
        value, names, _ = of_task[0]
        question = (
            f"Which variables have the value {value}, given to them as a number or by another variable? "
            f"There are {hops + 1}; name them all."
        )
        meta = {
            "task": "vt",
            "hops": hops,
            "value": value,
            "variables": names,
            "depths": depths[: hops + 1].tolist(),
        }
        tasks.append(
            Task(f"vt-{split}-{item}", question, (tuple(names),), documents, holding[: hops + 1], meta)
        )
    return Draft(haystack.documents, tasks, JOINED, metric="string_match_all")


def _chains(
    chains: int, hops: int, taken: str, rng: np.random.Generator
) -> list[tuple[str, list[str], list[str]]]:
    """Value, variables and assignments of each chain; no two of a task share a value or a name."""
    values = rng.choice(np.arange(10_000, 100_000), chains, replace=False).tolist()
    names: dict[str, None] = {}
    letters = np.array(list(string.ascii_uppercase))
    while len(names) < chains * (hops + 1):
        name = "".join(rng.choice(letters, 5).tolist())
        if name.lower() not in taken:
            names[name] = None
    each = np.array(list(names)).reshape(chains, hops + 1).tolist()
    return [
        (
            str(value),
            chain,
            [f"VAR {chain[0]} = {value}"]
            + [f"VAR {name} = VAR {before}" for before, name in itertools.pairwise(chain)],
        )
        for value, chain in zip(values, each, strict=True)
    ]


# Common and frequent words.


def _common_words(options: RulerOptions, count: int, tokenizer: TextTokenizer) -> Draft:
    """`cwe`: a numbered list of words: ten occur 30 times, the others three times.

    Below 4,096 tokens they occur six times and once. Words are single while our stock is enough for the
    budget, and pairs ("icy-beetle") otherwise; RULER uses a longer list then. `meta` has the `words` asked
    for and how often they and the others occur (`repeats`).
    """
    tokens, seed, split = options.tokens, options.seed, options.split
    many, few = REPEATS[tokens >= LONG]
    words = list(dict.fromkeys([*ADJECTIVES, *NOUNS]))
    pool, sizes, added = _word_list(words, tokens, tokenizer)
    if few * int(sizes.sum()) + int(added[min(few * len(words), len(added)) - 1]) <= tokens:
        of_a_pair = tokenizer.count(" 1. icy-bee")
        rng = item_rng(seed, f"{split}\0words", 0)
        words = draw("word", min(2 * tokens // (few * of_a_pair) + 1000, 200_000), rng)
        pool, sizes, added = _word_list(words, tokens, tokenizer)
    answerable = _in_no_other(words)
    tasks = DiskList[Task]()
    for item in progress(range(count), count, "cwe tasks"):
        rng = item_rng(seed, f"{split}/cwe", item)
        common = rng.choice(answerable, COMMON, replace=False)
        others = rng.permutation(np.setdiff1d(np.arange(len(words)), common))
        entries = np.minimum(many * COMMON + few * np.arange(len(others) + 1), len(added))
        used = np.concatenate([[0], few * np.cumsum(sizes[others])]) + many * sizes[common].sum()
        fitting = int(np.searchsorted(used + added[entries - 1], tokens, side="right")) - 1
        if fitting < 1:
            why = f"its {COMMON} common words take {used[0] + added[entries[0] - 1]}"
            raise too_small("cwe", tokens, why)
        if fitting == len(others):
            raise ValueError(
                f"--tokens {tokens} is more than {len(words):,} words fill; ask for fewer tokens"
            )
        documents = rng.permutation(
            np.concatenate([np.repeat(common, many), np.repeat(others[:fitting], few)])
        )
        answers = [words[number] for number in common]
        tasks.append(
            Task(
                f"cwe-{split}-{item}",
                f"Which {COMMON} words appear most often in the numbered list?",
                (tuple(answers),),
                tuple(documents.tolist()),
                tuple(common.tolist()),
                {"task": "cwe", "words": answers, "repeats": [many, few]},
            )
        )
    return Draft(pool, tasks, _LIST, metric="string_match_all")


def _word_list(words: Sequence[str], tokens: int, tokenizer: TextTokenizer) -> tuple[Documents, Ints, Ints]:
    """The words as entries of a list, (D,) their tokens, and those of the numbers of 1, 2, … entries."""
    pool = Documents.tokenized([("", f" {word}") for word in words], tokenizer)
    most = tokens // (1 + int(pool.tokens.min()))  # a number has a token too
    sizes, added = sizes_with_headers(pool, _LIST, tokenizer, max(COMMON * REPEATS[True][0], most) + 1)
    return pool, sizes, added


def _in_no_other(words: Sequence[str]) -> Ints:
    """The numbers of the words that are no part of another, so that a reply of the other cannot score.

    Pairs are held against pairs by their halves: "icy-bee" is a part of "spicy-beetle".
    """
    if "-" not in words[0]:
        return np.array([i for i, word in enumerate(words) if sum(word in other for other in words) == 1])
    pairs = [word.split("-") for word in words]
    firsts, seconds = {first for first, _ in pairs}, {second for _, second in pairs}
    inside = {first for first in firsts if sum(other.endswith(first) for other in firsts) > 1}
    inside |= {second for second in seconds if sum(other.startswith(second) for other in seconds) > 1}
    return np.array([i for i, pair in enumerate(pairs) if inside.isdisjoint(pair)])


def _frequent_words(options: RulerOptions, count: int, tokenizer: TextTokenizer) -> Draft:
    """`fwe`: coded words of six letters whose counts follow a zeta distribution; three are asked for.

    Word k of a vocabulary of `tokens / 50` occurs floor(N k^-2 / zeta(2)) times; the first is dots, which the
    question says to ignore, and the next three are the answer. N is the largest that the budget holds. `meta`
    has the `words` and their `counts`.
    """
    tokens, split = options.tokens, options.split
    vocabulary = tokens // _TOKENS_A_WORD
    ranks = np.arange(1, min(vocabulary, math.isqrt(tokens) + 2) + 1)
    share = ranks**-ALPHA / ZETA
    if len(ranks) < FREQUENT + 2:
        raise too_small("fwe", tokens, f"a vocabulary of {vocabulary} words has no {FREQUENT} frequent ones")
    rngs = (item_rng(options.seed, f"{split}/fwe", item) for item in range(count))
    drawn = DiskList((_coded_words(len(ranks) - 1, rng), rng) for rng in rngs)
    dots = Documents.tokenized([("", f" {DOTS}")], tokenizer)
    coded = TaskDocuments(([f" {word}" for word in words] for words, _ in drawn), dots, tokenizer)
    tasks = DiskList[Task]()
    for item, (words, rng) in enumerate(progress(drawn, count, "fwe tasks")):
        numbers = np.concatenate([[0], 1 + item * (len(ranks) - 1) + np.arange(len(ranks) - 1)])
        sizes = np.concatenate([coded.shared_sizes, coded.sizes[item]])
        of_each = _zeta_counts(share, sizes, tokens - coded.opening)
        if of_each[FREQUENT] <= of_each[FREQUENT + 1]:
            raise too_small("fwe", tokens, "the third and the fourth coded word would occur equally often")
        documents = rng.permutation(np.repeat(numbers, of_each))
        asked = numbers[1 : FREQUENT + 1]
        tasks.append(
            Task(
                f"fwe-{split}-{item}",
                f"Which {FREQUENT} coded words appear most often in the text? Ignore the dots.",
                (tuple(words[:FREQUENT]),),
                tuple(documents.tolist()),
                tuple(asked.tolist()),
                {"task": "fwe", "words": words[:FREQUENT], "counts": of_each[1 : FREQUENT + 1].tolist()},
            )
        )
    return Draft(coded.documents, tasks, JOINED, metric="string_match_all")


def _zeta_counts(share: NDArray[np.floating[Any]], sizes: Ints, budget: int) -> Ints:
    """floor(N `share`) of each word for the largest N whose words have no more than `budget` tokens."""
    low, high = 0, 2 * budget + 2  # N; a word has a token at least, and the first is over half of them
    while high - low > 1:
        middle = (low + high) // 2
        fits = int((middle * share).astype(np.int64) @ sizes) <= budget
        low, high = (middle, high) if fits else (low, middle)
    return (low * share).astype(np.int64)


def _coded_words(count: int, rng: np.random.Generator) -> list[str]:
    """Different words of six random letters."""
    words: dict[str, None] = {}
    while len(words) < count:
        for row in rng.integers(ord("a"), ord("z") + 1, (count - len(words), 6), np.uint8):
            words[row.tobytes().decode()] = None
    return list(words)


# Question answering.

_WHAT = "SQuAD's official JSON (dev-v2.0.json, dev-v1.1.json)"


class _SquadAnswer(msgspec.Struct):
    text: str


class _Asked(msgspec.Struct):
    id: Id
    question: str
    answers: list[_SquadAnswer] = []
    is_impossible: bool = False


class _SquadParagraph(msgspec.Struct):
    context: str
    qas: list[_Asked]


class _Article(msgspec.Struct):
    paragraphs: list[_SquadParagraph]


class _SQuAD(msgspec.Struct):
    data: list[_Article]


def read_squad(source: str, split: str) -> Pool:
    """Examples of SQuAD's own file: its paragraph is the evidence, those of the same article come next.

    Questions marked impossible are left out and counted. Paragraphs have no title, as in RULER.

    Raises:
        ValueError: the file is not SQuAD, or one of its questions cannot be used, which the error names.
    """
    examples = []
    for file in read_records(source, split, _SQuAD, _WHAT):
        for article in file.data:
            texts = tuple(("", paragraph.context) for paragraph in article.paragraphs)
            for number, paragraph in enumerate(article.paragraphs):
                for asked in paragraph.qas:
                    answers = () if asked.is_impossible else scorable(answer.text for answer in asked.answers)
                    examples.append(Example(str(asked.id), asked.question, answers, texts, (number,)))
    return Pool.of(examples, source)
