"""Causal language models of transformers: loading, the split into backbone and lm_head, and their caches."""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from memenvs.core.data import checked
from memenvs.core.files import damage_in_one_line
from memenvs.core.optional import require
from memenvs.models import lora
from memenvs.models.packaged import resolve

Dtype = Literal["auto", "bfloat16", "float32"]
"""What a model by name computes in; see `load_model`."""


@checked
def load_model(
    model: Any, device: str | None = None, dtype: Dtype = "auto", *, merge_adapter: bool = True
) -> Any:
    """A causal model in evaluation mode: safetensors only, and no code of the model is run.

    Args:
        model: a folder, a name on the hub or one of `memenvs.models.packaged`; or a model in
            memory, which is returned as it is. The folder of a LoRA adapter names the model that it belongs
            to, which is loaded with it.
        device: of torch; None: `own_device()`.
        dtype: `"auto"` is the checkpoint's own where the device computes in it at least as fast as in
            float32, and otherwise float32: instead of float16 on a CPU, and of bfloat16 on a CPU without
            instructions for it (AVX512-BF16 or AMX) or on a GPU that only emulates it.
        merge_adapter: add an adapter to the model's weights; False: keep it beside them, to be trained.

    Raises:
        FileNotFoundError: there is no such model.
        ImportError: the package of a packaged model is not installed.
        ValueError: a device or a dtype is given for a model in memory, or weights are damaged.
    """
    if hasattr(model, "config"):
        if device is not None or dtype != "auto":
            raise ValueError("device and dtype are for a model by name; move a model in memory yourself")
        return model
    name = str(resolve(model))
    if lora.is_adapter(name):
        adapted = lora.load_adapter(load_model(lora.base_of(name), device, dtype), name)
        if merge_adapter:
            adapted = lora.MergedModel(adapted).model
        adapted.config._name_or_path = name  # which may have a tokenizer
        return adapted
    torch = require("torch", "train")
    place = torch.device(device or own_device())
    loaded = _read_model(name, dtype)
    if dtype == "auto" and not computes_fast(place, loaded.dtype):
        del loaded  # read again, not cast: some models make constants in the dtype that they are loaded in
        loaded = _read_model(name, "float32")
    return loaded.to(place).eval()


def own_device() -> str:
    """The GPU of this process, by the LOCAL_RANK that launchers of several processes set, or the CPU."""
    cuda = require("torch", "train").cuda
    if not cuda.is_available():
        return "cpu"
    rank = os.environ.get("LOCAL_RANK")
    return f"cuda:{cuda.current_device() if rank is None else int(rank) % cuda.device_count()}"


def computes_fast(device: Any, dtype: Any) -> bool:
    """Whether a device of torch computes in a dtype of torch at least as fast as in float32."""
    torch = require("torch", "train")
    kind = torch.device(device).type
    if dtype == torch.float32 or kind not in ("cpu", "cuda"):
        return True
    if kind == "cuda":
        return dtype != torch.bfloat16 or torch.cuda.is_bf16_supported(including_emulation=False)
    if dtype != torch.bfloat16:
        return False
    # Private names that every torch from 2.6 on has.
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def _read_model(name: str, dtype: str) -> Any:
    try:
        if Path(name).is_dir() and not (Path(name) / "config.json").is_file():
            raise FileNotFoundError("the folder has no config.json")
        with damage_in_one_line(name):
            return require("transformers", "train").AutoModelForCausalLM.from_pretrained(
                name, dtype=dtype, trust_remote_code=False, use_safetensors=True
            )
    except OSError as error:
        raise FileNotFoundError(
            f"no model {name!r}: give the folder of a causal model with safetensors weights, or a name that "
            f"the Hugging Face hub knows and this machine has cached or can reach ({error})"
        ) from error


def load_hf_tokenizer(tokenizer: Any, model: Any) -> Any:
    """The given tokenizer of transformers, the one of the given name, or with None the one beside the model.

    Raises:
        FileNotFoundError: there is no tokenizer of that name, or none in the model's folder.
    """
    if tokenizer is not None and not isinstance(tokenizer, str) and hasattr(tokenizer, "encode"):
        return tokenizer
    name = str(resolve(tokenizer)) if tokenizer is not None else model.config._name_or_path
    if lora.is_adapter(name) and not (Path(name) / "tokenizer_config.json").is_file():
        name = str(resolve(lora.base_of(name)))
    try:
        return require("transformers", "train").AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except OSError as error:
        raise FileNotFoundError(f"no tokenizer at {name!r}; give one as tokenizer= ({error})") from error


class CausalLM(NamedTuple):
    """A causal model in two parts; both use its present weights.

    Attributes:
        backbone: called as the model is, gives `last_hidden_state` (B, T, H).
        lm_head: from hidden states (N, H) to logits (N, V), as the model itself gives them.
    """

    backbone: Any
    lm_head: LMHead


def split_model(model: Any) -> CausalLM:
    """Split a causal model of transformers.

    Raises:
        ValueError: it is not a causal language model.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model  # an adapter of peft
    embeddings = inner.get_output_embeddings() if hasattr(inner, "get_output_embeddings") else None
    if embeddings is None or inner.base_model is inner:
        raise ValueError(
            f"{type(inner).__name__} is not a causal language model with a head over its vocabulary; "
            "give what AutoModelForCausalLM loads"
        )
    return CausalLM(inner.base_model, LMHead(inner))


class LMHead:
    """From hidden states to logits by the model's own forward, which may scale or cap them.

    The forward is that of a shallow copy, in which the backbone gives the states that it is given.

    Attributes:
        embeddings: of the output.
    """

    def __init__(self, model: Any):
        self.embeddings = model.get_output_embeddings()
        self._model = copy.copy(model)
        vars(self._model).pop("forward", None)  # accelerate's is bound to the model
        self._model._modules = model._modules | {model.base_model_prefix: _GivenStates(model.base_model)}

    def __call__(self, hidden: Any) -> Any:
        """Logits (N, V) of hidden states (N, H)."""
        hidden = hidden.to(self.embeddings.weight.device)
        return self._model.forward(inputs_embeds=hidden[None], use_cache=False).logits[0]


class _GivenStates:
    """Replaces a backbone or its decoder: returns the states that it is given."""

    def __init__(self, backbone: Any):
        self._backbone, self.decoder = backbone, self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backbone, name)

    def __call__(self, *_args: Any, inputs_embeds: Any, **_kwargs: Any) -> _Output:
        return _Output([inputs_embeds])


class _Output(list[Any]):
    """An output of a backbone: the hidden states come first, every other field is None."""

    def __getattr__(self, name: str) -> Any:
        return self[0] if name == "last_hidden_state" else None


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Put every module of the model in evaluation mode, and restore each one's own mode afterwards."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


CROPPABLE = {"full_attention", "sliding_attention"}  # kinds of layers that cache keys and values alone


def can_reuse_cache(backbone: Any) -> bool:
    """Whether a model's cache holds only keys and values of each token, so that it can be cut and copied."""
    config = backbone.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ())
    other = backbone._is_stateful or kinds - CROPPABLE or getattr(config, "num_kv_shared_layers", None)
    return not (other or depends_on_length(config)) and bool(_cache_name(backbone))


def depends_on_length(config: Any) -> bool:
    """Whether a token's keys depend on the length of the whole input (LongRoPE), padding included."""
    return "longrope" in str([getattr(config, name, None) for name in ("rope_parameters", "rope_scaling")])


def empty_cache() -> Any:
    """A cache to be filled by a model; made without its config, it also keeps what a sliding window masks."""
    return require("transformers", "train").DynamicCache()


def cache_inputs(model: Any, cache: Any) -> dict[str, Any]:
    """Arguments that make a model read after a cache and fill it."""
    return {_cache_name(model): cache, "use_cache": True}


def _cache_name(model: Any) -> str:
    """The name of a model's argument for a cache, `cache` since transformers 5.24; "" where it has none."""
    names = inspect.signature(model.forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in names), "")


class PackedLinears:
    """Linear layers that multiply by weights in the order in which oneDNN reads them.

    On a CPU a product with few rows waits for its weights: `torch.nn.functional.linear` reorders them each
    time. Here a second copy of the weights keeps that order, made when they are first used and again for a
    layer whose weights have changed. Products differ by the order of sums alone.

    Layers on another device, in another dtype than float32 or bfloat16, with a forward method of their own,
    or beyond `PACKED` bytes do not change.

    Args:
        modules: whose layers, those inside them included; each layer is packed once.
    """

    def __init__(self, modules: Iterable[Any]):
        nn = require("torch", "train").nn
        layers = (layer for module in modules for layer in module.modules())
        self._layers = [layer for layer in dict.fromkeys(layers) if type(layer) is nn.Linear]
        self._packed: dict[Any, _PackedWeight] = {}

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Use the packed weights; only under `torch.no_grad()`, and while no weight changes."""
        used, room = [], PACKED
        for layer in self._layers:
            room -= layer.weight.nbytes
            if room < 0 or not _can_pack(layer):
                self._packed.pop(layer, None)
                continue
            packed = self._packed.get(layer)
            if packed is None or not packed.is_of(layer.weight):
                packed = self._packed[layer] = _PackedWeight(layer.weight)
            layer.forward = functools.partial(packed.product, layer)
            used.append(layer)
        try:
            yield
        finally:
            for layer in used:
                del layer.forward


PACKED = 2**33  # bytes of weights that have a second copy
PACKED_FOR = 16  # rows for which oneDNN chooses the order; any number may be multiplied


class _PackedWeight:
    """A layer's weight (out, in) in oneDNN's order."""

    def __init__(self, weight: Any):
        self._torch = require("torch", "train")
        self._version, self._sum = self._state(weight)
        self._weight = self._torch.ops.mkldnn._reorder_linear_weight(weight.detach(), PACKED_FOR)

    def is_of(self, weight: Any) -> bool:
        """Whether the weight is still the one that was packed; in-place changes may leave its version."""
        return self._state(weight) == (self._version, self._sum)

    def _state(self, weight: Any) -> tuple[Any, int]:
        flat = weight.detach().view(-1)
        wide = flat[: flat.numel() // 4 * 4].view(self._torch.int64)
        version = None if weight.is_inference() else weight._version
        return (weight.data_ptr(), weight.shape, weight.dtype, version), int(wide.sum())

    def product(self, layer: Any, states: Any) -> Any:
        if states.dtype != layer.weight.dtype:  # autocast
            return self._torch.nn.functional.linear(states, layer.weight, layer.bias)
        return self._torch.ops.mkldnn._linear_pointwise(states, self._weight, layer.bias, "none", [], "")


def _can_pack(layer: Any) -> bool:
    torch, weight = require("torch", "train"), layer.weight
    if type(weight) not in (torch.nn.Parameter, torch.Tensor) or "forward" in vars(layer):
        return False
    if weight.device.type != "cpu" or not weight.is_contiguous() or weight.storage_offset() % 4:
        return False
    ops = torch.ops.mkldnn  # there with oneDNN, for compiled models
    if not hasattr(ops, "_linear_pointwise") or torch.is_autocast_enabled("cpu"):
        return False
    fast = weight.dtype == torch.bfloat16 and ops._is_mkldnn_bf16_supported()
    return bool(fast or weight.dtype == torch.float32)
