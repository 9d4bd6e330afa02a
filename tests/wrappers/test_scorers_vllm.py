"""The vLLM scorers against a real engine on a CPU; `make test-vllm` runs them."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from memenvs.wrappers.scorers import HFScorer, ScoreRequest, ServerScorer, VLLMScorer

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="no vLLM here: `make test-vllm`"),
    pytest.mark.filterwarnings("ignore"),  # vLLM and what it imports warn of their own business
]

HISTORY = "Ada Lovelace wrote the first program for the engine of Babbage. "
REQUESTS = [
    ScoreRequest("Ada Lovelace wrote", " the first program"),
    ScoreRequest("Who?", ""),
    ScoreRequest("<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n", "Ada 😀<|im_end|>"),
    *[ScoreRequest(HISTORY * k + "Who?", " Ada Lovelace") for k in (1, 5, 20)],
    *[ScoreRequest(HISTORY * 20 + "Who?", answer) for answer in (" Grace Hopper", " Ada", HISTORY)],
]


@pytest.fixture(scope="module")
def wanted(tiny_model):
    return HFScorer(str(tiny_model)).logprobs(REQUESTS)


@pytest.fixture(scope="module")
def engine(tiny_model):
    return VLLMScorer(str(tiny_model), engine={"dtype": "float32", "enforce_eager": True})


def check(found, wanted):
    assert [len(scores) for scores in found] == [len(scores) for scores in wanted]
    for scores, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-3)


def test_a_real_server_gives_the_scores_of_transformers(vllm_url, tiny_model, wanted):
    check(ServerScorer(vllm_url, "tiny", str(tiny_model)).logprobs(REQUESTS), wanted)


def test_a_real_server_says_how_long_a_request_may_be(vllm_url, tiny_model):
    scorer = ServerScorer(vllm_url, "tiny", str(tiny_model))
    assert len(scorer.logprobs([ScoreRequest("7" * 1_020, "123")])[0]) == 3
    with pytest.raises(ValueError, match=r"1,024 tokens long, .* window is 1,023"):
        scorer.logprobs([ScoreRequest("7" * 1_021, "123")])


def test_an_engine_in_this_process_gives_the_scores_of_transformers(engine, wanted):
    check(engine.logprobs(REQUESTS), wanted)


def test_an_engine_in_this_process_says_how_long_a_request_may_be(engine):
    assert len(engine.logprobs([ScoreRequest("7" * 1_020, "123")])[0]) == 3
    with pytest.raises(ValueError, match=r"1,024 tokens long, .* window is 1,023"):
        engine.logprobs([ScoreRequest("7" * 1_021, "123")])


def test_an_engine_that_is_made_already_is_used(engine, wanted):
    check(VLLMScorer(engine.llm).logprobs(REQUESTS), wanted)
