"""A scorer by a model of transformers: logits only where they are wanted, shared prefixes read once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memenvs.core.data import Count, checked
from memenvs.core.optional import Lazy
from memenvs.models.settings import Dtype
from memenvs.wrappers.scorers.protocol import PairScorer, ScoreRequest, TokenPair, TokenScores, Truncate

if TYPE_CHECKING:
    from memenvs.models import loading, reader
else:  # `memenvs list` shows the scorer without torch
    loading = Lazy("memenvs.models.loading", "train")
    reader = Lazy("memenvs.models.reader", "train")

CPU_BATCH, GPU_BATCH = 4_096, 65_536  # tokens in a pass


class HFScorer(PairScorer):
    """Teacher-forced log-probabilities under a model of Hugging Face transformers.

    The result of a request does not depend on the other requests (float32: to 1e-4 nats). No gradient is
    kept, and the model's mode (train or eval) is restored.

    Within a call, a prefix that requests share is read once, and nothing is padded, if the model's attention
    allows that (see `memenvs.models.reader.SequenceReader`).

    Args:
        model: a folder, a name on the hub (safetensors only, no code of the model is run) or of a packaged
            model (`smollm2`, see `memenvs.models.packaged`); or a causal model in memory, scored with its
            current weights, so it may be a policy in training.
        tokenizer: a name, a folder or a fast tokenizer; None: the one beside the model.
        device: torch device for a model given by name; None: a GPU if there is one.
        dtype: precision of a model given by name; `"auto"` is the checkpoint's if the device computes fast in
            it, otherwise float32 (see `memenvs.models.loading.load_model`).
        max_batch_tokens: tokens that a pass of the model computes; a longer request is its own pass.
            None: 4,096 on a CPU, 65,536 elsewhere.
        truncate: `"left"` drops the first tokens of a prompt that does not fit the window; None refuses it.

    Raises:
        FileNotFoundError: there is no such model or tokenizer.
        ValueError: the model or its tokenizer cannot be used; the message says why.
    """

    @checked
    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        device: str | None = None,
        dtype: Dtype = "auto",
        max_batch_tokens: Count | None = None,
        truncate: Truncate = None,
    ):
        self.model = loading.load_model(model, device, dtype)
        self._reader = reader.SequenceReader(self.model)
        on_cpu = self._reader.device.type == "cpu"
        self.max_batch_tokens = max_batch_tokens or (CPU_BATCH if on_cpu else GPU_BATCH)
        window = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        super().__init__(loading.load_hf_tokenizer(tokenizer, self.model), window, truncate)

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Log-probabilities (T,) of the tokens of each continuation."""
        return self.token_logprobs(self.pairs(requests))

    def token_logprobs(self, pairs: Sequence[TokenPair]) -> list[TokenScores]:
        """Log-probabilities (T,) of the continuations of pairs, for a caller that has ids and no text."""
        scores = [np.zeros(len(pair.continuation)) for pair in pairs]
        numbers = [i for i, pair in enumerate(pairs) if pair.continuation]
        ids = [np.array([*pairs[i].prompt, *pairs[i].continuation]) for i in numbers]
        masks = [np.arange(len(row)) >= len(pairs[i].prompt) for row, i in zip(ids, numbers, strict=True)]
        read = [row[:-1] for row in ids]  # the last token predicts nothing
        with loading.evaluating(self.model):
            for batch in self._reader.micro_batches(read, self.max_batch_tokens):
                logprobs = self._reader.token_logprobs([ids[i] for i in batch], [masks[i] for i in batch])
                ends = np.cumsum([masks[i].sum() for i in batch])
                for i, nats in zip(batch, np.split(logprobs.cpu().numpy(), ends[:-1]), strict=True):
                    scores[numbers[i]] = nats.astype(np.float64)
        return scores
