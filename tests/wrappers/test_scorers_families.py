"""HFScorer on families that cap, scale or window, and on those whose state cannot be truncated."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from model_families import build
from tiny_model import plain_logprobs

from memenvs.wrappers.scorers import HFScorer
from memenvs.wrappers.scorers.protocol import TokenPair

FAMILIES = ["Llama", "Gemma2", "Mistral", "Cohere", "Granite", "HyperCLOVAX", "Phi3", "Rwkv", "OPT"]


def pairs():
    rng = np.random.default_rng(0)

    def ids(count):
        return rng.integers(3, 101, count).tolist()

    base = ids(60)
    made = [TokenPair(base + ids(20), ids(9)) for _ in range(3)]
    made += [TokenPair(base[:40], ids(5)) for _ in range(3)] + [TokenPair(ids(3), ids(4)) for _ in range(3)]
    return [*made, TokenPair(base + base[:9], base[9:30])]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("budget", [33, 4_096])
def test_scores_of_any_family_are_those_of_each_request_alone(family, budget, tokenizer):
    scorer = HFScorer(build(family), tokenizer, max_batch_tokens=budget)
    for pair, scores in zip(pairs(), scorer.token_logprobs(pairs()), strict=True):
        np.testing.assert_allclose(scores, plain_logprobs(scorer.model, pair), rtol=0, atol=1e-4)


def test_no_padding_is_read_where_keys_depend_on_the_length_of_the_input(tokenizer):
    scorer, rng = HFScorer(build("Phi3"), tokenizer), np.random.default_rng(0)
    shapes = []
    scorer.model.base_model.register_forward_pre_hook(
        lambda module, args, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    scorer.token_logprobs([TokenPair(rng.integers(3, 101, n).tolist(), [5]) for n in (30, 29, 30)])
    assert [shape for shape in shapes if shape != (1, 1)] == [(2, 31), (1, 30)]  # a token for the logits
