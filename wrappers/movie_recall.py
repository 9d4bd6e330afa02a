"""Recall of recommended movies: how MemoryAgentBench scores the dialogues of ReDial."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.core.data import Count, checked, decode
from memenvs.core.env import MAX_REPLY_CHARS
from memenvs.core.episode import Turn
from memenvs.core.spaces import clean_text
from memenvs.core.text import thought_end
from memenvs.tasks.metrics import extract_answer
from memenvs.wrappers.method import RewardMethod
from memenvs.wrappers.scorers import TokenScores

MAX_NAME = 200
"""Characters of a recommended name that are compared."""

_PARENTHESES = re.compile(r"\([^()]*\)")
_NUMBERING = re.compile(r"^\d+[.)、]?\s*[-\u2014\u2013]?\s*")
_SPACES = re.compile(r"\s+")


@checked
@dataclass
class MovieRecall(RewardMethod):
    """Pay the share of the right movies among the first k that the last reply recommends.

    A reply is a list from its first `1.` on, one name a line, or names separated by commas; blank lines
    count. Each line without its number and without parentheses is taken for the known movie whose name has
    the smallest edit distance to it, in lower case (of several the first by the alphabet: the original leaves
    that open). The box or the `<answer>` of a reply is read alone, where it has one. Source: MemoryAgentBench
    (`_process_recsys_dataset`), which reports k = 5.

    R takes the place of the environment's outcome, which compares ids and is 0 for every list of names.

    Args:
        names: `entity2id.json` of the data set: every movie's name, and its number, which a task's answers
            are.
        k: recommendations that count.
    """

    names: str
    k: Count = 5

    name = "movie_recall"
    replaces_outcome = True
    needs = ("privileged/answers",)

    def __post_init__(self) -> None:
        _known(self.names)

    def signal(self, turn: Turn, scores: Sequence[TokenScores]) -> float:
        """Recall at k at the last turn, 0 before.

        Raises:
            ValueError: an answer is not the number of a movie in the file.
        """
        if not turn.over:
            return 0.0
        known = _known(self.names)
        answers = [answer for objective in turn.info["privileged"]["answers"] for answer in objective]
        if unknown := [answer for answer in answers if answer not in known.by_number]:
            raise ValueError(
                f"answer {unknown[0]!r} of task {turn.info['task']} is not in {self.names}; "
                "give the entity2id.json of its data set"
            )
        right = [known.by_number[answer] for answer in answers]
        reply = clean_text(turn.action, MAX_REPLY_CHARS)
        reply = reply[thought_end(reply) :]
        given = extract_answer(reply, "boxed") or extract_answer(reply, "tag") or reply
        found = [nearest(line, known) for line in recommended(given)[: self.k]]
        return sum(movie in found for movie in right) / len(right)


class Movies(NamedTuple):
    """Movies by their names.

    Attributes:
        by_number: name by its number, as text.
        names: all different ones, (N,), sorted.
        codes: (N, L) characters of each in lower case, -1 after its end.
        lengths: (N,) characters.
    """

    by_number: dict[str, str]
    names: list[str]
    codes: NDArray[np.int64]
    lengths: NDArray[np.int64]


def movies(numbers: dict[str, int]) -> Movies:
    """Movies of `entity2id.json`: the last part of a path, without parentheses."""
    by_number = {str(number): _plain_name(name) for name, number in numbers.items()}
    names = sorted(set(by_number.values()))
    texts = [_codes(name) for name in names]
    codes = np.full((len(names), max(map(len, texts), default=0)), -1, np.int64)
    for row, text in zip(codes, texts, strict=True):
        row[: len(text)] = text
    return Movies(by_number, names, codes, np.array(list(map(len, texts)), np.int64))


def recommended(reply: str) -> list[str]:
    r"""The names of a list, one a line, in their order.

    >>> recommended("For you:\n1. Heat (1995)\n2) Ran")
    ['Heat', 'Ran']
    >>> recommended("Heat, Ran")
    ['Heat', 'Ran']
    """
    _, numbered, items = reply.partition("1.")
    lines = (items if numbered else reply.replace(",", "\n")).split("\n")
    return [_listed_name(line.strip()) for line in lines]


def nearest(name: str, known: Movies) -> str:
    """The known name with the smallest edit distance (Levenshtein) to this one, in lower case."""
    text, (count, width) = _codes(name[:MAX_NAME]), known.codes.shape
    places = np.arange(width + 1)
    row = np.broadcast_to(places, (count, width + 1))
    for number, code in enumerate(text.tolist(), 1):
        after = np.empty_like(row)
        after[:, 0] = number
        np.minimum(row[:, 1:] + 1, row[:, :-1] + (known.codes != code), out=after[:, 1:])
        # An insertion costs 1 a place: the least of the places to the left, each with its way to here.
        row = np.minimum.accumulate(after - places, axis=1) + places
    return known.names[int(row[np.arange(count), known.lengths].argmin())]


@functools.lru_cache(maxsize=4)
def _known(path: str) -> Movies:
    return movies(decode(Path(path).read_bytes(), dict[str, int], path, "give the data set's entity2id.json"))


def _plain_name(text: str) -> str:
    text = re.sub("[_>-]", " ", text.rpartition("/")[2])
    return _SPACES.sub(" ", _PARENTHESES.sub("", text)).strip()


def _listed_name(text: str) -> str:
    return _SPACES.sub(" ", _NUMBERING.sub("", _PARENTHESES.sub("", text))).strip()


def _codes(text: str) -> NDArray[np.int64]:
    return np.array([ord(character) for character in text.lower()], np.int64)
