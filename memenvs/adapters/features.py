"""An observation in words comes in; a vector of hashed n-grams goes out, for learners that know no text."""

from __future__ import annotations

import functools
import itertools
import re
import zlib
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from numpy.typing import NDArray

from memenvs.text_env import Info

Floats32 = NDArray[np.float32]

_WORD = re.compile(r"\w+|[^\w\s]")


class HashText(gym.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Show a text as a vector of hashed n-grams (feature hashing, Weinberger et al. 2009, without signs).

    Observation:
        `Box(0, 1)` of float32, `size` numbers for the text; inside `ChooseReply` of m replies, behind them
        `size` for each of its replies, and m numbers: the share of a reply's n-grams that the text has too,
        so that a learner sees which of them the text speaks of. `(1 + m) * size + m` in all.

    Args:
        env: a text environment, wrapped or not.
        size: buckets of a text.
    """

    def __init__(self, env: gym.Env[str, Any], size: int = 256) -> None:
        RecordConstructorArgs.__init__(self, size=size)
        gym.Wrapper.__init__(self, env)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"size must be a whole number of buckets, at least 1, got {size!r}")
        self.size = size
        space = env.action_space
        replies = int(space.n) if isinstance(space, gym.spaces.Discrete) else 0
        width = (1 + replies) * size + replies
        self.observation_space = gym.spaces.Box(0.0, 1.0, (width,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats32, dict[str, Any]]:
        """Start an episode."""
        text, info = self.env.reset(seed=seed, options=options)
        return features(text, info.get("replies", []), self.size), info

    def step(self, action: Any) -> tuple[Floats32, Any, bool, bool, Info]:
        """Play on."""
        text, reward, terminated, truncated, info = self.env.step(action)
        return features(text, info.get("replies", []), self.size), reward, terminated, truncated, info


def features(text: str, replies: Sequence[str], size: int) -> Floats32:
    """The vector of a text and m replies, ((1 + m) * size + m,)."""
    found, asked = grams(text), [grams(reply) for reply in replies]
    known = set(found)
    shared = [sum(gram in known for gram in row) / max(len(row), 1) for row in asked]
    return np.concatenate([*(hashed(row, size) for row in (found, *asked)), np.array(shared, np.float32)])


def hashed(found: Sequence[int], size: int) -> Floats32:
    """1 + log of how often each of `size` buckets was hit, 0 where never, scaled to length 1."""
    counts = np.bincount(np.array(found, np.int64) % size, minlength=size).astype(np.float32)
    counts = np.where(counts > 0, 1 + np.log(np.maximum(counts, 1)), 0)
    length = np.linalg.norm(counts)
    return (counts / length if length else counts).astype(np.float32)


@functools.lru_cache(maxsize=1000)  # the replies to choose from are the same at most turns
def grams(text: str) -> tuple[int, ...]:
    """Hashes of the words of a text, of its pairs of words and of the letter triples inside its words."""
    words = _WORD.findall(text.lower())
    pairs = [_hash(f"{one} {other}") for one, other in itertools.pairwise(words)]
    return (*itertools.chain.from_iterable(map(_word, words)), *pairs)


@functools.lru_cache(maxsize=100_000)
def _word(word: str) -> tuple[int, ...]:
    """Hashes of a word and of its letter triples, its ends marked."""
    marked = f"<{word}>"
    return (_hash(word), *(_hash(f"#{marked[i : i + 3]}") for i in range(len(marked) - 2)))


@functools.lru_cache(maxsize=100_000)
def _hash(gram: str) -> int:
    # Python's own hash differs from process to process.
    return zlib.crc32(gram.encode("utf-8", "replace"))
