"""A scorer by a vLLM server over HTTP: token ids go out, log-probabilities of the prompt come back."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from memenvs.core.data import Count, checked
from memenvs.core.servers import OpenAIClient
from memenvs.wrappers.scorers.protocol import PairScorer, ScoreRequest, TokenPair, TokenScores, Truncate

FIX = "is it up? `vllm serve MODEL --host 127.0.0.1 --port 8000` starts one"


class ServerScorer(PairScorer):
    """Teacher-forced log-probabilities from an OpenAI-compatible vLLM server.

    Each request is one `POST {url}/completions` of token ids with `prompt_logprobs`, several of them under
    way at once, which the server batches. Texts are tokenised here, so the tokenizer must be the server's;
    neither torch nor transformers is needed. The server must give raw log-probabilities (its default).

    The server makes one token more than it is asked to score, so its window holds one less than its model's.

    Args:
        url: the server's address, as `memenvs.core.servers.OpenAIClient` takes it.
        model: the name that the server serves it under.
        tokenizer: a `tokenizer.json`, a folder that holds one, or a name on the hub; None: `model`.
        truncate: `"left"` drops the first tokens of a prompt that does not fit the window; None refuses it.
        concurrency: requests under way at once.
        timeout: seconds to wait for an answer.
        tries: how often a request that fails is sent.
        api_key: sent as a bearer token, where the server wants one.

    Raises:
        ValueError: the URL, the tokenizer or a number cannot be used.
    """

    @checked
    def __init__(
        self,
        url: str,
        model: str,
        tokenizer: str | None = None,
        truncate: Truncate = None,
        concurrency: Count = 16,
        timeout: float = 600.0,
        tries: int = 5,
        api_key: str | None = None,
    ):
        self.model, self.concurrency = model, concurrency
        self._client = OpenAIClient(url, timeout=timeout, tries=tries, key=api_key, fix=FIX)
        self.url = self._client.url
        super().__init__(tokenizer or model, None, truncate)

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Log-probabilities (T,) of the tokens of each continuation.

        Raises:
            ServerError: no log-probabilities in `tries` tries, or a refusal (`RequestRefused`).
            ValueError: a request does not fit, or the server does not serve the model.
        """
        if not requests:
            return []
        self.window = self._served_window  # the server is asked once, at the first call
        pairs = self.pairs(requests)
        with ThreadPoolExecutor(min(self.concurrency, len(pairs))) as pool:
            futures = [pool.submit(self._score, pair) for pair in pairs]
            try:
                return [future.result() for future in futures]
            finally:
                for future in futures:
                    future.cancel()  # one has failed: the rest need not be asked

    @functools.cached_property
    def _served_window(self) -> int | None:
        """Tokens that a pair may have; None where the server does not say."""
        served = self._client.get("/models", lambda answer: {entry["id"]: entry for entry in answer["data"]})
        if self.model not in served:
            raise ValueError(
                f"{self.url} serves {', '.join(map(repr, served))}, not {self.model!r}; give one of these"
            )
        length = served[self.model].get("max_model_len")
        return None if length is None else int(length) - 1

    def _score(self, pair: TokenPair) -> TokenScores:
        if not pair.continuation:
            return np.zeros(0)
        ids = [*pair.prompt, *pair.continuation]
        fields = {"model": self.model, "prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        return self._client.post("/completions", fields, lambda answer: _read_logprobs(answer, pair))


def _read_logprobs(answer: Any, pair: TokenPair) -> TokenScores:
    """The log-probabilities of the continuation's tokens, which the completion's prompt ends in."""
    entries = answer["choices"][0].get("prompt_logprobs") or ()
    count = len(pair.prompt) + len(pair.continuation)
    if len(entries) != count:
        raise ValueError(f"got {len(entries)} prompt_logprobs for {count} tokens; use vLLM's server")
    scored = zip(entries[len(pair.prompt) :], pair.continuation, strict=True)
    return np.array([float(entry[str(token)]["logprob"]) for entry, token in scored], dtype=np.float64)
