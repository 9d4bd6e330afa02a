"""A scorer by a model of transformers: logits only where they are wanted, shared beginnings read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.core.batching import micro_batches, pad_right
from memenvs.core.data import Count, checked
from memenvs.core.optional import Lazy, require
from memenvs.models.loading import (
    Dtype,
    cache_inputs,
    can_reuse_cache,
    copy_cache,
    depends_on_length,
    empty_cache,
    evaluating,
    load_hf_tokenizer,
    load_model,
    split_model,
)
from memenvs.wrappers.scorers.protocol import PairScorer, ScoreRequest, TokenPair, TokenScores, Truncate

if TYPE_CHECKING:
    from memenvs.models import prefixes
else:
    prefixes = Lazy("memenvs.models.prefixes", "train")

Ints = NDArray[np.int64]
CPU_BATCH, GPU_BATCH = 4_096, 65_536  # tokens in a pass
CPU_ALIKE, GPU_ALIKE = 0.85, 0.5  # shortest to longest row of a pass: on a GPU a pass costs more than padding
CPU_PASS, GPU_PASS = 64, 1_024  # tokens whose reading takes about as long as what every pass costs by itself
LOGITS = 2**23  # numbers in a slice of logits: 32 MB


class ScoredSequence(NamedTuple):
    """A sequence that a pass reads, and what it scores.

    Attributes:
        ids: that follow a cached prefix; the last token of a continuation predicts nothing and is left out.
        pairs: numbers of the pairs whose continuations the last positions predict.
    """

    ids: list[int]
    pairs: list[int]


class HFScorer(PairScorer):
    """Teacher-forced log-probabilities under a model of Hugging Face transformers.

    The results are those of reading each request alone, one by one (float32: to 1e-4 nats), whatever is
    scored beside it. No gradient is kept, and the model's mode (train or eval) is afterwards as before.

    Within a call, text that several requests begin with is read once, and nothing is padded; where a model's
    attention does not allow that, a prompt with several continuations is read once, and rows are padded.
    Logits are made at the continuations' positions alone, in slices.

    Args:
        model: a folder, a name on the hub (safetensors only, no code of the model is run) or of a packaged
            model (`smollm2`, see `memenvs.models.packaged`); or a causal model in memory, scored by its
            present weights, so that it may be a policy in training.
        tokenizer: a name, a folder or a fast tokenizer; None: the one beside the model.
        device: of torch, for a model by name; None: a GPU if there is one.
        dtype: of a model by name; `"auto"` is the checkpoint's where the device is fast in it, otherwise
            float32 (see `memenvs.models.loading.load_model`).
        max_batch_tokens: tokens that a pass of the model computes, or holds in padding and cached prompts;
            bounds memory. A longer prompt is read in several passes. None: 4,096 on a CPU, 65,536 elsewhere.
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
        self.model = load_model(model, device, dtype)
        self._backbone, self._lm_head = split_model(self.model)
        config = self.model.config.get_text_config()
        cpu = self._device().type == "cpu"
        self.max_batch_tokens = max_batch_tokens or (CPU_BATCH if cpu else GPU_BATCH)
        self._overhead = CPU_PASS if cpu else GPU_PASS
        self._alike = 1.0 if depends_on_length(config) else CPU_ALIKE if cpu else GPU_ALIKE
        self._slice = max(1, LOGITS // config.vocab_size)
        self._reuse = can_reuse_cache(self._backbone)
        self._packs = prefixes.can_read_packed(self._backbone)
        window = getattr(config, "max_position_embeddings", None)
        super().__init__(load_hf_tokenizer(tokenizer, self.model), window, truncate)

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Log-probabilities (T,) of the tokens of each continuation; see `Scorer.logprobs`."""
        return self.token_logprobs(self.pairs(requests))

    def token_logprobs(self, pairs: Sequence[TokenPair]) -> list[TokenScores]:
        """Log-probabilities (T,) of the continuations of pairs, for a caller that has ids and no text."""
        scores = [np.zeros(len(pair.continuation)) for pair in pairs]
        with require("torch", "train").no_grad(), evaluating(self.model):
            packed, others = self._by_length(pairs)
            for number, logprobs in self._score_packed(pairs, packed):
                scores[number] = logprobs
            for prefix, rows in self._by_prefix(pairs, others):
                cache, lengths = self._read_prefix(prefix), [len(row.ids) for row in rows]
                for batch in micro_batches(lengths, self.max_batch_tokens, self._alike, len(prefix)):
                    chosen = [rows[i] for i in batch]
                    for number, logprobs in self._score(chosen, cache, len(prefix), pairs):
                        scores[number] = logprobs
        return scores

    def _by_length(self, pairs: Sequence[TokenPair]) -> tuple[list[int], list[int]]:
        """Numbers of the pairs read without padding, and of the others: those too long for a pass."""
        scored = [number for number, pair in enumerate(pairs) if pair.continuation]
        if not self._packs:
            return [], scored
        fits = [len(pair.prompt) + len(pair.continuation) <= self.max_batch_tokens + 1 for pair in pairs]
        return [i for i in scored if fits[i]], [i for i in scored if not fits[i]]

    def _score_packed(
        self, pairs: Sequence[TokenPair], numbers: Sequence[int]
    ) -> Iterator[tuple[int, TokenScores]]:
        """Numbers of pairs and their scores; what several sequences begin with is read once."""
        # The last token of a continuation predicts nothing.
        read = [np.array([*pairs[i].prompt, *pairs[i].continuation[:-1]]) for i in numbers]
        for rows in prefixes.pack_batches(read, self.max_batch_tokens):
            batch = prefixes.PackedBatch([read[row] for row in rows], self._device())
            targets = [pairs[numbers[row]].continuation for row in rows]
            places = [own[-len(ids) :] for own, ids in zip(batch.places, targets, strict=True)]
            hidden = prefixes.read_packed(self._backbone, batch)
            chosen = require("torch", "train").from_numpy(np.concatenate(places)).to(hidden.device)
            logprobs = self._logprobs(hidden.index_select(0, chosen), np.concatenate(targets))
            ends = np.cumsum([len(ids) for ids in targets])
            for row, own in zip(rows, np.split(logprobs, ends[:-1]), strict=True):
                yield numbers[row], own

    def _by_prefix(
        self, pairs: Sequence[TokenPair], chosen: Sequence[int]
    ) -> Iterator[tuple[list[int], list[ScoredSequence]]]:
        """Prefixes that are read once, and the distinct rows that follow each.

        A prompt is such a prefix where that saves more than a pass costs, because several continuations share
        it, or where it is too long for one pass. All other rows have an empty prefix.
        """
        prompts: dict[tuple[int, ...], dict[tuple[int, ...], list[int]]] = {}
        for number in chosen:
            prompt, continuation = pairs[number]
            prompts.setdefault(tuple(prompt), {}).setdefault(tuple(continuation[:-1]), []).append(number)
        alone: list[ScoredSequence] = []
        for ids, rests in prompts.items():
            prefix, last = list(ids[:-1]), ids[-1]  # a prompt's last token predicts the next one
            too_long = len(ids) + max(map(len, rests)) > self.max_batch_tokens
            if self._reuse and prefix and (too_long or len(prefix) * (len(rests) - 1) > self._overhead):
                yield prefix, [ScoredSequence([last, *rest], numbers) for rest, numbers in rests.items()]
            else:
                alone += [ScoredSequence([*ids, *rest], numbers) for rest, numbers in rests.items()]
        yield [], alone

    def _read_prefix(self, prefix: list[int]) -> Any:
        """A cache of one row, filled `max_batch_tokens` tokens at a time; None for an empty prefix."""
        cache = empty_cache() if prefix else None
        for start in range(0, len(prefix), self.max_batch_tokens):
            ids = self._tensor(np.array([prefix[start : start + self.max_batch_tokens]]))
            self._backbone(input_ids=ids, **cache_inputs(self._backbone, cache))
        return cache

    def _score(
        self, rows: list[ScoredSequence], cache: Any, used: int, pairs: Sequence[TokenPair]
    ) -> Iterator[tuple[int, TokenScores]]:
        """Read the rows after the `used` tokens of a cache in one pass; yield pair numbers and scores."""
        inputs: dict[str, Any] = {"use_cache": False}
        if used:
            inputs = cache_inputs(self._backbone, copy_cache(cache, used, len(rows)))
        read = self._tensor(pad_right([row.ids for row in rows]))
        hidden = self._backbone(input_ids=read, **inputs).last_hidden_state
        scored = [(place, number) for place, row in enumerate(rows) for number in row.pairs]
        targets = [pairs[number].continuation for _, number in scored]
        states = []
        for (place, _), ids in zip(scored, targets, strict=True):
            end = len(rows[place].ids)
            states.append(hidden[place, end - len(ids) : end])
        logprobs = self._logprobs(require("torch", "train").cat(states), np.concatenate(targets))
        ends = np.cumsum([len(ids) for ids in targets])
        for (_, number), own in zip(scored, np.split(logprobs, ends[:-1]), strict=True):
            yield number, own

    def _logprobs(self, states: Any, targets: Ints) -> TokenScores:
        """Log-probabilities (N,) of target ids by hidden states (N, H); logits are made in slices."""
        logprobs = np.zeros(len(targets))
        for start in range(0, len(targets), self._slice):
            part = slice(start, start + self._slice)
            logits = self._lm_head(states[part]).float()
            ids = self._tensor(targets[part]).to(logits.device)
            logprobs[part] = (logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(1)).cpu().numpy()
        return logprobs

    def _tensor(self, ids: Ints) -> Any:
        return require("torch", "train").from_numpy(ids).to(self._device())

    def _device(self) -> Any:
        return self.model.get_input_embeddings().weight.device
