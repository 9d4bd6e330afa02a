"""A model in this process plays many episodes: the turns that wait become one batch of token ids."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memenvs.evaluation.protocol import Answer, Ask

HF_POLICY = "memenvs.baselines.policy:HFPolicy"  # of a layer above: imported by name where it is asked for
SAVED = "policy.json"  # what a folder of `HFPolicy.save` holds


class _Turn(NamedTuple):
    """The last turn of a seat: the ids that were read, and those that were replied."""

    prompt: Any
    reply: Any


class ModelPolicy:
    """A policy of `memenvs.baselines` that samples token ids; a `BatchPolicy`.

    An episode of context `"append"` is one growing sequence of ids: the model reads its own replies as it
    wrote them, never tokenised anew.

    Args:
        policy: has `encode`, `encode_feedback` and `sample`, as `HFPolicy` does.
        max_new_tokens: of a reply.
    """

    def __init__(self, policy: Any, max_new_tokens: int) -> None:
        self.policy, self.max_new_tokens = policy, max_new_tokens
        self._waiting: list[tuple[Ask, Any]] = []
        self._past: dict[int, _Turn] = {}

    def ask(self, asked: Ask) -> None:
        """See `BatchPolicy`."""
        past = self._past.get(asked.seat)
        if past is None or asked.first or asked.info["context"] == "rewrite":
            prompt = self.policy.encode(asked.observation)
        else:
            behind = self.policy.encode_feedback(asked.info["feedback"], past.reply)
            prompt = np.concatenate([past.prompt, past.reply, behind])
        self._waiting.append((asked, prompt))

    def answered(self) -> list[Answer]:
        """See `BatchPolicy`."""
        waiting, self._waiting = self._waiting, []
        prompts, draws = [prompt for _, prompt in waiting], [asked.rng for asked, _ in waiting]
        replies = self.policy.sample(prompts, draws, self.max_new_tokens)
        answers = []
        for (asked, prompt), reply in zip(waiting, replies, strict=True):
            self._past[asked.seat] = _Turn(prompt, reply.ids)
            size = len(reply.ids)
            answers.append(Answer(asked.seat, reply.text, len(prompt), size, not reply.finished))
        return answers

    def close(self) -> None:
        """See `BatchPolicy`."""


def load_hf(model: str, *, max_new_tokens: int, **sampling: Any) -> ModelPolicy:
    """A Hugging Face model by its folder or hub name.

    Args:
        model: a folder or a name. One that `HFPolicy.save` wrote keeps its own settings, as it was trained
            with, but for the temperature and for what is given.
        max_new_tokens: of a reply.
        **sampling: `temperature`, `top_p`, `top_k`, `min_p`, `stop` and `chat_args` of `HFPolicy`; what is
            None or empty is not given.
    """
    module, _, name = HF_POLICY.partition(":")
    policy = getattr(importlib.import_module(module), name)
    given = {name: value for name, value in sampling.items() if value not in (None, [], {})}
    made = (policy.load if (Path(model) / SAVED).is_file() else policy)(model, **given)
    return ModelPolicy(made, max_new_tokens)
