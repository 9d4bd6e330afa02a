"""Pairs of token ids come in; what to read, and where in it which log-probability is wanted, go out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.wrappers.scorers.pairs import TokenPair
from memenvs.wrappers.scorers.plan import Ids, Pass
from memenvs.wrappers.scorers.protocol import TokenScores

Ints = NDArray[np.int64]


class Wanted(NamedTuple):
    """(M,) each: which log-probabilities are wanted, of a sequence or in a pass.

    Attributes:
        lanes: rows of the pass's batch; 0 of a sequence.
        positions: in the sequence, of the token that predicts the target; in a pass, counted from its start.
        targets: token ids.
        places: in the scores of all requests joined.
    """

    lanes: Ints
    positions: Ints
    targets: Ints
    places: Ints


class Targets:
    """The sequences that pairs need read, each once, and what is wanted of them.

    Attributes:
        sequences: distinct ids; the last token of a continuation predicts nothing and is not read.
        scores: (sum of T,) the log-probabilities of all continuations joined, to be filled in.
    """

    def __init__(self, pairs: Sequence[TokenPair]):
        self.sequences: list[Ids] = []
        self._ends = np.cumsum([len(pair.continuation) for pair in pairs], dtype=np.int64)
        self.scores = np.zeros(int(self._ends[-1]) if len(pairs) else 0)
        numbers: dict[bytes, int] = {}
        wanted: list[list[Wanted]] = []
        for pair, end in zip(pairs, self._ends.tolist(), strict=True):
            count = len(pair.continuation)
            if count == 0:
                continue
            ids = np.array([*pair.prompt, *pair.continuation], dtype=np.int64)
            number = numbers.setdefault(ids[:-1].tobytes(), len(numbers))
            if number == len(wanted):
                self.sequences.append(ids[:-1])
                wanted.append([])
            first = len(pair.prompt) - 1
            wanted[number].append(
                Wanted(
                    np.zeros(count, dtype=np.int64),
                    np.arange(first, first + count),
                    ids[-count:],
                    np.arange(end - count, end),
                )
            )
        self._wanted = [_join(parts) for parts in wanted]

    def in_pass(self, step: Pass) -> Wanted:
        """What is wanted of the positions that a pass reads."""
        parts = [_NOTHING]
        for lane, sequences in enumerate(step.lanes):
            for wanted in (self._wanted[sequence] for sequence in sequences):
                here = (wanted.positions >= step.start) & (wanted.positions < step.stop)
                _, positions, targets, places = (part[here] for part in wanted)
                parts.append(Wanted(np.full(len(targets), lane), positions - step.start, targets, places))
        return _join(parts)

    def by_pair(self) -> list[TokenScores]:
        """The scores (T,) of each pair."""
        return np.split(self.scores, self._ends[:-1]) if len(self._ends) else []


_NOTHING = Wanted(*(np.zeros(0, dtype=np.int64) for _ in range(4)))


def _join(parts: Sequence[Wanted]) -> Wanted:
    return Wanted(*(np.concatenate(column) for column in zip(*parts, strict=True)))
