"""A model in this process plays many episodes: the turns that wait become one batch of token ids."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memenvs.evaluation.protocol import Answer, Ask, checked_feedback

HF_POLICY = "memenvs.baselines.policy:HFPolicy"  # of a layer above: imported by name where it is asked for
SAVED = "policy.json"  # what a folder of `HFPolicy.save` holds


class _Turn(NamedTuple):
    """The last turn of a seat: what was read, and what was replied."""

    observation: str
    prompt: Any
    text: str
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
            came = checked_feedback(past.observation, past.text, asked.observation)
            prompt = np.concatenate([past.prompt, past.reply, self.policy.encode_feedback(came, past.reply)])
        self._waiting.append((asked, prompt))

    def answered(self) -> list[Answer]:
        """See `BatchPolicy`."""
        waiting, self._waiting = self._waiting, []
        prompts, draws = [prompt for _, prompt in waiting], [asked.rng for asked, _ in waiting]
        replies = self.policy.sample(prompts, draws, self.max_new_tokens)
        answers = []
        for (asked, prompt), reply in zip(waiting, replies, strict=True):
            self._past[asked.seat] = _Turn(asked.observation, prompt, reply.text, reply.ids)
            size = len(reply.ids)
            answers.append(Answer(asked.seat, reply.text, len(prompt), size, not reply.finished))
        return answers

    def close(self) -> None:
        """See `BatchPolicy`."""


def load_hf(model: str, *, temperature: float, max_new_tokens: int, stop: Sequence[str]) -> ModelPolicy:
    """A Hugging Face model by its folder or hub name.

    A folder that `HFPolicy.save` wrote keeps its own chat form and stop strings, as it was trained with.
    """
    module, _, name = HF_POLICY.partition(":")
    policy = getattr(importlib.import_module(module), name)
    saved = (Path(model) / SAVED).is_file()
    changed = {"stop": tuple(stop)} if stop or not saved else {}
    made = (policy.load if saved else policy)(model, temperature=temperature, **changed)
    return ModelPolicy(made, max_new_tokens)
