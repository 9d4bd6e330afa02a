"""Conversations as in MRCR, of any length.

MRCR (OpenAI, after Vodrahalli et al. 2024) asks for the reply to one of several equal requests. The rules are
theirs, all texts are ours or the haystack's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from memenvs.build.draft import Documents, Draft, item_rng
from memenvs.build.haystack import (
    JOINED,
    interleave,
    opening_tokens,
    prose_sentences,
    read_prose,
    sizes_between,
    too_small,
)
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
    """Conversations.

    Args:
        needles: number of identical requests, 2 to 8.
    """

    num_tasks: Count = 100
    needles: Annotated[int, Meta(ge=2, le=8)] = 4


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
    prose = read_prose(options.essays)[0] if prose is None else prose
    lines = [text.strip() for text in prose_sentences(prose) if not set("\\{}") & set(text)]
    rng = item_rng(seed, f"{split}\0conversation", 0)
    topics = rng.choice(NOUNS, TOPICS, replace=False).tolist()
    requests = [(form, topic) for form in FORMS for topic in topics]
    a_round = tokenizer.count(" ".join(_round(requests[0], lines[: max(_REPLY)])))
    of_pool = rng.integers(len(requests), size=2 * tokens // a_round + 64)
    pool = [_round(requests[number], _draw_reply(lines, rng)) for number in of_pool.tolist()]
    asked, task_rounds = [], []
    rngs = [item_rng(seed, f"{split}/conversation", item) for item in range(count)]
    for rng in rngs:
        number = int(rng.integers(len(requests)))
        asked.append(number)
        task_rounds += [_round(requests[number], _draw_reply(lines, rng)) for _ in range(needles)]
    documents = Documents.tokenized(
        [("", text) for both in [*pool, *task_rounds] for text in both], tokenizer
    )
    each = sizes_between(documents, documents, tokenizer)
    sizes, opening = each.reshape(-1, 2).sum(axis=1), opening_tokens(documents, each, tokenizer)
    chars = documents.chars.reshape(-1, 2).sum(axis=1)
    tasks = []
    for item, rng in enumerate(progress(rngs, count, "conversations")):
        mine = len(pool) + item * needles + np.arange(needles)
        room = tokens - opening - int(sizes[mine].sum())
        if room < 0:
            raise too_small(f"{needles} needles", tokens, f"they alone take {int(sizes[mine].sum())}")
        others = rng.permutation(np.flatnonzero(of_pool != asked[item]))
        others = others[: np.searchsorted(np.cumsum(sizes[others]), room, side="right")]
        places = np.sort(rng.integers(0, len(others) + 1, needles))
        rounds, depths = interleave(others, mine, places, chars)
        form, topic = requests[asked[item]]
        wanted, prefix = int(rng.integers(needles)), "".join(rng.choice(_LETTERS, MRCR_PREFIX).tolist())
        reply = task_rounds[item * needles + wanted][1].removeprefix(_ASSISTANT).rstrip("\n")
        tasks.append(
            Task(
                f"mrcr{needles}-{split}-{item}",
                f"Write {prefix} and right behind it, word for word, the {ORDINALS[wanted]} {form} about the "
                f"{topic} that the assistant wrote, and nothing else.",
                ((prefix + reply,),),
                documents.numbered((2 * rounds[:, None] + [0, 1]).ravel()),
                documents.numbered(2 * mine[wanted] + np.arange(2)),
                {
                    "needles": needles,
                    "asked": wanted + 1,
                    "request": [form, topic],
                    "depths": depths.tolist(),
                },
            )
        )
    return Draft(documents, tasks, JOINED, metric="mrcr_ratio")


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
