"""Small random models of many families, whose caches, masks, positions and heads differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SMALL = {"vocab_size": 512, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3}
SMALL |= {"max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LONGROPE = {"rope_type": "longrope", "rope_theta": 10_000.0, "original_max_position_embeddings": 32}
_LONGROPE |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
_BLOCKS = {"block_types": ["recurrent", "attention"]}
_WINDOW = {"head_dim": 16, "sliding_window": 16}
OWN: dict[str, dict[str, Any]] = {
    "Bloom": {"n_head": 4},
    "Cohere": {"logit_scale": 0.3},
    "Gemma2": {**_WINDOW, "final_logit_softcapping": 2.0, "attn_logit_softcapping": 5.0},
    "Gemma3Text": _WINDOW,
    "GPT2": {"n_positions": 512},
    "Granite": {"logits_scaling": 4.0},  # divides logits by it
    "HyperCLOVAX": {"logits_scaling": 4.0},  # multiplies them
    "Mistral": {"sliding_window": 16},
    "OPT": {"ffn_dim": 64, "word_embed_proj_dim": 16},
    "Phi3": {"rope_parameters": _LONGROPE, "original_max_position_embeddings": 32},
    "Qwen3": {"head_dim": 16},
    # its recurrence carries little from one sequence to its neighbour: 5% of the states' size
    "RecurrentGemma": {"attention_window_size": 64, "lru_width": 32} | _BLOCKS,
    "Rwkv": {"attention_hidden_size": 32},
}


def build(family: str, **changes: Any) -> Any:
    """A model of a family in evaluation mode, always the same; touches no global random state."""
    import torch
    import transformers

    config = getattr(transformers, f"{family}Config")(**SMALL | OWN.get(family, {}) | changes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config).eval()


def save_model_of_states(folder: Path, tokenizer: str | Path) -> Path:
    """Save a small model with a layer of convolutions, from whose cache HFPolicy cannot sample."""
    import transformers

    loaded = transformers.AutoTokenizer.from_pretrained(tokenizer)
    build("Lfm2", vocab_size=len(loaded), layer_types=["conv", "full_attention"]).save_pretrained(folder)
    loaded.save_pretrained(folder)
    return folder
