"""A scorer by a model of transformers: logits only where they are wanted, shared prefixes read once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memenvs.core.checks import check_whole
from memenvs.core.optional import require
from memenvs.models.loading import evaluating, halves, load_model, load_tokenizer
from memenvs.models.prefix import Ids, Pass, Reader, can_reuse, plan, reads_by_length
from memenvs.wrappers.scorers.protocol import (
    PairTokenizer,
    ScoreRequest,
    Spans,
    TokenPair,
    TokenScores,
    Truncate,
)

Ints = NDArray[np.int64]


class Wanted(NamedTuple):
    """(M,) each: which log-probabilities are wanted, of a sequence or in a pass.

    Attributes:
        lanes: rows of the pass's batch; 0 of a sequence.
        positions: in the sequence, of the token that predicts the target; in a pass, counted from its start.
        targets: token ids.
        places: in the scores of all requests joined.
    """

    lanes: Ints
    positions: Ints
    targets: Ints
    places: Ints


class Targets:
    """The sequences that pairs need read, each once, and what is wanted of them.

    Attributes:
        sequences: distinct ids; the last token of a continuation predicts nothing and is not read.
        scores: (sum of T,) the log-probabilities of all continuations joined, to be filled in.
    """

    def __init__(self, pairs: Sequence[TokenPair]):
        self.sequences: list[Ids] = []
        self._ends = np.cumsum([len(pair.continuation) for pair in pairs], dtype=np.int64)
        self.scores = np.zeros(int(self._ends[-1]) if len(pairs) else 0)
        numbers: dict[bytes, int] = {}
        wanted: list[list[Wanted]] = []
        for pair, end in zip(pairs, self._ends.tolist(), strict=True):
            count = len(pair.continuation)
            if count == 0:
                continue
            ids = np.array([*pair.prompt, *pair.continuation], dtype=np.int64)
            number = numbers.setdefault(ids[:-1].tobytes(), len(numbers))
            if number == len(wanted):
                self.sequences.append(ids[:-1])
                wanted.append([])
            first = len(pair.prompt) - 1
            wanted[number].append(
                Wanted(
                    np.zeros(count, dtype=np.int64),
                    np.arange(first, first + count),
                    ids[-count:],
                    np.arange(end - count, end),
                )
            )
        self._wanted = [_join(parts) for parts in wanted]

    def in_pass(self, step: Pass) -> Wanted:
        """What is wanted of the positions that a pass reads."""
        parts = [_NOTHING]
        for lane, sequences in enumerate(step.lanes):
            for wanted in (self._wanted[sequence] for sequence in sequences):
                here = (wanted.positions >= step.start) & (wanted.positions < step.stop)
                _, positions, targets, places = (part[here] for part in wanted)
                parts.append(Wanted(np.full(len(targets), lane), positions - step.start, targets, places))
        return _join(parts)

    def by_pair(self) -> list[TokenScores]:
        """The scores (T,) of each pair."""
        return np.split(self.scores, self._ends[:-1]) if len(self._ends) else []


_NOTHING = Wanted(*(np.zeros(0, dtype=np.int64) for _ in range(4)))


def _join(parts: Sequence[Wanted]) -> Wanted:
    return Wanted(*(np.concatenate(column) for column in zip(*parts, strict=True)))


CPU_BATCH, GPU_BATCH = 4_096, 65_536  # tokens in a pass
CPU_PASS, GPU_PASS = 64, 1_024  # tokens whose reading takes about as long as what every pass costs by itself
LOGITS = 2**23  # numbers in a slice of logits: 32 MB


class HFScorer:
    """Teacher-forced log-probabilities under a model of Hugging Face transformers; a `SpanScorer`.

    The results are those of reading each request alone, one by one (float32: to 1e-4 nats), whatever is
    scored beside it. No gradient is kept, and the model's mode (train or eval) is afterwards as before.

    A call reads each distinct beginning once: several continuations of one prompt, or prompts that grow,
    cost the tokens in which they differ. Logits are made at the continuations' positions alone, in slices.

    Args:
        model: a folder, or a name on the hub (safetensors only, no code of the model is run); or a causal
            model in memory, scored by its present weights, so that it may be a policy in training.
        tokenizer: a name, a folder or a fast tokenizer; None: the one beside the model.
        device: of torch, for a model by name; None: a GPU if there is one.
        dtype: `"bfloat16"` …, for a model by name; None: float32 on a CPU, else the checkpoint's.
        max_batch_tokens: tokens in a pass of the model, padding and kept prefixes included; bounds memory.
            None: 4,096 on a CPU, 65,536 elsewhere.
        truncate: `"left"` drops the first tokens of a prompt that does not fit the window; None refuses it.

    Raises:
        FileNotFoundError: there is no such model or tokenizer.
        ValueError: the model or its tokenizer cannot be used; the message says why.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        device: str | None = None,
        dtype: str | None = None,
        max_batch_tokens: int | None = None,
        truncate: Truncate = None,
    ):
        if max_batch_tokens is not None:
            check_whole(max_batch_tokens=max_batch_tokens)
        in_memory = hasattr(model, "config")
        if in_memory and (device is not None or dtype is not None):
            raise ValueError("device and dtype are for a model by name; move a model in memory yourself")
        self.model = model if in_memory else load_model(str(model), device, dtype)
        self._base, self._logits = halves(self.model)
        config = self.model.config.get_text_config()
        cpu = self._device().type == "cpu"
        self.max_batch_tokens = max_batch_tokens or (CPU_BATCH if cpu else GPU_BATCH)
        self._overhead = 0 if reads_by_length(config) else CPU_PASS if cpu else GPU_PASS
        self._slice = max(1, LOGITS // config.vocab_size)
        with evaluating(self.model):
            self._reuse = can_reuse(self._base, config, self._device())
        window = getattr(config, "max_position_embeddings", None)
        self._tokens = PairTokenizer(load_tokenizer(tokenizer, self.model), window, truncate)

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Log-probabilities (T,) of the tokens of each continuation; see `Scorer.logprobs`."""
        return self.token_logprobs(self.pairs(requests))

    def pairs(self, requests: Sequence[ScoreRequest]) -> list[TokenPair]:
        """The token ids of requests; see `PairTokenizer.pairs`."""
        return self._tokens.pairs(requests)

    def spans(self, continuations: Sequence[str]) -> list[Spans]:
        """Character spans (T, 2) of the tokens of each continuation; see `SpanScorer.spans`."""
        return self._tokens.spans(continuations)

    def token_logprobs(self, pairs: Sequence[TokenPair]) -> list[TokenScores]:
        """Log-probabilities (T,) of the continuations of pairs, for those who hold ids and not text."""
        targets = Targets(pairs)
        steps = plan(targets.sequences, self.max_batch_tokens, self._overhead, self._reuse)
        with require("torch", "train").no_grad(), evaluating(self.model):
            reader = Reader(self._base, targets.sequences, self._device())
            for step in steps:
                hidden, wanted = reader.read(step), targets.in_pass(step)
                for start in range(0, len(wanted.targets), self._slice):
                    lanes, positions, ids, places = (part[start : start + self._slice] for part in wanted)
                    targets.scores[places] = self._score(hidden[lanes, positions], ids)
        return targets.by_pair()

    def _score(self, hidden: Any, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Log-probabilities (N,) of ids under the logits of hidden states (N, H)."""
        logits = self._logits(hidden).float()
        chosen = logits.gather(1, require("torch", "train").from_numpy(ids).to(logits.device)[:, None])
        return (chosen[:, 0] - logits.logsumexp(1)).cpu().numpy().astype(np.float64)

    def _device(self) -> Any:
        return self.model.get_input_embeddings().weight.device
