"""A causal language model comes in; its two halves go out: ids to hidden states, hidden states to logits."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from memenvs.extras import require


class Halves(NamedTuple):
    """What a causal model is made of; both use its present weights.

    Attributes:
        base: called as the model is, gives `last_hidden_state` (B, T, H).
        logits: from hidden states (N, H) to logits (N, V).
    """

    base: Any
    logits: Callable[[Any], Any]


def halves(model: Any) -> Halves:
    """Split a causal model of transformers, and check on a few tokens that its halves give its own logits.

    A model may cap its logits (Gemma) or scale them (Cohere, Granite) behind its head: what its config names
    is done here too, and the check refuses a model that does anything else.

    Raises:
        ValueError: it is no causal language model, or its logits cannot be made from its hidden states.
    """
    torch = require("torch", "train")
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model  # an adapter of peft
    head = inner.get_output_embeddings() if hasattr(inner, "get_output_embeddings") else None
    if head is None or inner.base_model is inner:
        raise ValueError(
            f"{type(inner).__name__} is no causal language model with a head over its vocabulary; "
            "give what AutoModelForCausalLM loads"
        )
    config = inner.config.get_text_config()
    ids = (torch.arange(8) * 7 % config.vocab_size)[None].to(inner.get_input_embeddings().weight.device)
    with torch.no_grad(), evaluating(inner):
        wanted = inner(input_ids=ids, use_cache=False).logits[0].float()
        hidden = inner.base_model(input_ids=ids, use_cache=False).last_hidden_state[0]
        tolerance = 1e-5 if hidden.dtype == torch.float32 else 1e-2
        tolerance *= max(1.0, float(wanted.abs().max()))
        for change in _changes(config):
            logits = _Head(head, change)
            if torch.allclose(logits(hidden).float().to(wanted.device), wanted, rtol=0, atol=tolerance):
                return Halves(inner.base_model, logits)
    raise ValueError(
        f"{type(inner).__name__} changes its logits behind its head in a way that HFScorer does not know; "
        "score with it through vLLM (ServerScorer or VLLMScorer)"
    )


class _Head:
    """The head, wherever its weights lie, and what the model does to its logits."""

    def __init__(self, head: Any, change: Callable[[Any], Any]):
        self._head, self._change = head, change

    def __call__(self, hidden: Any) -> Any:
        return self._change(self._head(hidden.to(self._head.weight.device)))


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Every module of the model in evaluation mode, and afterwards as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _changes(config: Any) -> Iterator[Callable[[Any], Any]]:
    """What a model may do to its logits, by its config; some families multiply by a scale, some divide."""
    for name in ("final_logit_softcapping", "logits_soft_cap"):
        if cap := getattr(config, name, None):
            yield functools.partial(_cap, cap)
    for name in ("logit_scale", "logits_scaling", "lm_head_multiplier"):
        if scale := getattr(config, name, None):
            yield functools.partial(operator.mul, scale)
            yield functools.partial(operator.mul, 1 / scale)
    yield lambda logits: logits


def _cap(cap: float, logits: Any) -> Any:
    return (logits / cap).tanh() * cap
