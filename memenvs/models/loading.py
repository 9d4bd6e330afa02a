"""Causal language models of transformers: loading, and the split into backbone and head."""

from __future__ import annotations

import atexit
import functools
import operator
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from memenvs.core.optional import require


def load_model(name: str, device: str | None = None, dtype: str | None = None) -> Any:
    """A causal model in evaluation mode: safetensors only, and no code of the model is run.

    Args:
        name: a folder, or a name on the hub.
        device: of torch; None: a GPU if there is one.
        dtype: `"bfloat16"` …; None: float32 on a CPU, else the checkpoint's.

    Raises:
        FileNotFoundError: there is no such model.
    """
    torch, transformers = require("torch", "train"), require("transformers", "train")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if dtype is None:
        dtype = "float32" if torch.device(device).type == "cpu" else "auto"
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            name, dtype=dtype, trust_remote_code=False, use_safetensors=True
        )
    except OSError as error:
        raise FileNotFoundError(
            f"no model {name!r}: give the folder of a causal model with safetensors weights, or a name that "
            f"the Hugging Face hub knows and this machine has cached or can reach ({error})"
        ) from error
    return model.to(device).eval()


def load_tokenizer(tokenizer: Any, model: Any) -> Any:
    """A tokenizer of transformers: the one given, the one of that name, or the one beside the model.

    Raises:
        FileNotFoundError: there is no tokenizer of that name.
        ValueError: none is given, and the model was not loaded from anywhere.
    """
    if tokenizer is not None and not isinstance(tokenizer, str) and hasattr(tokenizer, "encode"):
        return tokenizer
    name = str(tokenizer) if tokenizer is not None else model.config._name_or_path
    if not name:
        raise ValueError("a model that was made in memory has no tokenizer beside it; give tokenizer=")
    try:
        return require("transformers", "train").AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except OSError as error:
        raise FileNotFoundError(f"no tokenizer at {name!r}; give one as tokenizer= ({error})") from error


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


def entropy_of(logprobs: Any) -> Any:
    """Entropies (...), nats, of distributions by their log-probabilities (..., V).

    A token of log-probability -inf cannot come up, and adds nothing.
    """
    # 0 * -inf would be NaN, in the value and in the gradient
    torch = require("torch", "train")
    finite = logprobs.clamp(min=torch.finfo(logprobs.dtype).min)
    return -(logprobs.exp() * finite).sum(dim=-1)


PATIENCE = 5.0  # seconds that a thread of an engine has to end


def start_engine(model: str, arguments: Mapping[str, Any]) -> Any:
    """A `vllm.LLM` that is shut down when the interpreter ends.

    Left to itself its threads live on into the interpreter's end, which now and then aborts a process that
    has done its work.

    Args:
        model: a folder or a name on the hub.
        arguments: of `vllm.LLM`.
    """
    before = set(threading.enumerate())
    engine = require("vllm", "vllm").LLM(model, **arguments)
    threads = [one for one in threading.enumerate() if one not in before and one.name != "tqdm_monitor"]
    atexit.register(stop_engine, weakref.ref(engine), threads)
    return engine


def stop_engine(engine: weakref.ref[Any], threads: Sequence[threading.Thread]) -> None:
    """Shut an engine down, if there still is one, and wait for its threads."""
    core = getattr(getattr(engine(), "llm_engine", None), "engine_core", None)
    if core is not None:
        core.shutdown()
    for thread in threads:
        thread.join(PATIENCE)
