"""Causal language models of transformers: loading, hidden states apart from logits, and their caches."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from memenvs.core.data import checked
from memenvs.core.files import damage_in_one_line
from memenvs.models import lora
from memenvs.models.hub import check_found
from memenvs.models.packaged import base_of, is_adapter, resolve
from memenvs.models.settings import Dtype


@checked
def load_model(
    model: str | Path | PreTrainedModel,
    device: str | None = None,
    dtype: Dtype = "auto",
    *,
    merge_adapter: bool = True,
) -> PreTrainedModel:
    """A causal model in evaluation mode: safetensors only, and no code of the model is run.

    Args:
        model: a folder, a name on the hub or one of `memenvs.models.packaged`; or a model in
            memory, which is returned as it is. The folder of a LoRA adapter names the model that it belongs
            to, which is loaded with it.
        device: the torch device; None: `own_device()`.
        dtype: `"auto"` is the checkpoint's own where the device computes in it at least as fast as in
            float32, and otherwise float32: instead of float16 on a CPU, and of bfloat16 on a CPU without
            instructions for it (AVX512-BF16 or AMX) or on a GPU that only emulates it.
        merge_adapter: add an adapter to the model's weights; False: keep it beside them, to be trained.

    Raises:
        FileNotFoundError: there is no such model.
        ImportError: the package of a packaged model is not installed.
        ValueError: a device or a dtype is given for a model in memory, or weights are damaged.
    """
    if not isinstance(model, str | Path):
        if device is not None or dtype != "auto":
            raise ValueError("device and dtype are for a model by name; move a model in memory yourself")
        return model
    name = str(resolve(model))
    if is_adapter(name):
        adapted = lora.load_adapter(load_model(base_of(name), device, dtype), name)
        if merge_adapter:
            adapted = lora.MergedModel(adapted).model
        adapted.config._name_or_path = name  # which may have a tokenizer
        return adapted
    place = torch.device(device or own_device())
    loaded = _read_model(name, dtype)
    if dtype == "auto" and not computes_fast(place, loaded.dtype):
        del loaded  # read again, not cast: some models make constants in the dtype that they are loaded in
        loaded = _read_model(name, "float32")
    loaded.to(place)  # type: ignore[arg-type]  # transformers hides the signature
    return loaded.eval()


def own_device() -> str:
    """The GPU of this process, by the LOCAL_RANK that launchers of several processes set, or the CPU."""
    if not torch.cuda.is_available():
        return "cpu"
    rank = os.environ.get("LOCAL_RANK")
    return f"cuda:{torch.cuda.current_device() if rank is None else int(rank) % torch.cuda.device_count()}"


def computes_fast(device: torch.device | str, dtype: torch.dtype) -> bool:
    """Whether a device computes in a dtype at least as fast as in float32."""
    kind = torch.device(device).type
    if dtype == torch.float32 or kind not in ("cpu", "cuda"):
        return True
    if kind == "cuda":
        return dtype != torch.bfloat16 or torch.cuda.is_bf16_supported(including_emulation=False)
    if dtype != torch.bfloat16:
        return False
    # Private names that every torch from 2.6 on has.
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _read_model(name: str, dtype: str) -> PreTrainedModel:
    check_found(name)
    try:
        if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
            raise FileNotFoundError("the folder has no config.json")
        with damage_in_one_line(name):
            return cast(
                PreTrainedModel,
                transformers.AutoModelForCausalLM.from_pretrained(
                    name, dtype=dtype, trust_remote_code=False, use_safetensors=True
                ),
            )
    except OSError as error:
        raise FileNotFoundError(
            f"no model {name!r}: give the folder of a causal model with safetensors weights, or a name that "
            f"the Hugging Face hub knows and this machine has cached or can reach ({error})"
        ) from error


Tokenizer = str | Path | PreTrainedTokenizerBase | None
"""A tokenizer of transformers, its name or folder; None for the one beside the model."""


def load_hf_tokenizer(tokenizer: Tokenizer, model: PreTrainedModel | None) -> PreTrainedTokenizerBase:
    """The given tokenizer of transformers, the one of the given name, or with None the one beside the model.

    Raises:
        FileNotFoundError: there is no tokenizer of that name, or none in the model's folder.
    """
    if isinstance(tokenizer, PreTrainedTokenizerBase):
        return tokenizer
    if tokenizer is not None:
        name = str(resolve(tokenizer))
    else:
        name = cast(PreTrainedModel, model).config._name_or_path
    if is_adapter(name) and not (Path(name) / "tokenizer_config.json").is_file():
        name = str(resolve(base_of(name)))
    check_found(name)
    try:
        return cast(
            PreTrainedTokenizerBase,
            transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False),
        )
    except OSError as error:
        raise FileNotFoundError(f"no tokenizer at {name!r}; give one as tokenizer= ({error})") from error


class CausalLM:
    """A causal model of transformers that gives hidden states and logits apart, with its present weights.

    Attributes:
        model: the whole model.
        backbone: its decoder; called as the model is, it gives `last_hidden_state` (B, T, H).

    Raises:
        ValueError: it is not a causal language model.
    """

    def __init__(self, model: Any):
        self.model = cast(
            PreTrainedModel,
            model.get_base_model() if hasattr(model, "get_base_model") else model,  # peft's
        )
        if self.model.get_output_embeddings() is None or self.model.get_decoder() is self.model:
            raise ValueError(
                f"{type(self.model).__name__} is not a causal language model with a head over its "
                "vocabulary; give what AutoModelForCausalLM loads"
            )
        self.backbone = cast(PreTrainedModel, self.model.get_decoder())

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (N, V) of hidden states (N, H), as the model itself scales or caps them.

        The model reads one token, and a hook replaces what its backbone gives.
        """
        head = cast(nn.Linear, self.model.get_output_embeddings())
        embeddings = cast(nn.Embedding, self.model.get_input_embeddings())

        def replace(_module: nn.Module, _inputs: Any, output: Any) -> Any:
            output.last_hidden_state = hidden[None].to(head.weight.device)
            return output

        hook = self.backbone.register_forward_hook(replace)
        try:
            token = torch.zeros(1, 1, dtype=torch.long, device=embeddings.weight.device)
            logits: Tensor = self.model(input_ids=token, use_cache=False).logits[0]
            return logits
        finally:
            hook.remove()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Keep no gradients, with every module in evaluation mode; each one's own mode is restored afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


CROPPABLE = {"full_attention", "sliding_attention"}  # kinds of layers that cache keys and values alone


def can_reuse_cache(backbone: PreTrainedModel) -> bool:
    """Whether a model's cache holds only keys and values of each token, so that it can be cut and copied."""
    config = backbone.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    other = backbone._is_stateful or kinds - CROPPABLE or getattr(config, "num_kv_shared_layers", None)
    return not (other or depends_on_length(config)) and bool(_cache_name(backbone))


def depends_on_length(config: transformers.PreTrainedConfig) -> bool:
    """Whether a token's keys depend on the length of the whole input (LongRoPE), padding included."""
    return "longrope" in str([getattr(config, name, None) for name in ("rope_parameters", "rope_scaling")])


def cache_inputs(model: nn.Module, cache: transformers.DynamicCache) -> dict[str, Any]:
    """Arguments that make a model read after a cache and fill it."""
    return {_cache_name(model): cache, "use_cache": True}


def _cache_name(model: nn.Module) -> str:
    """The name of a model's argument for a cache, `cache` since transformers 5.24; "" where it has none."""
    names = inspect.signature(model.forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in names), "")
