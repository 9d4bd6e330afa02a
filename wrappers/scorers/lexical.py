"""A scorer without a model: words of a continuation are likely if they are in the prompt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from memenvs.core.data import checked
from memenvs.wrappers.scorers.protocol import ScoreRequest, TokenScores

LogProb = Annotated[float, Meta(le=0)]
_TOKEN = re.compile(r"\s*(?:\w+|[^\w\s]+)|\s+")


class LexicalScorer:
    """Scores by overlap of words; deterministic, for demos and fast tests.

        log p(w given prompt) = present if w is a word of the prompt, else absent

    A token is a run of word characters or of other signs, with the white space before it; case does not
    count. More overlap is never less likely, and no word's score depends on the rest of the continuation.

    Args:
        present: nats of a word that is in the prompt.
        absent: nats of a word that is not.
    """

    @checked
    def __init__(self, present: LogProb = -0.5, absent: LogProb = -6.0):
        self.present, self.absent = present, absent

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Log-probabilities (T,) of the words of each continuation."""
        words: dict[str, frozenset[str]] = {}  # several continuations often share a prompt
        scores = []
        for prompt, continuation, _ in requests:  # an opening makes no word of the continuation likelier
            if prompt not in words:
                words[prompt] = frozenset(_words(prompt)) - {""}
            overlaps = [word in words[prompt] for word in _words(continuation)]
            scores.append(np.where(np.array(overlaps, dtype=bool), self.present, self.absent))
        return scores


def _words(text: str) -> list[str]:
    return [token.strip().casefold() for token in _TOKEN.findall(text)]
