"""Questions of a world come in; each with its true context and two whose answer-critical facts are false."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from memenvs.tasks import Task, TaskSet

_WORD_KINDS = ((re.compile(r"^\d[\d,.]*$"), "9"), (re.compile(r"^[^\W\d_a-z]"), "A"))

_CONTEXTS = '{"question", "answer", "context", "corrupted": [two texts]}'


class Contexts(NamedTuple):
    """A question with a true context and corrupted ones.

    Attributes:
        question: what is asked.
        answer: the preferred answer.
        true: the sentences that the answer needs, and those of another question.
        corrupted: the same with the answer replaced by a third question's (`foreign`), and with the answers
            of the two questions exchanged (`swapped`): the same words in the wrong places.
    """

    question: str
    answer: str
    true: str
    corrupted: tuple[str, str]


def corrupt(tasks: TaskSet, *, seed: int = 0) -> list[Contexts]:
    """Contexts of every question that has two others with an answer of its kind.

    Questions have the sentences that they need marked as spans (worlds, HotpotQA's supporting facts) and
    their answer in them; comparisons are left out, where the set says which they are.

    Kind is the shape of the answer's words: numbers, capitalised words, other words. Task i draws its two
    others from `SeedSequence([seed, i])`.

    Raises:
        ValueError: no question of the set can be corrupted.
    """
    chosen = [task for task in tasks if task.meta.get("type", "bridge") == "bridge" and "spans" in task.meta]
    needed = {task.id: _needed(tasks, task) for task in chosen}
    by_kind: dict[str, list[Task]] = {}
    for task in chosen:
        by_kind.setdefault(kind(_answers(task)[0]), []).append(task)
    made = []
    for i, task in enumerate(chosen):
        rng = np.random.default_rng(np.random.SeedSequence([seed, i]))
        others = [other for other in by_kind[kind(_answers(task)[0])] if _apart(task, other, needed)]
        if len(others) < 2:
            continue
        donor, third = (others[j] for j in rng.choice(len(others), 2, replace=False))
        made.append(_contexts(task, donor, third, needed))
    if not made:
        raise ValueError("no question of this task set can be corrupted; it needs spans around its answers")
    return made


def read_contexts(path: str | Path) -> list[Contexts]:
    """Contexts that were corrupted elsewhere, for instance by a language model as in InfoMem's appendix B.

    Args:
        path: JSON Lines of `question`, `answer`, `context` and `corrupted`, a list of two.

    Raises:
        ValueError: a line is something else; the message names it.
    """
    made = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            first, second = record["corrupted"]
            read = Contexts(record["question"], record["answer"], record["context"], (first, second))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path}:{number} is no {_CONTEXTS}: {error!r:.120}") from error
        if not all(isinstance(text, str) and text for text in (*read[:3], first, second)):
            raise ValueError(f"{path}:{number} is no {_CONTEXTS}: each must be a text")
        made.append(read)
    if not made:
        raise ValueError(f"{path} is empty; it needs a line of {_CONTEXTS} for each question")
    return made


def kind(answer: str) -> str:
    """The shape of an answer's words.

    >>> kind("River Yulloa"), kind("1623"), kind("sheaf")
    ('AA', '9', 'a')
    """
    return "".join(
        next((sign for form, sign in _WORD_KINDS if form.match(word)), "a") for word in answer.split()
    )


def _contexts(task: Task, donor: Task, third: Task, needed: dict[str, list[str]]) -> Contexts:
    own, lent = needed[task.id], needed[donor.id]
    mine, theirs = _answers(task), _answers(donor)
    swap = {**_pairs(mine, theirs), **_pairs(theirs, mine)}
    foreign = [*(_replace(text, _pairs(mine, _answers(third))) for text in own), *lent]
    swapped = [_replace(text, swap) for text in [*own, *lent]]
    return Contexts(
        task.question, mine[0], "\n".join([*own, *lent]), ("\n".join(foreign), "\n".join(swapped))
    )


def _needed(tasks: TaskSet, task: Task) -> list[str]:
    """The sentences that the answer needs, behind the titles of their documents."""
    numbers = [document for document, _, _ in task.meta["spans"]]
    titles, texts = tasks.titles(numbers), tasks.texts(numbers)
    return [
        f"{title}: {text[start:end]}"
        for title, text, (_, start, end) in zip(titles, texts, task.meta["spans"], strict=True)
    ]


def _apart(task: Task, other: Task, needed: dict[str, list[str]]) -> bool:
    """Whether neither question's sentences speak of the other's answer."""
    if other.id == task.id or not _speaks(needed[task.id], task) or not _speaks(needed[other.id], other):
        return False
    return not _speaks(needed[task.id], other) and not _speaks(needed[other.id], task)


def _speaks(sentences: Sequence[str], task: Task) -> bool:
    return any(answer in sentence for sentence in sentences for answer in _answers(task))


def _answers(task: Task) -> list[str]:
    return [accepted for objective in task.answers for accepted in objective]


def _pairs(forms: Sequence[str], others: Sequence[str]) -> dict[str, str]:
    """Each form of one answer with a form of the other."""
    return {form: others[min(i, len(others) - 1)] for i, form in enumerate(forms)}


def _replace(text: str, pairs: dict[str, str]) -> str:
    """All at once, the longest form first."""
    forms = sorted(pairs, key=len, reverse=True)
    pattern = re.compile("|".join(rf"(?<!\w){re.escape(form)}(?!\w)" for form in forms))
    return pattern.sub(lambda match: pairs[match[0]], text)
