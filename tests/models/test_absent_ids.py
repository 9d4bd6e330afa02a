"""Ids that no token of the tokenizer has, as in a model with more rows, are not in its distribution."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from memenvs.models.chat import TokenText

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from tiny_model import save_tiny_model

from memenvs.models import HFPolicy, SamplingParams, VLLMPolicy

TOKENS = 4096
"""Of the tiny model's tokenizer."""


def test_ids_between_and_beyond_the_tokens_are_absent():
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "d": 3}, unk_token="a"))
    tokenizer.add_tokens(["e"])
    added = tokenizer.token_to_id("e")
    present = {0, 1, 3, added}
    assert TokenText(tokenizer).absent(8).tolist() == [number not in present for number in range(8)]
    assert TokenText(tokenizer).absent(2).tolist() == [False, False]  # fewer rows than tokens


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    """A model with more rows than tokens, whose spare ids would be the likeliest by far."""
    folder = save_tiny_model(tmp_path_factory.mktemp("models") / "padded", tied=False, spare_rows=512)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.get_output_embeddings().weight[TOKENS:] *= 2
    return model


SETTINGS = [{}, {"temperature": 0.0}, {"temperature": 1.7}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.1}]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_an_id_that_no_token_has_is_never_sampled(padded, tokenizer, settings):
    policy = HFPolicy(padded, tokenizer, chat=False, sampling_params=SamplingParams(**settings))
    prompt = policy.encode("Who wrote the first program?")
    replies = policy.sample([prompt] * 16, [np.random.default_rng(i) for i in range(16)], 12)
    assert max(reply.ids.max() for reply in replies) < TOKENS
    with torch.no_grad():
        logits = padded(torch.from_numpy(np.append(prompt, replies[0].ids))[None]).logits[0].float()
    assert int(logits[len(prompt) - 1].argmax()) >= TOKENS  # it would be


def test_logprobs_and_entropies_are_those_of_the_tokens_alone(padded, tokenizer):
    policy = HFPolicy(padded, tokenizer, chat=False)
    prompt = policy.encode("Who wrote the first program?")
    (reply,) = policy.sample([prompt], [np.random.default_rng(0)], 12)
    ids = np.append(prompt, reply.ids)
    mask = np.arange(len(ids)) >= len(prompt)
    output = policy.forward([ids], [mask], entropy=True)
    with torch.no_grad():
        logits = padded(torch.from_numpy(ids)[None]).logits[0, len(prompt) - 1 : -1, :TOKENS]
    wanted = logits.log_softmax(-1)
    chosen = wanted[torch.arange(len(reply.ids)), torch.from_numpy(reply.ids)]
    for logprobs in (reply.logprobs, output.logprobs.detach()):
        np.testing.assert_allclose(logprobs, chosen, rtol=0, atol=1e-4)
    entropies = -(wanted.exp() * wanted).sum(-1)
    np.testing.assert_allclose(output.entropy.detach(), entropies, rtol=0, atol=1e-4)
    (output.logprobs.sum() + output.entropy.sum()).backward()
    gradient = padded.get_output_embeddings().weight.grad
    assert gradient.isfinite().all()
    assert not gradient[TOKENS:].any()
    padded.zero_grad()


def test_a_vllm_engine_is_told_which_ids_no_token_has(tokenizer, monkeypatch):
    def params(**settings):
        return settings

    requests = []
    config = SimpleNamespace(logprobs_mode="raw_logprobs", max_model_len=1024)
    config.try_get_generation_config = dict
    config.get_vocab_size = lambda: TOKENS + 3
    engine = SimpleNamespace(model_config=config, add_request=lambda *request: requests.append(request))
    llm = SimpleNamespace(llm_engine=engine, request_counter=itertools.count())
    llm.get_tokenizer = lambda: tokenizer
    kinds = SimpleNamespace(RequestOutputKind=SimpleNamespace(FINAL_ONLY=None))
    library = SimpleNamespace(SamplingParams=params, sampling_params=kinds)
    monkeypatch.setattr("memenvs.models.vllm.vllm", library)
    VLLMPolicy(llm).submit(0, np.arange(9), np.random.default_rng(0), 5)
    ((_, _, settings),) = requests
    assert settings["logit_bias"] == dict.fromkeys(range(TOKENS, TOKENS + 3), float("-inf"))
