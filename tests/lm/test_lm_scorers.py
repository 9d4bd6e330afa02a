"""Scorers agree on real text: transformers in two precisions, vLLM in this process and over HTTP."""

import importlib.util

import numpy as np
import pytest
import torch
from tiny_model import plain_logprobs
from vllm_server import vllm_server

from memenvs import open_tasks
from memenvs.models.loading import computes_fast
from memenvs.wrappers.scorers import HFScorer, ScoreRequest, ServerScorer, VLLMScorer

vllm_only = [
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="no vLLM here: `make test-vllm`"),
    pytest.mark.filterwarnings("ignore"),  # vLLM and what it imports warn of their own business
]


@pytest.fixture(scope="module")
def requests(template):
    """Answers of one to eight words behind prompts of 70 to 400 tokens, in the chat; some share a prompt."""
    tasks, asked = open_tasks("world-test"), []
    for task in (tasks[i] for i in range(6)):
        for shown in ((), task.evidence, task.documents[:2]):
            text = "\n".join([*tasks.document_texts(shown), task.question])
            answer = task.answers[0][0]
            for form in (answer, f"\\boxed{{{answer}}}<|im_end|>"):
                asked.append(ScoreRequest(template.replace("{prompt}", text), form))
    return asked


@pytest.fixture(scope="module")
def wanted(exact, requests):
    return exact.logprobs(requests)


def apart(found, wanted):
    """Absolute differences of all tokens, in nats."""
    assert [len(scores) for scores in found] == [len(scores) for scores in wanted]
    return np.abs(np.concatenate(found) - np.concatenate(wanted))


def test_batches_and_shared_prompts_give_what_each_request_gives_alone(exact, requests, wanted):
    alone = [plain_logprobs(exact.model, pair) for pair in exact.pairs(requests[:8])]
    assert apart(wanted[:8], alone).max() < 1e-3


@pytest.mark.skipif(
    not computes_fast("cpu", torch.bfloat16),
    reason="bfloat16 takes 40 times as long here: no instructions for it",
)
def test_bfloat16_gives_what_float32_gives_within_a_tenth_of_a_nat_in_the_mean(smollm2, requests, wanted):
    found = HFScorer(smollm2, dtype="bfloat16").logprobs(requests)
    assert apart(found, wanted).mean() < 0.1
    means = [[scores.mean() for scores in some] for some in (found, wanted)]
    assert np.corrcoef(*means)[0, 1] > 0.99


class TestVLLM:
    pytestmark = vllm_only

    def test_an_engine_in_this_process_agrees_with_transformers(self, smollm2, requests, wanted):
        settings = {"dtype": "float32", "enforce_eager": True, "max_model_len": 1024}
        engine = VLLMScorer(smollm2, engine=settings)
        assert apart(engine.logprobs(requests), wanted).max() < 1e-2

    def test_a_server_agrees_with_transformers(self, smollm2, requests, wanted, tmp_path):
        with vllm_server(smollm2, tmp_path / "log") as url:
            found = ServerScorer(url, "tiny", smollm2).logprobs(requests)
        assert apart(found, wanted).max() < 1e-2
