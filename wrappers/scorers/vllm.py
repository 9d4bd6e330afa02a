"""A scorer by vLLM in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from memenvs.core.data import checked
from memenvs.core.optional import Lazy
from memenvs.wrappers.scorers.protocol import PairScorer, ScoreRequest, TokenScores, Truncate

if TYPE_CHECKING:
    from memenvs.models import vllm as engines
else:  # `memenvs list` shows the scorer without vLLM
    engines = Lazy("memenvs.models.vllm", "vllm")
vllm: Any = Lazy("vllm", "vllm")


class VLLMScorer(PairScorer):
    """Teacher-forced log-probabilities from a vLLM engine in this process.

    The engine schedules and batches. It makes one token more than it is asked to score, so its window holds
    one less than its model's, and it must give raw log-probabilities (its default).

    Args:
        model: a folder, a name on the hub or of a packaged model, loaded here; or a `vllm.LLM`, such as the
            one that rolls out.
        tokenizer: a `tokenizer.json`, a folder that holds one, a name on the hub, or a fast tokenizer; None:
            the engine's own.
        engine: arguments of `vllm.LLM` for a model by name, such as `{"dtype": "bfloat16"}`.
        truncate: `"left"` drops the first tokens of a prompt that does not fit the window; None refuses it.

    Raises:
        ValueError: `engine` is given with an engine that is made already, or the tokenizer cannot be used.
    """

    @checked
    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        engine: Mapping[str, Any] | None = None,
        truncate: Truncate = None,
    ):
        self.llm = engines.load_engine(model, engine)
        self._params = vllm.SamplingParams(
            max_tokens=1,
            temperature=0.0,
            prompt_logprobs=0,
            detokenize=False,
            output_kind=vllm.sampling_params.RequestOutputKind.FINAL_ONLY,
        )
        window = self.llm.llm_engine.model_config.max_model_len - 1
        super().__init__(tokenizer or self.llm.get_tokenizer(), window, truncate)

    def logprobs(self, requests: Sequence[ScoreRequest]) -> list[TokenScores]:
        """Log-probabilities (T,) of the tokens of each continuation."""
        pairs = self.pairs(requests)
        scores = [np.zeros(len(pair.continuation)) for pair in pairs]
        rows = [i for i, pair in enumerate(pairs) if pair.continuation]
        prompts = [[*pairs[i].prompt, *pairs[i].continuation] for i in rows]
        outputs = engines.generate(self.llm, prompts, [self._params] * len(rows))
        for i, output in zip(rows, outputs, strict=True):
            prompt, continuation = pairs[i]
            entries = output.prompt_logprobs[len(prompt) :]
            scores[i][:] = [entry[token].logprob for entry, token in zip(entries, continuation, strict=True)]
        return scores
