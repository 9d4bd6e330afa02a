"""A name comes in; a causal model of transformers, or the tokenizer beside it, goes out."""

from __future__ import annotations

from typing import Any

from memenvs.extras import require


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
