"""Policies over token ids: replies to prompts, with their log-probabilities. Nothing here needs torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Protocol

import numpy as np
from msgspec import Meta
from msgspec.structs import replace
from numpy.typing import NDArray

from memenvs.core.data import Count, Whole, checked
from memenvs.core.env import MAX_REPLY_CHARS
from memenvs.core.episode import Episode, Ids, Reply, Turn
from memenvs.core.spaces import clean_text, replace_surrogates
from memenvs.models.chat import TokenText
from memenvs.tasks.tokens import GENERAL, load_tokenizer

if TYPE_CHECKING:
    from torch import Tensor

Dtype = Literal["auto", "bfloat16", "float32"]
"""What a model by name computes in; see `memenvs.models.loading.load_model`."""

Limit = int | Sequence[int]
"""Tokens, one number for all prompts or one for each."""


@checked
@dataclass(frozen=True)
class SamplingParams:
    """How tokens are sampled: by probability, from what `top_k`, then `top_p`, then `min_p` leave.

    Args:
        temperature: at least 0; 0 takes the likeliest token.
        top_p: in (0, 1]; only the likeliest tokens that together have this probability are sampled.
        top_k: only this many of the likeliest tokens are sampled; 0: all.
        min_p: in [0, 1]; only tokens at least this share as likely as the likeliest one are sampled.
        stop: strings that end a reply; the token that completes one is the reply's last, and what it shows
            beyond the string stays.
    """

    temperature: Annotated[float, Meta(ge=0)] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Whole = 0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    stop: Sequence[Annotated[str, Meta(min_length=1)]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "stop", tuple(self.stop))

    @property
    def truncates(self) -> bool:
        """Whether some tokens are never sampled."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0


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


class TokenPolicy(Protocol):
    """A model that replies to prompts of token ids.

    Attributes:
        window: tokens of prompt and reply together; None: any number.
    """

    window: int | None

    def check_can_sample(self) -> None:
        """Raise a `ValueError` where the model can be trained or scored here, but not sampled."""
        return None

    def encode(self, observation: str) -> Ids:
        """A fresh prompt (T,), in the chat template where the policy has one."""

    def encode_feedback(self, text: str, reply: Ids) -> Ids:
        """What follows a reply (T,) in an episode that appends: `text`, or the chat around it."""

    def sample(
        self, prompts: Sequence[Ids], rngs: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """A reply to each prompt, sampled from its own generator alone."""

    def spans(self, reply: Ids) -> NDArray[np.int64]:
        """Start and end (T, 2) of each token's text, in characters of the reply's text."""


class StreamingPolicy(TokenPolicy, Protocol):
    """A policy that samples several replies at once and gives each as soon as it ends."""

    def submit(self, key: int, prompt: Ids, rng: np.random.Generator, max_new_tokens: int) -> None:
        """Begin a reply; a key has at most one at a time."""

    def completed(self) -> list[tuple[int, Reply]]:
        """Replies that have ended, by their keys; waits for at least one if any was begun."""

    def cancel(self) -> None:
        """Drop the replies that have not ended."""


class ReplyReader(Protocol):
    """What reads given episodes as token ids: a policy, or its encoding side.

    Attributes:
        window: as in `TokenPolicy`.
    """

    window: int | None

    def encode(self, observation: str) -> Ids:
        """A fresh prompt (T,), as `TokenPolicy.encode` gives it."""

    def encode_feedback(self, text: str, reply: Ids) -> Ids:
        """What follows a reply (T,), as `TokenPolicy.encode_feedback` gives it."""

    def encode_reply(self, text: str) -> Ids:
        """A given reply (T,), as if it had been sampled."""


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
        """The observation's ids (T,)."""
        return self._tokens.encode(observation)

    def encode_feedback(self, text: str, reply: Ids) -> Ids:
        """The text's ids (T,)."""
        return self._tokens.encode(text)

    def sample(
        self, prompts: Sequence[Ids], rngs: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """The function's reply to each prompt; `rngs` are not used. A truncated reply is not finished."""
        limits = reply_limits([len(prompt) for prompt in prompts], max_new_tokens, self.window)
        return [self._one(prompt, limit) for prompt, limit in zip(prompts, limits, strict=True)]

    def spans(self, reply: Ids) -> NDArray[np.int64]:
        """Start and end (T, 2) of each token's text, in characters of the reply's text."""
        return self._tokens.spans(reply)

    def _one(self, prompt: Ids, limit: int) -> Reply:
        text = replace_surrogates(self._reply(self._tokens.decode(prompt)))
        ids = self._tokens.encode(text)
        finished = len(ids) <= limit
        if not finished:
            ids = ids[:limit]
            text = self._tokens.decode(ids)
        return Reply(text, ids, np.zeros(len(ids)), finished)


def tokenised(policy: ReplyReader, episode: Episode) -> Episode:
    """An episode with token ids, as if the policy had sampled the replies, to learn from or to be scored.

    A reply ends with the end token, unless it ends with a stop string. A turn that does not fit the window,
    and those that would be read after it, have no tokens.

    Args:
        policy: reads the tokens.
        episode: an episode with its observations.

    Raises:
        ValueError: the episode has only replies, as in a file of `evaluate run --no-texts`.
    """
    turns: list[Turn] = []
    for sequence in episode.sequences():
        length, last, fits = 0, NO_IDS, True
        for turn in sequence:
            if not turn.observation:
                raise ValueError(f"task {episode.task} has only replies; evaluate without --no-texts")
            read = policy.encode(turn.text) if turn.fresh else policy.encode_feedback(turn.text, last)
            last = policy.encode_reply(clean_text(turn.action, MAX_REPLY_CHARS))
            length += len(read) + len(last)
            fits = fits and (policy.window is None or length <= policy.window)
            ids, read = (last, read) if fits else (NO_IDS, NO_IDS)
            reply = Reply(turn.action, ids, np.zeros(len(ids)), fits, read, length, len(ids))
            turns.append(replace(turn, reply=reply))
    return replace(episode, turns=turns)


def reply_limits(lengths: Sequence[int], limit: Limit, window: int | None) -> list[int]:
    """The most tokens of the reply to each prompt: its limit, or what the window leaves; at least 0.

    Args:
        lengths: tokens of each prompt.
        limit: as given to `TokenPolicy.sample`.
        window: as in `TokenPolicy`.

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
