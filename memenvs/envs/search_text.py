"""What a searching agent reads and writes: prompts, replies in tags, passages."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

import numpy as np

from memenvs.metrics import normalize_answer
from memenvs.prompts import Template
from memenvs.tags import first_pair, in_order
from memenvs.tokens import Gaps, TextTokenizer

ASK = Template(
    """\
Answer the question. Think inside <think>…</think> whenever you learn something. If you lack knowledge, \
search by <search>query</search>; what is found comes back inside <information>…</information>. You may \
search up to {searches} times. When you know the answer, give it without explanation, as short as it can be, \
inside <answer>…</answer>{several}.

Question: {question}
""",
    required=("question",),
    optional=("searches", "several"),
)

ASK_WITH_MEMORY = Template(
    """\
Answer the question with the help of a search engine. You do not see earlier turns: all that reaches you is \
your own memory and what your last search found. So open every reply with <mem>…</mem>: all you have learned \
so far and what is still to be found. Then think inside <think>…</think>. Then either search by \
<search>query</search>, or, when you know the answer, give it as short as it can be inside \
<answer>…</answer>{several}. There are {turns} turns left.

Question: {question}

<mem>
{memory}
</mem>
{recent}""",
    required=("question", "memory", "recent"),
    optional=("turns", "several"),
)

UNREADABLE = """
There was neither <search>query</search> nor <answer>text</answer> in that. Use one of them.
"""

LAST = "No searches are left: answer now.\n\n"

_KINDS: tuple[Literal["search", "answer"], ...] = ("search", "answer")
_KNOWN_TAGS = re.compile(
    r"<(/?\s*(?:think|search|answer|information|mem|reasoning|tool|result)\s*)>", re.IGNORECASE
)


class Move(NamedTuple):
    """What a reply does.

    Attributes:
        kind: `"search"`, `"answer"` or, where there is neither, `""`.
        content: the query or the answer, stripped.
        well_formed: the reply is a thought (after a memory, where one is asked for) and one of them, and
            nothing else; no tag that agents or environments use stands inside (MT-PPO 5.2: each once).
        memory: what stands in `<mem>`; None where nothing does.
    """

    kind: Literal["search", "answer", ""]
    content: str
    well_formed: bool
    memory: str | None = None


def read_reply(reply: str, *, memory: bool = False) -> Move:
    """Read one reply of a searching agent, as Search-R1 does.

    It ends at its first `</search>`, else at its first `</answer>`; of what is left the first complete pair
    of tags decides, also one inside `<think>`.

    Args:
        reply: the reply.
        memory: it opens with `<mem>…</mem>`, whose tags mean nothing; without it it is not well formed.
    """
    remembered: str | None = None
    if memory:
        written = first_pair(reply, "mem")
        if written and not reply[: written.start].strip():
            remembered, reply = written.text.strip(), reply[written.end :]
    kept = reply[: _cut(reply)]
    pairs = [(pair.start, tag, pair) for tag in _KINDS if (pair := first_pair(kept, tag))]
    if not pairs:
        return Move("", "", False, remembered)
    _, kind, pair = min(pairs)
    parts = in_order(reply, "think", kind)
    once = parts is not None and not any(_KNOWN_TAGS.search(part.text) for part in parts)
    return Move(kind, pair.text.strip(), once and (remembered is not None or not memory), remembered)


def _cut(reply: str) -> int:
    for closing in ("</search>", "</answer>"):
        at = reply.find(closing)
        if at >= 0:
            return at + len(closing)
    return len(reply)


def show_passages(passages: Sequence[str]) -> str:
    """Passages as Search-R1 shows them: `Doc 1(Title: …) text`, a line each; tags in them made harmless.

    Args:
        passages: contents: a title line, then the text.
    """
    return "".join(_block(number, contents) for number, contents in enumerate(passages, 1))


def _block(number: int, contents: str) -> str:
    title, _, text = contents.partition("\n")
    return harmless(f"Doc {number}(Title: {title}) {text}\n")


def harmless(text: str) -> str:
    """`text` with the tags that agents and environments use written in ‹ ›, so that none is one."""
    return _KNOWN_TAGS.sub("‹\\1›", text)


def cut_passages(passages: Sequence[str], tokenizer: TextTokenizer, max_tokens: int) -> str:
    """Passages as they are shown, cut at `max_tokens` tokens.

    Each passage is tokenised once and remembered: searches of one task bring the same ones again and again.
    """
    gaps = [_gaps(tokenizer, _block(number, contents)) for number, contents in enumerate(passages, 1)]
    shown = show_passages(passages)
    if sum(map(len, gaps)) > max_tokens:
        shown = shown[: int(np.concatenate(gaps)[:max_tokens].sum())]
    return shown.strip()


def passages_shown(passages: Sequence[str], shown: str) -> list[str]:
    """What `cut_passages` left of each passage in the text that it made of them; empty where nothing."""
    ends = list(accumulate(len(_block(number, contents)) for number, contents in enumerate(passages, 1)))
    return [shown[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@functools.lru_cache(maxsize=20_000)
def _gaps(tokenizer: TextTokenizer, block: str) -> Gaps:
    (gaps,) = tokenizer.gaps([block])
    return gaps


def information(shown: str) -> str:
    """What comes back for a search; the tag is always closed."""
    return f"\n\n<information>{shown}</information>\n\n"


def holds_answer(text: str, answers: Sequence[Sequence[str]]) -> bool:
    """Whether an accepted answer of any objective stands in the text, as whole words."""
    words = f" {normalize_answer(text)} "
    accepted = (normalize_answer(answer) for objective in answers for answer in objective)
    return any(f" {answer} " in words for answer in accepted if answer)


def several(objectives: int) -> str:
    """How several questions are answered; nothing for one."""
    if objectives == 1:
        return ""
    return f": the {objectives} answers in the order of the questions, with ; between them"
