"""Conversations as in MRCR, of any length: `memenvs build mrcr_world --needles 4 --tokens 64000 --out DIR`.

MRCR (OpenAI, after Vodrahalli et al. 2024) asks for the reply to one of several equal requests. The rules are
theirs, all texts are ours or the haystack's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from memenvs.build.draft import DiskList, Documents, Draft, item_rng
from memenvs.build.haystack import JOINED, TaskDocuments, interleave, prose_sentences, read_prose, too_small
from memenvs.build.niah import NOUNS
from memenvs.build.options import Hidden
from memenvs.core.data import Count
from memenvs.core.progress import progress
from memenvs.tasks.metrics import MRCR_PREFIX
from memenvs.tasks.taskset import Task
from memenvs.tasks.tokens import TextTokenizer

# Any change gives other tasks: build task sets and their recorded hashes again.
FORMS = ("poem", "letter", "speech", "fable", "recipe", "diary entry", "short story", "news report")
TOPICS = 24  # of the requests of a split
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_REPLY = (3, 6)  # sentences of a reply
_LETTERS = np.array(list("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"))


@dataclass(frozen=True, kw_only=True)
class ConversationOptions(Hidden):
    """Conversations."""

    num_tasks: Count = 100
    """number of tasks."""
    needles: Annotated[int, Meta(ge=2, le=8)] = 4
    """number of identical requests, 2 to 8."""


def conversations(
    options: ConversationOptions, tokenizer: TextTokenizer, prose: Sequence[str] | None = None
) -> Draft:
    """Tasks that ask for the reply to one of the equal requests, after a random string.

    A message is a document, `User: …` or `Assistant: …`. A reply names what was asked for and continues with
    sentences of the prose, so the reply that is asked for looks like the others. An answer without the random
    string scores 0 (`mrcr_ratio`). Evidence are the request and its reply; `meta` has `needles`, `asked`
    (from 1), `request`, and `depths` of all requests that are equal to it.

    Raises:
        ValueError: an argument out of range, no prose, or a budget too small for the needles.
    """
    needles, split, seed = options.needles, options.split, options.seed
    tokens, count = options.tokens, options.num_tasks
    prose = read_prose(options.essays) if prose is None else prose
    lines = [text.strip() for text in prose_sentences(prose) if not set("\\{}") & set(text)]
    rng = item_rng(seed, f"{split}\0conversation", 0)
    topics = rng.choice(NOUNS, TOPICS, replace=False).tolist()
    requests = [(form, topic) for form in FORMS for topic in topics]
    a_round = tokenizer.count(" ".join(_round(requests[0], lines[: max(_REPLY)])))
    of_pool = rng.integers(len(requests), size=2 * tokens // a_round + 64)
    rounds = [_round(requests[number], _draw_reply(lines, rng)) for number in of_pool.tolist()]
    pool = Documents.tokenized([("", text) for both in rounds for text in both], tokenizer)
    drawn = DiskList[tuple[int, list[str], np.random.Generator]]()
    for item in range(count):
        rng = item_rng(seed, f"{split}/conversation", item)
        number = int(rng.integers(len(requests)))
        pairs = [_round(requests[number], _draw_reply(lines, rng)) for _ in range(needles)]
        drawn.append((number, [text for both in pairs for text in both], rng))
    every = TaskDocuments((texts for _, texts, _ in drawn), pool, tokenizer)
    # from here on a round is one number: its request and its reply are never parted
    sizes = np.concatenate([every.shared_sizes, every.sizes.ravel()]).reshape(-1, 2).sum(axis=1)
    chars = every.documents.chars.reshape(-1, 2).sum(axis=1)
    tasks = DiskList[Task]()
    for item, (number, texts, rng) in enumerate(progress(drawn, count, "conversations")):
        mine = len(rounds) + item * needles + np.arange(needles)
        room = tokens - every.opening - int(sizes[mine].sum())
        if room < 0:
            raise too_small(f"{needles} needles", tokens, f"they alone take {int(sizes[mine].sum())}")
        others = rng.permutation(np.flatnonzero(of_pool != number))
        others = others[: np.searchsorted(np.cumsum(sizes[others]), room, side="right")]
        places = np.sort(rng.integers(0, len(others) + 1, needles))
        read, depths = interleave(others, mine, places, chars)
        id_ = f"mrcr{needles}-{split}-{item}"
        form, topic = requests[number]
        wanted = int(rng.integers(needles))
        prefix = "".join(rng.choice(_LETTERS, MRCR_PREFIX).tolist())
        reply = texts[2 * wanted + 1].removeprefix(_ASSISTANT).rstrip("\n")
        question = (
            f"Write {prefix} and right behind it, word for word, the {ORDINALS[wanted]} {form} about the "
            f"{topic} that the assistant wrote, and nothing else."
        )
        documents = tuple((2 * read[:, None] + np.arange(2)).ravel().tolist())
        evidence = tuple((2 * mine[wanted] + np.arange(2)).tolist())
        meta = {"needles": needles, "asked": wanted + 1, "request": [form, topic], "depths": depths.tolist()}
        tasks.append(Task(id_, question, ((prefix + reply,),), documents, evidence, meta))
    return Draft(every.documents, tasks, JOINED, metric="mrcr_ratio")


_ASSISTANT = "Assistant: "


def _round(request: tuple[str, str], reply: Sequence[str]) -> tuple[str, str]:
    """A request and a reply, each a line with its newline."""
    form, topic = request
    return (
        f"User: Write a {form} about the {topic}.\n",
        f"{_ASSISTANT}Here is a {form} about the {topic}. {' '.join(reply)}\n",
    )


def _draw_reply(lines: Sequence[str], rng: np.random.Generator) -> list[str]:
    return [lines[i] for i in rng.integers(len(lines), size=int(rng.integers(_REPLY[0], _REPLY[1] + 1)))]
