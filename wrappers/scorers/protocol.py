"""What a scorer is: its requests, its protocol, and the tokenisation that scorers by a model share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from memenvs.core.spaces import replace_surrogates
from memenvs.core.text import Template
from memenvs.models.chat import ChatTokens, copy_backend, plain_chat
from memenvs.models.packaged import resolve
from memenvs.tasks.tokens import load_tokenizer

TokenScores = NDArray[np.float64]
"""(T,) nats, one log-probability for each token of a continuation."""

Truncate = Literal["left"] | None
"""What to drop of a prompt that does not fit the window: its first tokens, or nothing."""

BATCH = 64  # texts tokenised at once: enough for the tokenizer's threads, and few of its large encodings


class ScoreRequest(NamedTuple):
    """A continuation to be scored after a prompt.

    The boundary between the two is a token boundary by construction: each side is tokenised alone, no
    special token is added, and the ids are joined. Special tokens that are written out in either text
    (those of a chat template) are read as such.

    The opening is tokenised together with the continuation, as a model writes them. A token that holds the
    end of the one and the start of the other (`>Par`) is scored.

    Attributes:
        prompt: what the model has read, as its chat template renders it, the generation prompt included.
        continuation: what the model might write next.
        opening: what it has written already after the prompt, which is not scored.
    """

    prompt: str
    continuation: str
    opening: str = ""


@runtime_checkable
class Scorer(Protocol):
    """Computes log-probabilities of continuations."""

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Log-probabilities (T,), in nats, of the tokens of each continuation, in request order.

        An empty continuation gives an empty array; any other has at least one token.

        Raises:
            ValueError: a request cannot be scored, for instance because it is longer than the model's window;
                the message names the request by its index.
            ConnectionError: a server is unreachable.
        """
        ...


class TemplateScorer:
    """A scorer whose model reads each prompt inside its chat template, written out with `{prompt}` in it.

    Raises:
        ValueError: the template has no `{prompt}`.
    """

    def __init__(self, scorer: Scorer, template: str) -> None:
        self._scorer, self._template = scorer, Template(template, required=("prompt",), name="prompt")

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Log-probabilities (T,) of each continuation after its rendered prompt."""
        return self._scorer.logprobs(
            [request._replace(prompt=self._template.fill(prompt=request.prompt)) for request in requests]
        )


class TokenPair(NamedTuple):
    """A request in token ids."""

    prompt: list[int]  # with the opening's; never empty where the continuation is not
    continuation: list[int]  # the ids to be scored


class PairScorer:
    """Base of scorers by a model: tokenises both sides of requests alone, and checks that they fit.

    Args:
        tokenizer: a name that `memenvs.tasks.tokens.load_tokenizer` knows, or a packaged model's; or a
            tokenizer of transformers that is backed by the tokenizers library, which is copied.
        window: tokens that the model can read, prompt and continuation; None: any number.
        truncate: `"left"` drops the first tokens of a prompt that does not fit; None refuses it.

    Raises:
        ValueError: the tokenizer cannot be used.
    """

    def __init__(self, tokenizer: Any, window: int | None, truncate: Truncate):
        self.window, self.truncate = window, truncate
        self._source = tokenizer
        self.tokenizer: Tokenizer = (
            load_tokenizer(str(resolve(tokenizer))).backend
            if isinstance(tokenizer, str)
            else copy_backend(tokenizer)
        )

    @functools.cached_property
    def _chat(self) -> ChatTokens | None:
        return ChatTokens(self._source) if getattr(self._source, "chat_template", None) else None

    def render(self, messages: Sequence[tuple[str, str]]) -> str:
        """A conversation, a role and a text each, as a prompt: in the model's chat template if it has one.

        Raises:
            ValueError: the template fails.
        """
        return self._chat.render(messages) if self._chat else plain_chat(messages)

    def pairs(self, requests: Sequence[ScoreRequest]) -> list[TokenPair]:
        """The token ids of requests, in their order.

        Raises:
            ValueError: a request does not fit, or its prompt is empty; the message names its index.
        """
        unopened = [request.continuation for request in requests if not request.opening]
        texts = list(dict.fromkeys([*(request.prompt for request in requests), *unopened]))
        ids: dict[str, list[int]] = {}
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            readable = [replace_surrogates(text) for text in batch]
            encodings = self.tokenizer.encode_batch_fast(readable, add_special_tokens=False)
            ids |= {text: encoding.ids for text, encoding in zip(batch, encodings, strict=True)}
        opened = {reply: self._opened(*reply) for reply in {request[1:] for request in requests} if reply[1]}
        pairs = []
        for index, (prompt, continuation, opening) in enumerate(requests):
            beginning, scored = opened[continuation, opening] if opening else ([], ids[continuation])
            pairs.append(self._fit(index, ids[prompt] + beginning, scored))
        return pairs

    def _opened(self, continuation: str, opening: str) -> tuple[list[int], list[int]]:
        """The tokens of an opening and of what continues it, which has the one that both share."""
        reply = replace_surrogates(opening + continuation)
        encoding = self.tokenizer.encode(reply, add_special_tokens=False)
        # Alone the opening may have other tokens, so count those of the whole that end in it.
        in_opening = sum(end <= len(opening) for _, end in encoding.offsets)
        return encoding.ids[:in_opening], encoding.ids[in_opening:]

    def _fit(self, index: int, prompt: list[int], continuation: list[int]) -> TokenPair:
        if continuation and not prompt:
            raise ValueError(
                f"request {index} has an empty prompt, so nothing predicts its first token; "
                "give at least the token that texts begin with"
            )
        if self.window is None or len(prompt) + len(continuation) <= self.window:
            return TokenPair(prompt, continuation)
        kept = self.window - len(continuation)
        if self.truncate is None or kept < 1:
            raise ValueError(
                f"request {index} is {len(prompt) + len(continuation):,} tokens long, {len(continuation):,} "
                f"of them its continuation, and the model's window is {self.window:,}; "
                + ("shorten the continuation" if kept < 1 else 'shorten the prompt, or pass truncate="left"')
            )
        return TokenPair(prompt[-kept:], continuation)
