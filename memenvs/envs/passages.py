"""Passages as an agent reads them, and whether they hold an answer."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from memenvs.core.text import escape_tags
from memenvs.tasks.mentions import joined_spelling, spelling
from memenvs.tasks.tokens import TextTokenizer, text_gaps


def show_passages(passages: Sequence[str]) -> str:
    """Passages of a title line and a text as Search-R1 shows them: `Doc 1(Title: …) text`, tags escaped."""
    return "".join(_block(number, contents) for number, contents in enumerate(passages, 1))


def cut_passages(passages: Sequence[str], tokenizer: TextTokenizer, max_tokens: int) -> list[str]:
    """The part of each passage that is shown, as Search-R1 shows it, at most `max_tokens` tokens in all.

    Each passage is written and tokenised once and remembered: searches of one task bring the same ones again
    and again.
    """
    parts, left = list[str](), max_tokens
    for number, contents in enumerate(passages, 1):
        block = _block(number, contents)
        gaps = text_gaps(tokenizer, block)
        parts.append(block if len(gaps) <= left else block[: int(gaps[:left].sum())])
        left = max(left - len(gaps), 0)
    return parts


def holds_answer(parts: Sequence[str], answers: Sequence[Sequence[str]]) -> tuple[bool, list[bool]]:
    """Whether a text, and each part of it, contains an accepted answer of any objective as whole words.

    Case, accents, punctuation and leading articles do not matter (`memenvs.tasks.mentions.Spelling`).

    Args:
        parts: the text in parts; all but the last end in white space, so that no word is cut.
        answers: the accepted answers of each objective.
    """
    accepted = [answer for objective in answers for answer in objective]
    spelled = [spelling(part) for part in parts]
    each = [any(map(part.holds, accepted)) for part in spelled]
    return any(each) or (len(parts) > 1 and any(map(joined_spelling(spelled).holds, accepted))), each


@functools.lru_cache(maxsize=20_000)
def _block(number: int, contents: str) -> str:
    title, _, text = contents.partition("\n")
    return escape_tags(f"Doc {number}(Title: {title}) {text}\n")
