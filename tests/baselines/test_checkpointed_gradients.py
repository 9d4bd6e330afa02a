"""Activations that are recomputed (`--gradient-checkpointing`) change no number."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from transformers import AutoTokenizer

from memenvs.baselines.train import checkpoint_gradients
from memenvs.models import HFPolicy

SIZE = {"vocab_size": 4096, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
HALF = 0.5  # of activations would be dropped
CONFIGS = {
    "opt": lambda: transformers.OPTConfig(
        **SIZE, ffn_dim=48, word_embed_proj_dim=32, dropout=HALF, attention_dropout=HALF, layerdrop=HALF
    ),
    "falcon": lambda: transformers.FalconConfig(**SIZE, hidden_dropout=HALF, attention_dropout=HALF),
    "starcoder2": lambda: transformers.Starcoder2Config(
        **SIZE,
        intermediate_size=48,
        num_key_value_heads=2,
        residual_dropout=HALF,
        embedding_dropout=HALF,
        attention_dropout=HALF,
    ),
    "xglm": lambda: transformers.XGLMConfig(
        vocab_size=4096,
        d_model=32,
        ffn_dim=48,
        num_layers=2,
        attention_heads=2,
        dropout=HALF,
        attention_dropout=HALF,
        activation_dropout=HALF,
        layerdrop=HALF,
    ),
    "biogpt": lambda: transformers.BioGptConfig(
        **SIZE,
        intermediate_size=48,
        hidden_dropout_prob=HALF,
        attention_probs_dropout_prob=HALF,
        activation_dropout=HALF,
        layerdrop=HALF,
    ),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=4096, n_embd=32, n_layer=2, n_head=2, resid_pdrop=HALF, embd_pdrop=HALF, attn_pdrop=HALF
    ),
    "qwen3": lambda: transformers.Qwen3Config(
        **SIZE, intermediate_size=48, num_key_value_heads=2, head_dim=16, attention_dropout=HALF
    ),
}


@pytest.mark.parametrize("family", CONFIGS)
def test_log_probabilities_and_gradients_are_those_without_recomputing(family, tiny_model):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[family]()).eval()
    policy = HFPolicy(model, AutoTokenizer.from_pretrained(tiny_model), chat=False)
    ids, masks = [np.arange(5, 40), np.arange(60, 80)], [np.arange(35) >= 10, np.arange(20) >= 3]
    said = model.config.to_dict()
    found = []
    for _ in range(3):
        logprobs = policy.forward(ids, masks).logprobs
        logprobs.sum().backward()
        found.append((logprobs.detach(), [weight.grad for weight in policy.model_parameters()]))
        model.zero_grad()
        if len(found) == 1:
            checkpoint_gradients(model)
    for logprobs, gradients in found[1:]:
        torch.testing.assert_close(logprobs, found[0][0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradients, found[0][1], rtol=1e-4, atol=1e-5)
    assert model.config.to_dict() == said
