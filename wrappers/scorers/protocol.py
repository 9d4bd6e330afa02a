"""What is asked of a scorer: the log-probabilities that a model gives to texts it did not write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

TokenScores = NDArray[np.float64]
"""(T,) nats, one log-probability for each token of a continuation."""

Spans = NDArray[np.int64]
"""(T, 2) where each token of a continuation begins and ends, in characters of the continuation."""


class ScoreRequest(NamedTuple):
    """A continuation to be scored after a prompt.

    The boundary between the two is a token boundary by construction: each side is tokenised alone, no
    special token is added, and the ids are joined. Special tokens that are written out in either text
    (those of a chat template) are read as such.

    Attributes:
        prompt: what the model has read, as its chat template renders it, the generation prompt included.
        continuation: what the model might write next.
    """

    prompt: str
    continuation: str


@runtime_checkable
class Scorer(Protocol):
    """Gives log-probabilities of continuations."""

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Log-probabilities (T,), in nats, of the tokens of each continuation, in request order.

        An empty continuation gives an empty array; any other has at least one token.

        Raises:
            ValueError: a request cannot be scored, for instance because it is longer than the model's window;
                the message names the request by its index.
            ConnectionError: a server that was asked is away.
        """
        ...


@runtime_checkable
class SpanScorer(Scorer, Protocol):
    """A scorer that also says which characters each token stands for, so that credit can be given to text."""

    def spans(self, continuations: Sequence[str]) -> list[Spans]:
        """Character spans (T, 2) of the tokens that `logprobs` would score of each continuation.

        Starts and ends never fall. A character of several tokens (an emoji under byte-level BPE) is in the
        span of each of them.
        """
        ...
