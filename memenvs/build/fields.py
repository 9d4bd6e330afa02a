"""A field of a source's record comes in; it goes out checked, or one line names the question and the mend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memenvs.build.examples import Example
from memenvs.metrics import normalize_answer
from memenvs.spaces import is_utf8


def read_text(value: Any, what: str, where: str) -> str:
    """`value` if it is a `str` that can be written as UTF-8."""
    if not isinstance(value, str):
        raise ValueError(f"{where} has {value!r:.80} as {what}, which is no text; mend it or leave it out")
    if not is_utf8(value):
        raise ValueError(f"{where} has a lone surrogate in its {what}; replace it, as by U+FFFD")
    return value


def read_question(value: Any, where: str) -> str:
    """A question that asks something."""
    question = read_text(value, "question", where)
    if not question.strip():
        raise ValueError(f"{where} asks nothing: its question is {question!r}; leave it out of the file")
    return question


def read_id(value: Any, source: str) -> str:
    """An id as text; a `str` or a whole number."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(f"{source} has a question whose id is {value!r:.80}; ids are texts or numbers")
    return read_text(str(value), "id", f"a question of {source}")


def read_answers(preferred: Any, aliases: Any, where: str) -> tuple[str, ...]:
    """The accepted answers, the preferred one first, once each; aliases that say nothing are dropped.

    An answer that is nothing when normalised ("", "The") would pay silence.
    """
    answer = read_text(preferred, "answer", where)
    if not normalize_answer(answer):
        raise ValueError(
            f"{where} has the answer {answer!r}, which is nothing once articles and punctuation are gone, so "
            "that silence would be right; leave the question out of the file"
        )
    if not isinstance(aliases, (list, tuple)):
        raise ValueError(f"{where} has {aliases!r:.80} as answer aliases; they are a list of texts")
    others = [read_text(alias, "answer alias", where) for alias in aliases]
    return tuple(dict.fromkeys([answer, *(other for other in others if normalize_answer(other))]))


def check_examples(examples: Sequence[Example], source: str, none: str) -> None:
    """Raise a one-line `ValueError` where there are none, or two have one id."""
    if not examples:
        raise ValueError(f"{source} {none}")
    seen: set[str] = set()
    for example in examples:
        if example.id in seen:
            raise ValueError(f"{source} has two questions of the id {example.id!r}; give each its own")
        seen.add(example.id)
