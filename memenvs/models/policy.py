"""Policies over token ids: replies to prompts, with their log-probabilities. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from memenvs.core.data import Count, checked
from memenvs.core.env import MAX_REPLY_CHARS
from memenvs.core.episode import Episode, Ids, Reply, TokenSpans, Turn
from memenvs.core.spaces import clean_text, replace_surrogates
from memenvs.models.chat import ChatPolicy, TokenText
from memenvs.tasks.tokens import GENERAL, load_tokenizer

if TYPE_CHECKING:
    from torch import Tensor

Limit = int | Sequence[int]
"""Tokens, one number for all prompts or one for each."""


@checked
@dataclass(frozen=True)
class LoRA:
    """An adapter to be trained instead of the model: W x becomes W x + 2 B A x (its eq. 3 with alpha = 2 r).

    Every linear layer but the lm_head gets one, and every expert of a mixture. B starts as 0, so that the
    model's outputs do not change by a bit. Dropout is 0.

    Args:
        rank: r, rows of A and columns of B.
        seed: seed of A.
    """

    rank: Count
    seed: int = 0


class PolicyOutput(NamedTuple):
    """A policy's outputs at N response tokens; tensors of torch, float32.

    Attributes:
        logprobs: (N,) nats, at the policy's temperature.
        entropy: (N,) nats, of the distribution that each token was sampled from; None where not asked for.
        values: (N,) of the state before each token; None without a value head.
    """

    logprobs: Tensor
    entropy: Tensor | None
    values: Tensor | None


class PromptReader(Protocol):
    """What makes token ids of prompts.

    Attributes:
        window: tokens of prompt and reply together; None: any number.
    """

    window: int | None

    def encode(self, observation: str) -> Ids:
        """A fresh prompt (T,), in the chat template where there is one."""

    def encode_feedback(self, text: str, reply: Ids) -> Ids:
        """What follows a reply (T,) in an episode that appends: `text`, or the chat around it."""

    def shown(self, read: Ids, reply: Ids) -> tuple[Ids, Ids]:
        """What later prompts show of what was read before a reply (T,), and of the reply (T,)."""
        return read, reply


class TokenPolicy(PromptReader, TokenSpans, Protocol):
    """A model that replies to prompts of token ids."""

    def check_can_sample(self) -> None:
        """Raise a `ValueError` where the model can be trained or scored here, but not sampled."""
        return None

    def sample(
        self, prompts: Sequence[Ids], rngs: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """A reply to each prompt, sampled from its own generator alone."""


class StreamingPolicy(TokenPolicy, Protocol):
    """A policy that samples several replies at once and gives each as soon as it ends."""

    def submit(self, key: int, prompt: Ids, rng: np.random.Generator, max_new_tokens: int) -> None:
        """Begin a reply; a key has at most one at a time."""

    def completed(self) -> list[tuple[int, Reply]]:
        """Replies that have ended, by their keys; waits for at least one if any was begun."""

    def cancel(self) -> None:
        """Drop the replies that have not ended."""


NO_IDS: Ids = np.zeros(0, np.int64)


class ScriptedPolicy(TokenPolicy):
    """Replies by a function, for tests and demonstrations; its log-probabilities are zeros.

    Args:
        reply: called with the text of the whole prompt, gives the text of the reply.
        tokenizer: a name that `memenvs.tasks.tokens.load_tokenizer` knows.
    """

    window: int | None = None

    def __init__(self, reply: Callable[[str], str], tokenizer: str = GENERAL):
        self._reply = reply
        self._tokens = TokenText(load_tokenizer(tokenizer).backend)

    def encode(self, observation: str) -> Ids:
        return self._tokens.encode(observation)

    def encode_feedback(self, text: str, reply: Ids) -> Ids:
        return self._tokens.encode(text)

    def sample(
        self, prompts: Sequence[Ids], rngs: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """The function's reply to each prompt; `rngs` are not used. A truncated reply is not finished."""
        limits = reply_limits([len(prompt) for prompt in prompts], max_new_tokens, self.window)
        replies = []
        for prompt, limit in zip(prompts, limits, strict=True):
            text = replace_surrogates(self._reply(self._tokens.decode(prompt)))
            ids = self._tokens.encode(text)
            finished = len(ids) <= limit
            if not finished:
                ids = ids[:limit]
                text = self._tokens.decode(ids)
            replies.append(Reply(text, ids, np.zeros(len(ids)), finished))
        return replies

    def spans(self, reply: Ids) -> NDArray[np.int64]:
        return self._tokens.spans(reply)


def tokenised(policy: ChatPolicy, episode: Episode) -> Episode:
    """An episode with token ids, as if the policy had sampled the replies, to learn from or to be scored.

    A reply ends with the end token, unless it ends with a stop string. A turn that does not fit the window,
    and those that would be read after it, have no tokens.

    Raises:
        ValueError: the episode has only replies, as in a file of `evaluate run --no-texts`.
    """
    turns: list[Turn] = []
    run: list[Turn] = []  # since the last fresh prompt or fork, also what does not fit
    for turn in episode.turns:
        if turn.observation == "":
            raise ValueError(f"task {episode.task} has only replies; evaluate without --no-texts")
        if turn.fresh or not run:
            run, fits = [], True
        prompt, read, forks = next_prompt(policy, run, turn.text)
        ids = policy.encode_reply(clean_text(turn.action, MAX_REPLY_CHARS))
        length = len(prompt) + len(ids)
        fits = fits and (policy.window is None or length <= policy.window)
        reply = Reply(turn.action, ids, np.zeros(len(ids)), fits, read, length, len(ids), forks=forks)
        run = [*([] if forks else run), replace(turn, reply=reply)]
        if not fits:
            reply = Reply(turn.action, NO_IDS, np.zeros(0), fits, NO_IDS, length, 0, forks=forks)
        turns.append(replace(turn, reply=reply))
    return replace(episode, turns=turns)


def next_prompt(model: PromptReader, turns: Sequence[Turn], text: str) -> tuple[Ids, Ids, bool]:
    """The whole prompt (T,) after some turns, the part of it that is new to read, and whether it forks.

    `turns` were read and replied since the last fresh prompt or fork; there are none before a fresh one. A
    prompt forks if it leaves out a part of them, such as a thought: then all of it is new.
    """
    if not turns:
        ids = model.encode(text)
        return ids, ids, False
    feedback = model.encode_feedback(text, turns[-1].reply.ids)
    before = [(turn.reply.read, turn.reply.ids) for turn in turns]
    shown = [ids for part in before for ids in model.shown(*part)]
    ids = np.concatenate([*shown, feedback])
    forks = len(ids) < sum(len(read) + len(reply) for read, reply in before) + len(feedback)
    return ids, ids if forks else feedback, forks


def reply_limits(lengths: Sequence[int], limit: Limit, window: int | None) -> list[int]:
    """The most tokens of the reply to prompts of these lengths: the limit, or what the window leaves.

    Raises:
        ValueError: a prompt is empty.
    """
    limits = [limit] * len(lengths) if isinstance(limit, int | np.integer) else list(limit)
    if 0 in lengths:
        raise ValueError(
            f"prompt {lengths.index(0)} is empty, so nothing predicts its reply; give at least one token"
        )
    if window is not None:
        limits = [min(most, window - length) for most, length in zip(limits, lengths, strict=True)]
    return [max(0, int(most)) for most in limits]
