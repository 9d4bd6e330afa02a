"""The model of a GRPOTrainer as a policy, which samples as the trainer samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from memenvs.baselines.chat import ChatPolicy, ChatTokens
from memenvs.baselines.policy import Ids, Limit, Reply, reply_limits


class TRLPolicy(ChatPolicy):
    """The trainer's model as a `memenvs.baselines.policy.Policy`.

    It samples by the trainer's own method: transformers or vLLM, with the trainer's temperature. Tokens are
    drawn from torch's global generator, as all of TRL's are, or from vLLM's: the generators that `sample` is
    given stay untouched. `max_completion_length` of the trainer is the limit of one reply.

    Attributes:
        window: tokens of prompt and reply together: the model's positions, or vLLM's limit.
        knows_logprobs: whether the last replies came with log-probabilities (vLLM's do); zeros else.

    Args:
        trainer: its tokenizer's chat template, where there is one, is put around observations, with the
            arguments `chat_template_kwargs` of its configuration.

    Raises:
        ValueError: those arguments without a template, or one that the template does not read.
    """

    def __init__(self, trainer: Any) -> None:
        tokens = ChatTokens(
            trainer._tokenizer, ends=trainer.eos_token_ids, chat_args=trainer.chat_template_kwargs
        )
        super().__init__(tokens)
        self._trainer = trainer
        limits = [trainer.args.vllm_max_model_length if trainer.use_vllm else None]
        limits.append(getattr(trainer.model.config.get_text_config(), "max_position_embeddings", None))
        self.window: int | None = min((limit for limit in limits if limit is not None), default=None)
        self.knows_logprobs = False

    def sample(
        self, prompts: Sequence[Ids], draws: Sequence[np.random.Generator], max_new_tokens: Limit
    ) -> list[Reply]:
        """A reply to each prompt, cut at its limit."""
        limits = reply_limits([len(prompt) for prompt in prompts], len(draws), max_new_tokens, self.window)
        if not prompts:
            return []
        ids = [prompt.tolist() for prompt in prompts]
        written, logprobs = self._trainer._generate_single_turn(ids, None, {}, 1)
        self.knows_logprobs = logprobs is not None
        said = logprobs or [[0.0] * len(reply) for reply in written]
        return [self._reply(*one) for one in zip(written, said, limits, strict=True)]

    def _reply(self, written: Sequence[int], logprobs: Sequence[float | None], limit: int) -> Reply:
        ids = np.array(written[:limit], dtype=np.int64)
        finished = len(ids) > 0 and int(ids[-1]) in self._tokens.ends
        # None, of a token that vLLM could not score, becomes NaN.
        chances = np.array(logprobs[:limit], dtype=np.float64)
        return Reply(self._tokens.reply_text(ids), ids, chances, finished)
