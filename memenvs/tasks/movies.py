"""Recall of recommended movies: how MemoryAgentBench scores the dialogues of ReDial."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.core.data import decode

RECOMMENDED = 5  # recommendations that count
MAX_NAME = 200  # characters of a recommended name that are compared

_PARENTHESES = re.compile(r"\([^()]*\)")
_NUMBERING = re.compile(r"^\d+[.)、]?\s*[-\u2014\u2013]?\s*")
_SPACES = re.compile(r"\s+")


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

    def recall(self, text: str, numbers: Sequence[str]) -> float:
        """The share of the right movies among the first five that a text recommends.

        A text is a list from its first `1.` on, one name a line, or names separated by commas; blank lines
        count. Each line without its number and without parentheses is taken for the known movie whose name
        has the smallest edit distance to it, in lower case (of several the first by the alphabet: the
        original leaves that open). Source: MemoryAgentBench (`_process_recsys_dataset`).

        Args:
            text: what was recommended.
            numbers: the right movies' numbers, a task's answers.
        """
        recommendations = {self.nearest(name) for name in recommended(text)[:RECOMMENDED]}
        right = self.right(numbers)
        return sum(movie in recommendations for movie in right) / len(right) if right else 0.0

    def right(self, numbers: Sequence[str]) -> list[str]:
        """The names of movies by their numbers.

        Raises:
            ValueError: one is not the number of a movie.
        """
        if unknown := [number for number in numbers if number not in self.by_number]:
            raise ValueError(
                f"answer {unknown[0]!r} is not the number of a movie; give the entity2id.json of its data set"
            )
        return [self.by_number[number] for number in numbers]

    def nearest(self, name: str) -> str:
        """The known name with the smallest edit distance (Levenshtein) to this one, in lower case."""
        text, (count, width) = _codes(name[:MAX_NAME]), self.codes.shape
        places = np.arange(width + 1)
        row = np.broadcast_to(places, (count, width + 1))
        for number, code in enumerate(text.tolist(), 1):
            after = np.empty_like(row)
            after[:, 0] = number
            np.minimum(row[:, 1:] + 1, row[:, :-1] + (self.codes != code), out=after[:, 1:])
            # An insertion costs 1 a place: the least of the places to the left, each with its way to here.
            row = np.minimum.accumulate(after - places, axis=1) + places
        return self.names[int(row[np.arange(count), self.lengths].argmin())]


@functools.lru_cache(maxsize=4)
def read_movies(path: str) -> Movies:
    """The movies of `entity2id.json`: every movie's name, the last part of a path, and its number."""
    numbers = decode(Path(path).read_bytes(), dict[str, int], path, "give the data set's entity2id.json")
    by_number = {str(number): _plain_name(name) for name, number in numbers.items()}
    names = sorted(set(by_number.values()))
    texts = [_codes(name) for name in names]
    codes = np.full((len(names), max(map(len, texts), default=0)), -1, np.int64)
    for row, text in zip(codes, texts, strict=True):
        row[: len(text)] = text
    return Movies(by_number, names, codes, np.array(list(map(len, texts)), np.int64))


def recommended(text: str) -> list[str]:
    r"""The names of a list, one a line, in their order.

    >>> recommended("For you:\n1. Heat (1995)\n2) Ran")
    ['Heat', 'Ran']
    >>> recommended("Heat, Ran")
    ['Heat', 'Ran']
    """
    _, numbered, items = text.partition("1.")
    lines = (items if numbered else text.replace(",", "\n")).split("\n")
    return [_listed_name(line.strip()) for line in lines]


def _plain_name(text: str) -> str:
    text = re.sub("[_>-]", " ", text.rpartition("/")[2])
    return _SPACES.sub(" ", _PARENTHESES.sub("", text)).strip()


def _listed_name(text: str) -> str:
    return _SPACES.sub(" ", _NUMBERING.sub("", _PARENTHESES.sub("", text))).strip()


def _codes(text: str) -> NDArray[np.int64]:
    return np.array([ord(character) for character in text.lower()], np.int64)
