"""Policies over token ids: replies to prompts, with their log-probabilities.

Models load only where they are named: importing this module needs no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from memenvs.core.spaces import replace_surrogates
from memenvs.models.chat import Ids, TokenText
from memenvs.tasks.tokens import load_tokenizer

if TYPE_CHECKING:
    from memenvs.models.hf import HFPolicy
    from memenvs.models.vllm import VLLMPolicy

__all__ = ["Evaluation", "HFPolicy", "Ids", "Policy", "Reply", "ScriptedPolicy", "VLLMPolicy"]

Limit = int | Sequence[int]
"""Tokens, one number for all prompts or one for each."""


class Reply(NamedTuple):
    """What a policy wrote behind a prompt.

    Attributes:
        text: decoded, without the end token; what the environment is given.
        ids: (T,) as sampled and never tokenised again, the end token included where it was sampled.
        logprobs: (T,) nats, under the distribution at the policy's temperature (at 1 where that is 0).
        finished: it ended by the end token or a stop string; False: it was cut at its limit or the window.
    """

    text: str
    ids: Ids
    logprobs: NDArray[np.float64]
    finished: bool


class Evaluation(NamedTuple):
    """What a policy says now about N tokens that were written before; tensors of torch, float32.

    Attributes:
        logprobs: (N,) nats, at the policy's temperature.
        entropy: (N,) nats, of the distribution that each token was drawn from; None where not asked for.
        values: (N,) of the state before each token; None without a value head.
    """

    logprobs: Any
    entropy: Any
    values: Any


class Policy(Protocol):
    """Replies to prompts of token ids.

    Attributes:
        window: tokens of prompt and reply together; None: any number.
    """

    window: int | None

    def encode(self, observation: str) -> Ids:
        """A fresh prompt (T,), as a chat where the policy chats."""

    def encode_feedback(self, text: str, reply: Ids) -> Ids:
        """What stands behind a reply (T,) in an episode that appends: `text`, or the chat around it."""

    def sample(
        self, prompts: Sequence[Ids], draws: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """A reply to each prompt, by the chance of its own generator alone."""

    def spans(self, reply: Ids) -> NDArray[np.int64]:
        """Characters (T, 2) of the reply's text that each of its tokens stands for."""


class ScriptedPolicy:
    """Replies by a function, for tests and demonstrations; its log-probabilities are zeros.

    Args:
        reply: called with the text of the whole prompt, gives the text of the reply.
        tokenizer: a name that `memenvs.tasks.tokens.load_tokenizer` knows.
    """

    window: int | None = None

    def __init__(self, reply: Callable[[str], str], tokenizer: str = "world"):
        self._reply = reply
        self._tokens = TokenText(load_tokenizer(tokenizer).backend)

    def encode(self, observation: str) -> Ids:
        """The observation's ids (T,)."""
        return self._tokens.encode(observation)

    def encode_feedback(self, text: str, reply: Ids) -> Ids:
        """The text's ids (T,)."""
        return self._tokens.encode(text)

    def sample(
        self, prompts: Sequence[Ids], draws: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """The function's reply to each prompt; `draws` stay untouched. One that is cut is not finished."""
        limits = reply_limits([len(prompt) for prompt in prompts], len(draws), max_new_tokens, self.window)
        return [self._one(prompt, limit) for prompt, limit in zip(prompts, limits, strict=True)]

    def spans(self, reply: Ids) -> NDArray[np.int64]:
        """Characters (T, 2) of the reply's text that each of its tokens stands for."""
        return self._tokens.spans(reply)

    def _one(self, prompt: Ids, limit: int) -> Reply:
        text = replace_surrogates(self._reply(self._tokens.decode(prompt)))
        ids = self._tokens.encode(text)
        finished = len(ids) <= limit
        if not finished:
            ids = ids[:limit]
            text = self._tokens.decode(ids)
        return Reply(text, ids, np.zeros(len(ids)), finished)


def reply_limits(lengths: Sequence[int], draws: int, limit: Limit, window: int | None) -> list[int]:
    """Tokens that the reply to each prompt may have: its limit, or what the window leaves; 0 at the least.

    Args:
        lengths: tokens of each prompt.
        draws: number of generators.
        limit: as given to `Policy.sample`.
        window: as in `Policy`.

    Raises:
        ValueError: prompts, generators and limits are not of one number, a prompt is empty, or a limit is
            negative.
    """
    limits = [limit] * len(lengths) if isinstance(limit, int | np.integer) else list(limit)
    if not len(lengths) == draws == len(limits):
        raise ValueError(
            f"{len(lengths)} prompts, {draws} generators and {len(limits)} limits; give each prompt one"
        )
    for i, (length, most) in enumerate(zip(lengths, limits, strict=True)):
        if length == 0:
            raise ValueError(f"prompt {i} is empty, so nothing predicts its reply; give at least one token")
        if most < 0:
            raise ValueError(f"max_new_tokens must be at least 0, got {most!r} for prompt {i}")
    if window is None:
        return [int(most) for most in limits]
    return [max(0, min(int(most), window - n)) for most, n in zip(limits, lengths, strict=True)]


def __getattr__(name: str) -> Any:
    """The policies that load a library which not everybody has."""
    homes = {"HFPolicy": "memenvs.models.hf", "VLLMPolicy": "memenvs.models.vllm"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(homes[name]), name)
