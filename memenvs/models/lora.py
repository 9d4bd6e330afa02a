"""LoRA adapters (Hu et al., 2021) by peft: made, saved, loaded and merged; copies that share weights."""

from __future__ import annotations

import copy
import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memenvs.core.data import Count, checked
from memenvs.core.files import damage_in_one_line, read_json, write_json
from memenvs.core.optional import require
from memenvs.models.packaged import MODELS, resolve

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
NAME = "default"  # of the adapter inside the model
PREFIX = "base_model.model."  # of every weight in peft's files
SCALE = 2  # alpha / rank of a fresh adapter


@checked
@dataclass(frozen=True)
class LoRA:
    """An adapter to be trained instead of the model: W x becomes W x + 2 B A x (its eq. 3 with alpha = 2 r).

    Every linear layer but the lm_head gets one. B starts as 0, so that the model's outputs do not change by a
    bit. Dropout is 0.

    Args:
        rank: r, rows of A and columns of B.
        seed: seed of A.
    """

    rank: Count
    seed: int = 0


def add_adapter(model: Any, lora: LoRA, base: str = "") -> Any:
    """A copy of a causal model with a fresh adapter; it shares the model's weights, which are frozen.

    The adapter is in the model's dtype, and made without torch's global generator.

    Args:
        model: of transformers.
        lora: what to add.
        base: the name that the adapter's users load the model by; "": the model's own.

    Raises:
        ImportError: peft is not installed.
    """
    torch, peft = require("torch", "train"), require("peft", "lm")
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=SCALE * lora.rank,
        target_modules=sorted({name.rpartition(".")[2] for name in linear_layers(model)}),
        base_model_name_or_path=base or model.config._name_or_path,
        task_type="CAUSAL_LM",
        inference_mode=True,  # as it is saved
    )
    adapted = _inject(model, config)
    generator = torch.Generator().manual_seed(lora.seed)
    for _, layer in _adapted_layers(adapted):
        weight = layer.lora_A[NAME].weight
        bound = 1 / math.sqrt(weight.shape[1])  # peft's own: Kaiming's, uniform, with a = sqrt(5)
        drawn = torch.rand(weight.shape, generator=generator, dtype=torch.float32) * (2 * bound) - bound
        with torch.no_grad():
            weight.copy_(drawn)
    for weight in _adapter_weights(adapted).values():
        weight.requires_grad_()
    return adapted


def is_adapter(folder: str | Path) -> bool:
    """Whether a folder has an adapter, not a whole model."""
    return (Path(folder) / CONFIG).is_file()


def has_adapter(model: Any) -> bool:
    """Whether a model in memory has an adapter of `add_adapter` or `load_adapter`."""
    return NAME in getattr(model, "peft_config", ()) and not hasattr(model, "get_base_model")


def model_reference(model: str | Path) -> str:
    """A model's name as an adapter in another folder can give it: the absolute path of a folder."""
    if isinstance(model, str) and model in MODELS:
        return model
    return os.path.abspath(model) if Path(model).is_dir() else str(model)


def belongs_to(model: Any, name: str) -> bool:
    """Whether a name is that of the model that an adapter belongs to."""
    base = resolve(model.peft_config[NAME].base_model_name_or_path)
    return os.path.abspath(name) == os.path.abspath(base)


def base_of(folder: str | Path) -> str:
    """The model that a folder's adapter belongs to, as `load_model` takes it."""
    return str(read_json(Path(folder) / CONFIG).get("base_model_name_or_path") or "")


def load_adapter(model: Any, folder: str | Path, *, trainable: bool = True) -> Any:
    """A copy of a causal model with the adapter in a folder, of `save_adapter` or peft; see `add_adapter`.

    Args:
        model: what the adapter belongs to.
        folder: of the adapter, or the name of one that ships.
        trainable: False: the adapter is frozen too.

    Raises:
        ValueError: the adapter is of another model, or not LoRA alone.
        ImportError: peft is not installed.
    """
    folder = resolve(folder)
    config = require("peft", "lm").LoraConfig.from_pretrained(str(folder))
    adapted = _inject(model, config)
    read_adapter(adapted, folder)
    for weight in _adapter_weights(adapted).values():
        weight.requires_grad_(trainable)
    return adapted


def save_adapter(model: Any, folder: Path) -> None:
    """Write a model's adapter alone, in peft's form."""
    config = {
        name: sorted(value) if isinstance(value, set) else value
        for name, value in model.peft_config[NAME].to_dict().items()
    }
    weights = {
        PREFIX + name: weight.detach().contiguous() for name, weight in _adapter_weights(model).items()
    }
    write_json(folder / CONFIG, config)
    require("safetensors.torch", "train").save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def read_adapter(model: Any, folder: str | Path) -> None:
    """Read a folder's weights into the adapter that a model has, in place.

    Raises:
        FileNotFoundError: the folder has no weights.
        ValueError: they are damaged, of another model, or more than A and B of linear layers (DoRA, biases).
    """
    path = Path(folder) / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(f"no {WEIGHTS} in {folder}; only safetensors are read")
    with damage_in_one_line(folder):
        saved = require("safetensors.torch", "train").load_file(path)
    saved = {name.removeprefix(PREFIX): weight for name, weight in saved.items()}
    own = _adapter_weights(model)
    for name in sorted(own.keys() | saved.keys()):
        ours, theirs = (tuple(one[name].shape) if name in one else "nothing" for one in (own, saved))
        if ours != theirs:
            raise ValueError(
                f"the adapter in {folder} is of another model, of other layers, or not plain LoRA: {name} is "
                f"{theirs} there and {ours} here"
            )
    with require("torch", "train").no_grad():
        for name, weight in own.items():
            weight.copy_(saved[name])


def linear_layers(model: Any) -> dict[str, Any]:
    """The linear layers of a model except its lm_head, by their names."""
    torch = require("torch", "train")
    kinds = (torch.nn.Linear, require("transformers.pytorch_utils", "train").Conv1D)
    head = model.get_output_embeddings()
    return {name: one for name, one in model.named_modules() if isinstance(one, kinds) and one is not head}


def twin(model: Any) -> Any:
    """A copy of a model that shares its frozen weights; the rest, such as an adapter, is copied."""
    shared = [weight for weight in model.parameters() if not weight.requires_grad]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in (*shared, *model.buffers())})


def without_adapter(model: Any) -> Any:
    """A copy of a model that shares its weights and has no adapter."""
    plain = _sharing(model)
    for name, layer in _adapted_layers(plain):
        plain.set_submodule(name, layer.get_base_layer())
    del plain.peft_config
    return plain


class MergedModel:
    """A copy of a model with its adapter added to the weights; everything else is shared.

    It decodes without the adapter's small products. The sums are rounded to the model's dtype.

    Attributes:
        model: the copy.

    Args:
        adapted: the model with the adapter, which does not change.
    """

    def __init__(self, adapted: Any):
        torch = require("torch", "train")
        self.model = without_adapter(adapted)
        self._layers = [(layer, self.model.get_submodule(name)) for name, layer in _adapted_layers(adapted)]
        self._merged: list[Any] = [None] * len(self._layers)  # A and B of each layer, as they were added
        for _, plain in self._layers:
            plain.weight = torch.nn.Parameter(torch.empty_like(plain.weight), requires_grad=False)
        self.refresh()

    def refresh(self) -> None:
        """Add the adapter's present weights where they have changed, in the copy's own tensors."""
        torch = require("torch", "train")
        for number, (layer, plain) in enumerate(self._layers):
            now = [parts[NAME].weight.detach() for parts in (layer.lora_A, layer.lora_B)]
            before = self._merged[number]
            if before is not None and all(map(torch.equal, now, before)):
                continue
            self._merged[number] = [weight.clone() for weight in now]
            down, up = (weight.float() for weight in now)
            change = up @ down * layer.scaling[NAME]
            with torch.no_grad():
                base = layer.get_base_layer().weight.float()
                plain.weight.copy_(base + (change.T if layer.fan_in_fan_out else change))


def _inject(model: Any, config: Any) -> Any:
    torch, peft = require("torch", "train"), require("peft", "lm")
    adapted = _sharing(model)
    with torch.random.fork_rng(), warnings.catch_warnings():
        # peft transposes the weights of Conv1D (GPT-2) by itself, and warns of it.
        warnings.filterwarnings("ignore", message="fan_in_fan_out is set to False")
        peft.inject_adapter_in_model(config, adapted, NAME)
    return adapted


def _sharing(model: Any) -> Any:
    """A copy of a model's modules with the very same tensors, in evaluation mode."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared).eval()


def _adapted_layers(model: Any) -> list[tuple[str, Any]]:
    """The layers with an adapter, and their names."""
    kind = require("peft.tuners.lora", "lm").LoraLayer
    return [(name, module) for name, module in model.named_modules() if isinstance(module, kind)]


def _adapter_weights(model: Any) -> dict[str, Any]:
    """A and B of each layer by their names in peft's files, which leave out the adapter's own name."""
    named: Iterator[tuple[str, Any]] = model.named_parameters()
    ends = (f".lora_A.{NAME}.weight", f".lora_B.{NAME}.weight")
    return {name.replace(f".{NAME}.", "."): weight for name, weight in named if name.endswith(ends)}
