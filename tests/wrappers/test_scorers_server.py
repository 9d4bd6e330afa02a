"""The scorer over HTTP, against a stub that answers as vLLM does with the transformers scorer."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from json_stub import JSONStub

pytest.importorskip("torch")
pytest.importorskip("transformers")

from memenvs.core.errors import ServerError
from memenvs.wrappers.scorers import HFScorer, ScoreRequest, ServerScorer, VLLMScorer
from memenvs.wrappers.scorers.protocol import TokenPair

REQUESTS = [
    ScoreRequest("Ada Lovelace wrote", " the first program"),
    ScoreRequest("Who?", ""),
    ScoreRequest("<|im_start|>user\nWho?<|im_end|>\n", "Ada 😀<|im_end|>"),
    ScoreRequest("a moth", " in London"),
]


class Stub(JSONStub):
    """`script` holds what to answer instead: a status or a body, first things first."""

    def __init__(self, scorer):
        super().__init__()
        self.scorer, self.script = scorer, []

    def answer(self, path, fields):
        if fields is None:
            return 200, {"data": [{"id": "tiny", "max_model_len": 64}]}
        with self.lock:
            step = self.script.pop(0) if self.script else self.complete(fields["prompt"])
        if isinstance(step, int):
            return step, {"error": {"message": f"status {step}", "type": "BadRequestError"}}
        return 200, step

    def complete(self, ids):
        """What vLLM says of a prompt: nothing of its first token, then one entry a token."""
        (scores,) = self.scorer.token_logprobs([TokenPair(ids[:1], ids[1:])])
        entries = [
            {str(token): {"logprob": score, "rank": 1, "decoded_token": "?"}}
            for token, score in zip(ids[1:], scores.tolist(), strict=True)
        ]
        return {"choices": [{"index": 0, "text": "x", "prompt_logprobs": [None, *entries]}]}


@pytest.fixture(scope="module")
def local(tiny_model):
    return HFScorer(str(tiny_model))


@pytest.fixture
def stub(local):
    with Stub(local) as stub:
        yield stub


@pytest.fixture
def scorer(stub, tiny_model):
    return ServerScorer(stub.url, "tiny", str(tiny_model), tries=3)


def test_scores_are_those_of_the_served_model(scorer, local):
    for found, wanted in zip(scorer.logprobs(REQUESTS), local.logprobs(REQUESTS), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4)


def test_a_request_is_token_ids_with_prompt_logprobs(scorer, stub, local):
    scorer.logprobs(REQUESTS[:1])
    (pair,) = local.pairs(REQUESTS[:1])
    assert (stub.paths, stub.headers[0]["Authorization"]) == (["/v1/completions"], None)
    assert stub.bodies[0] == {
        "model": "tiny",
        "prompt": [*pair.prompt, *pair.continuation],
        "max_tokens": 1,
        "temperature": 0,
        "prompt_logprobs": 0,
    }


def test_no_more_requests_are_under_way_than_allowed(stub, tiny_model):
    ServerScorer(stub.url, "tiny", str(tiny_model), concurrency=3).logprobs([REQUESTS[0]] * 12)
    assert 1 < stub.most <= 3


def test_a_lasting_fault_is_one_error(scorer, stub):
    stub.script = [503] * 200
    with pytest.raises(ServerError, match=r"in 3 tries .* HTTP 503: status 503"):
        scorer.logprobs([REQUESTS[0]] * 40)


def test_an_unreachable_server_names_the_command_that_starts_one(tiny_model):
    away = ServerScorer("http://127.0.0.1:9", "tiny", str(tiny_model), tries=2)
    with pytest.raises(ServerError, match=r"in 2 tries .* `vllm serve MODEL"):
        away.logprobs(REQUESTS[:1])


def test_an_error_about_a_model_that_is_not_served_names_those_that_are(stub, tiny_model):
    with pytest.raises(ValueError, match="serves 'tiny', not 'large'"):
        ServerScorer(stub.url, "large", str(tiny_model)).logprobs(REQUESTS[:1])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"choices": [{"text": "x"}]}, "0 prompt_logprobs"),
        ({"choices": [{"prompt_logprobs": [None, {}, {}, {}]}]}, "does not speak the protocol"),
    ],
)
def test_an_answer_without_logprobs_is_refused(scorer, stub, body, reason):
    stub.script = [body]
    with pytest.raises(ServerError, match=reason):
        scorer.logprobs([ScoreRequest("12", "34")])


def test_the_window_is_the_servers_less_the_token_that_it_makes(scorer):
    assert len(scorer.logprobs([ScoreRequest("7" * 60, "123")])[0]) == 3
    with pytest.raises(ValueError, match=r"64 tokens long, 3 of them its continuation, .* window is 63"):
        scorer.logprobs([ScoreRequest("7" * 61, "123")])


def test_a_key_is_sent_as_a_bearer_token(stub, tiny_model):
    ServerScorer(stub.url, "tiny", str(tiny_model), api_key="k").logprobs(REQUESTS[:1])
    assert stub.headers[0]["Authorization"] == "Bearer k"


def test_a_missing_vllm_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(ImportError, match=r"pip install .*\[vllm\]"):
        VLLMScorer("tiny")
