"""The small GPT for training from scratch."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the small model needs torch")
pytest.importorskip("transformers", reason="the small model needs transformers")

import torch
from transformers import AutoModelForCausalLM

from memenvs.models.small_gpt import save_small_gpt


def layer_weights(folder):
    model = AutoModelForCausalLM.from_pretrained(folder)
    return model, torch.cat([w.flatten() for n, w in model.named_parameters() if n.endswith("c_attn.weight")])


def test_spread_is_the_standard_deviation_of_the_layers_first_weights(tmp_path):
    _, weights = layer_weights(save_small_gpt(tmp_path / "m", ["yes"], width=64, layers=2, spread=0.1))
    # 2 layers of 64 x 192 weights: the deviation of 24,576 draws is known to 0.5%
    assert float(weights.detach().std()) == pytest.approx(0.1, rel=0.03)


def test_a_tied_model_writes_by_the_embeddings_it_reads_by(tmp_path):
    model, _ = layer_weights(save_small_gpt(tmp_path / "m", ["yes"], width=64, layers=1, tied=True))
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_an_untied_model_keeps_two_sets_of_embeddings(tmp_path):
    model, _ = layer_weights(save_small_gpt(tmp_path / "m", ["yes"], width=64, layers=1))
    assert not torch.equal(model.get_output_embeddings().weight, model.get_input_embeddings().weight)


def test_it_computes_gpt2s_activation_function(tmp_path):
    folder = save_small_gpt(tmp_path / "m", ["yes"], width=64, layers=2)
    ids = torch.arange(40)[None]
    made, plain = (
        AutoModelForCausalLM.from_pretrained(folder, **settings)(ids).logits
        for settings in ({}, {"activation_function": "gelu_new"})
    )
    torch.testing.assert_close(made, plain)
