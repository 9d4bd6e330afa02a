"""LoRA adapters (Hu et al., 2021) by peft: made, saved, loaded and merged; copies that share weights."""

from __future__ import annotations

import copy
import math
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from memenvs.core.files import damage_in_one_line, write_json
from memenvs.core.optional import Lazy
from memenvs.models.packaged import ADAPTER, MODELS, pinned, resolve, split_revision, with_revision
from memenvs.models.policy import LoRA

if TYPE_CHECKING:
    import peft
else:
    peft = Lazy("peft", "lm")  # models without an adapter need none

WEIGHTS = "adapter_model.safetensors"
NAME = "default"  # of the adapter inside the model
PREFIX = "base_model.model."  # of every weight in peft's files
SCALE = 2  # alpha / rank of a fresh adapter

M = TypeVar("M", bound=nn.Module)


def add_adapter(model: PreTrainedModel, lora: LoRA, base: str = "") -> PreTrainedModel:
    """A copy of a causal model with a fresh adapter; it shares the model's weights, which are frozen.

    The adapter is in the model's dtype, and made without torch's global generator. `base` is the name that
    its users load the model by; "": the model's own.
    """
    name, revision = split_revision(base)
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=SCALE * lora.rank,
        target_modules=sorted({name.rpartition(".")[2] for name in linear_layers(model)}),
        target_parameters=expert_weights(model) or None,
        base_model_name_or_path=name or model.config._name_or_path,
        revision=revision or None,
        task_type="CAUSAL_LM",
        inference_mode=True,  # as it is saved
    )
    adapted = _inject(model, config)
    generator = torch.Generator().manual_seed(lora.seed)
    for _, layer in _adapted_layers(adapted):
        weight = cast(nn.Linear, layer.lora_A[NAME]).weight
        bound = 1 / math.sqrt(weight.shape[1])  # peft's own: Kaiming's, uniform, with a = sqrt(5)
        drawn = torch.rand(weight.shape, generator=generator, dtype=torch.float32) * (2 * bound) - bound
        with torch.no_grad():
            weight.copy_(drawn)
    for weight in _adapter_weights(adapted).values():
        weight.requires_grad_()
    return adapted


def has_adapter(model: nn.Module) -> bool:
    """Whether a model in memory has an adapter of `add_adapter` or `load_adapter`."""
    return NAME in getattr(model, "peft_config", ()) and not hasattr(model, "get_base_model")


def base_name(model: PreTrainedModel) -> str:
    """The name of the model that a model's adapter belongs to."""
    config = cast(peft.LoraConfig, model.peft_config[NAME])
    return with_revision(str(config.base_model_name_or_path), config.revision)


def belongs_to(model: PreTrainedModel, name: str) -> bool:
    """Whether a name is that of the model that an adapter belongs to."""
    return os.path.abspath(name) == os.path.abspath(resolve(base_name(model)))


def model_reference(model: str | Path) -> str:
    """A model's name as an adapter in another folder can give it: a folder's absolute path, a commit."""
    return os.path.abspath(model) if model not in MODELS and Path(model).is_dir() else pinned(str(model))


def load_adapter(model: PreTrainedModel, folder: str | Path, *, trainable: bool = True) -> PreTrainedModel:
    """A copy of a causal model with the adapter in a folder, as `add_adapter` makes it.

    Args:
        model: what the adapter belongs to.
        folder: the adapter's, written by `save_adapter` or peft, or the name of one that ships.
        trainable: False: the adapter is frozen too.

    Raises:
        ValueError: the adapter is of another model, or not LoRA alone.
    """
    folder = resolve(folder)
    adapted = _inject(model, peft.LoraConfig.from_pretrained(str(folder)))
    read_adapter(adapted, folder)
    for weight in _adapter_weights(adapted).values():
        weight.requires_grad_(trainable)
    return adapted


def save_adapter(model: PreTrainedModel, folder: Path) -> None:
    """Write a model's adapter alone, in peft's form."""
    config = cast(peft.LoraConfig, model.peft_config[NAME]).to_dict()
    fields = {name: sorted(value) if isinstance(value, set) else value for name, value in config.items()}
    weights = {
        PREFIX + name: weight.detach().contiguous() for name, weight in _adapter_weights(model).items()
    }
    write_json(folder / ADAPTER, fields)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def read_adapter(model: PreTrainedModel, folder: str | Path) -> None:
    """Read a folder's weights into the adapter that a model has, in place.

    Raises:
        FileNotFoundError: the folder has no weights.
        ValueError: they are damaged, of another model, or more than A and B of its layers (DoRA, biases).
    """
    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"no {WEIGHTS} in {folder}; only safetensors are read")
    with damage_in_one_line(folder):
        saved = {name.removeprefix(PREFIX): weight for name, weight in load_file(path).items()}
    weights = _adapter_weights(model)
    for name in sorted(weights.keys() | saved.keys()):
        ours, theirs = (tuple(all[name].shape) if name in all else "nothing" for all in (weights, saved))
        if ours != theirs:
            raise ValueError(
                f"the adapter in {folder} is of another model, of other layers, or not plain LoRA: {name} is "
                f"{theirs} there and {ours} here"
            )
    with torch.no_grad():
        for name, weight in weights.items():
            weight.copy_(saved[name])


def linear_layers(model: PreTrainedModel) -> dict[str, nn.Module]:
    """The linear layers of a model except its lm_head, by their names."""
    head = model.get_output_embeddings()
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, (nn.Linear, Conv1D)) and module is not head
    }


def expert_weights(model: nn.Module) -> list[str]:
    """The weights of a mixture's experts, stacked in one parameter (E, …), by the ends of their names."""
    stacked = [name for name, weight in model.named_parameters() if weight.ndim == 3]
    names = [name.replace(".base_layer", "").split(".") for name in stacked]
    return sorted({".".join(name[-2:]) for name in names if name[-2] == "experts"})


def twin(model: M) -> M:
    """A copy of a model that shares its frozen weights; the rest, such as an adapter, is copied."""
    shared = [weight for weight in model.parameters() if not weight.requires_grad]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in (*shared, *model.buffers())})


def without_adapter(model: PreTrainedModel) -> PreTrainedModel:
    """A copy of a model that shares its weights and has no adapter."""
    plain = _sharing(model)
    for name, layer in _adapted_layers(plain):
        if not name.endswith(".base_layer"):  # the second adapter of a module is inside the first
            plain.set_submodule(name, layer.get_base_layer())
    del plain.peft_config
    return plain


class MergedModel:
    """A copy of a model with its adapter added to the weights; everything else is shared.

    It decodes without the adapter's small products. The sums are rounded to the model's dtype. `model` is the
    copy; the adapted model does not change.
    """

    def __init__(self, adapted: PreTrainedModel):
        self.model = without_adapter(adapted)
        self._layers = [
            (layer, self.model.get_submodule(name.removesuffix(".base_layer")))
            for name, layer in _adapted_layers(adapted)
        ]
        self._merged: list[list[Tensor]] = [[]] * len(self._layers)  # A and B of each layer, as they were
        for layer, plain in self._layers:
            name = _weight_name(layer)
            empty = torch.empty_like(getattr(plain, name))
            setattr(plain, name, nn.Parameter(empty, requires_grad=False))
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Add the adapter's present weights where they have changed, in the copy's own tensors."""
        for number, (layer, plain) in enumerate(self._layers):
            now = [parts[NAME].weight.detach() for parts in (layer.lora_A, layer.lora_B)]
            before = self._merged[number]
            if before and all(map(torch.equal, now, before)):
                continue
            self._merged[number] = [weight.clone() for weight in now]
            name = _weight_name(layer)
            base = getattr(layer.get_base_layer(), name).float()
            if name == "weight":
                down, up = (weight.float() for weight in now)
                change = up @ down * layer.scaling[NAME]
                change = change.T if layer.fan_in_fan_out else change
            else:
                change = layer.get_delta_weight(NAME).float()
            getattr(plain, name).copy_(base + change)


def _weight_name(layer: Any) -> str:
    """The parameter that an adapted layer changes; for experts, one with a name."""
    return str(getattr(layer, "parameter_name", "weight"))


def _inject(model: PreTrainedModel, config: peft.LoraConfig) -> PreTrainedModel:
    adapted = _sharing(model)
    with torch.random.fork_rng(), warnings.catch_warnings():
        # peft transposes the weights of Conv1D (GPT-2) by itself, and warns of it.
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")
        # peft 0.18 warns of the experts of a mixture, which it adapts nevertheless.
        warnings.filterwarnings("ignore", message="Unsupported layer type")
        peft.inject_adapter_in_model(config, adapted, NAME)
    return adapted


def _sharing(model: M) -> M:
    """A copy of a model's modules with the very same tensors, in evaluation mode."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared).eval()


def _adapted_layers(model: nn.Module) -> list[tuple[str, Any]]:
    """The layers with an adapter, and their names."""
    kind = peft.tuners.lora.LoraLayer
    return [(name, module) for name, module in model.named_modules() if isinstance(module, kind)]


def _adapter_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """A and B of each layer by their names in peft's files, which leave out the adapter's own name."""
    ends = (f".lora_A.{NAME}.weight", f".lora_B.{NAME}.weight")
    return {
        name.replace(f".{NAME}.", "."): weight
        for name, weight in model.named_parameters()
        if name.endswith(ends)
    }
