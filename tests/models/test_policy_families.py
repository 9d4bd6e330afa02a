"""Sampling with models of many families, whose caches, masks and positions differ, against one full pass."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from model_families import build

from memenvs.models import HFPolicy

FAMILIES = [
    "Llama",
    "GPT2",
    "GPTNeoX",
    "Gemma2",
    "Mistral",
    "Qwen2",
    "Qwen3",
    "Cohere",
    "Granite",
    "OPT",
    "Bloom",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_padded_rows_with_a_cache_give_what_reading_at_once_gives(family, tokenizer):
    policy = HFPolicy(build(family, vocab_size=4096, max_position_embeddings=96), tokenizer, chat=False)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 4096, length) for length in (3, 40, 17, 40, 3, 5)]
    prompts[4:] = [np.concatenate([prompts[1][:38], own]) for own in prompts[4:]]  # three share a prefix
    limits = [50, 30, 12, 56, 20, 50]
    found = policy.sample(prompts, [np.random.default_rng(i) for i in range(6)], limits)
    for prompt, reply in zip(prompts, found, strict=True):
        ids = np.concatenate([prompt, reply.ids])
        with torch.no_grad():
            logits = policy.model(torch.from_numpy(ids)[None]).logits[0].log_softmax(-1)
        wanted = logits[np.arange(len(prompt) - 1, len(ids) - 1), reply.ids]
        np.testing.assert_allclose(reply.logprobs, wanted, rtol=0, atol=1e-4)


LINEAR = {
    "Lfm2": {"layer_types": ["conv", "full_attention"]},
    "Qwen3_5Text": {
        "layer_types": ["linear_attention", "full_attention"],
        "head_dim": 16,
        **{"linear_num_key_heads": 2, "linear_num_value_heads": 4},
        **{"linear_key_head_dim": 16, "linear_value_head_dim": 16},
    },
}


@pytest.mark.parametrize("family", LINEAR)
def test_a_model_of_linear_attention_can_be_trained_and_not_sampled_from(family, tokenizer):
    policy = HFPolicy(build(family, vocab_size=4096, **LINEAR[family]), tokenizer, chat=False)
    rng = np.random.default_rng(0)
    sequences = [rng.integers(3, 4096, length) for length in (9, 40, 17)]  # one batch, padded
    masks = [np.arange(len(ids)) >= 4 for ids in sequences]
    logprobs = policy.forward(sequences, masks).logprobs
    wanted = []
    for ids in sequences:
        with torch.no_grad():
            logits = policy.model(torch.from_numpy(ids)[None]).logits[0].log_softmax(-1)
        wanted.append(logits[np.arange(3, len(ids) - 1), ids[4:]])
    np.testing.assert_allclose(logprobs.detach(), torch.cat(wanted), rtol=0, atol=1e-4)
    logprobs.sum().backward()
    assert all(weight.grad is not None for weight in policy.model_parameters())
    with pytest.raises(ValueError, match="another state than keys and values"):
        policy.sample(sequences, [rng] * 3, 5)


@pytest.mark.parametrize("family", ["Rwkv"])
def test_a_model_without_keys_and_values_is_not_sampled_from(family, tokenizer):
    policy = HFPolicy(build(family, vocab_size=4096), tokenizer, chat=False)
    with pytest.raises(ValueError, match="another state than keys and values"):
        policy.check_can_sample()
