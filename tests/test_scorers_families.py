"""HFScorer on families that cap, scale or window, and on those whose state cannot be cut back."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from tiny_model import plain_logprobs

from memenvs.wrappers.scorers import HFScorer
from memenvs.wrappers.scorers.protocol import TokenPair

SMALL = {
    "vocab_size": 101,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 32,
}
FAMILIES = {
    "Llama": {},
    "Gemma2": {
        "head_dim": 16,
        "sliding_window": 16,
        "final_logit_softcapping": 2.0,
        "attn_logit_softcapping": 5.0,
    },
    "Mistral": {"sliding_window": 16},
    "Cohere": {"logit_scale": 0.3},
    "Granite": {"logits_scaling": 4.0},  # divides logits by it
    "HyperCLOVAX": {"logits_scaling": 4.0},  # multiplies them
    "Phi3": {
        "rope_parameters": LONGROPE,
        "original_max_position_embeddings": 32,
        "max_position_embeddings": 512,
    },
    "Rwkv": {"attention_hidden_size": 32},
    "OPT": {"ffn_dim": 64, "word_embed_proj_dim": 16},
}


def pairs():
    rng = np.random.default_rng(0)

    def ids(count):
        return rng.integers(3, 101, count).tolist()

    base = ids(60)
    made = [TokenPair(base + ids(20), ids(9)) for _ in range(3)]
    made += [TokenPair(base[:40], ids(5)) for _ in range(3)] + [TokenPair(ids(3), ids(4)) for _ in range(3)]
    return [*made, TokenPair(base + base[:9], base[9:30])]


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return transformers.AutoTokenizer.from_pretrained(tiny_model)


def build(family):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SMALL | FAMILIES[family])
    return getattr(transformers, f"{family}ForCausalLM")(config)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("budget", [33, 4_096])
def test_scores_of_any_family_are_those_of_each_request_alone(family, budget, tokenizer):
    scorer = HFScorer(build(family), tokenizer, max_batch_tokens=budget)
    for pair, scores in zip(pairs(), scorer.token_logprobs(pairs()), strict=True):
        np.testing.assert_allclose(scores, plain_logprobs(scorer.model, pair), rtol=0, atol=1e-4)


def test_no_padding_is_read_where_keys_depend_on_the_length_of_the_input(tokenizer):
    scorer, rng = HFScorer(build("Phi3"), tokenizer), np.random.default_rng(0)
    shapes = []
    scorer._backbone.register_forward_pre_hook(
        lambda module, args, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    scorer.token_logprobs([TokenPair(rng.integers(3, 101, n).tolist(), [5]) for n in (30, 29, 30)])
    assert shapes == [(2, 30), (1, 29)]
