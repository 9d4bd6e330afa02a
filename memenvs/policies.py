"""Policies without a model, for demonstrations and tests: an observation comes in, a reply goes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.envs.chunk_qa import ChunkQAEnv
from memenvs.envs.searching import Searching
from memenvs.lexical_reader import LexicalReader, LexicalSearcher
from memenvs.text_env import Info, TextEnv

Policy = Callable[[str, Info], str]
"""Called with an observation and its info; only `gold` looks at more than the observation."""


POLICIES = {
    "gold": "Knows the answer; it asks the environment.",
    "silent": "Always replies with nothing.",
    "random_text": "Replies with random words of the observation, and random tags.",
    "lexical": "Keeps the sentences that share rare words with the question and answers from them; it plays "
    "chunked reading, searching and the one tool call, in their own wording.",
}
"""What each policy does, by its name."""


def make_policy(name: str, env: gym.Env[Any, Any], seed: int = 0) -> Policy:
    """A policy by name; `POLICIES` says what each does.

    Raises:
        ValueError: no such policy, with the choices, or the environment asks nothing that it could answer.
    """
    inner = env.unwrapped
    if not isinstance(inner, TextEnv):
        raise TypeError(f"policies play text environments, not {type(inner).__name__}")
    makers: dict[str, Callable[[], Policy]] = {
        "gold": lambda: lambda observation, info: inner.gold_reply(),
        "silent": lambda: lambda observation, info: "",
        "random_text": lambda: RandomText(seed),
        "lexical": lambda: _lexical(inner),
    }
    if name not in makers:
        raise ValueError(f"unknown policy {name!r}; choose one of {', '.join(makers)}")
    return makers[name]()


def _lexical(env: TextEnv[Any, Any]) -> Policy:
    if isinstance(env, Searching):
        return LexicalSearcher()
    if isinstance(env, ChunkQAEnv):
        return LexicalReader()
    raise ValueError(
        f"policy 'lexical' answers questions and {type(env).__name__} asks none; "
        "choose gold, silent or random_text"
    )


class RandomText:
    """Up to twenty random words of the observation, now and then inside a tag that some environment knows.

    Args:
        seed: of its own generator.
    """

    _FORMS = (
        "{}",
        "\\boxed{{{}}}",
        "<answer>{}</answer>",
        "<think>{}</think>",
        "<search>{}</search>",
        "<mem>{}</mem>",
    )

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def __call__(self, observation: str, info: Info) -> str:
        """A random reply."""
        text = observation if isinstance(observation, str) else observation["text"]
        words = text.split() or ["nothing"]
        drawn = self._rng.choice(len(words), self._rng.integers(0, 20))
        form = self._FORMS[self._rng.integers(len(self._FORMS))]
        return form.format(" ".join(words[i] for i in drawn))
