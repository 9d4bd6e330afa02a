"""Sampling a token from logits and a uniform number, worked out by hand."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

import torch

from memenvs.models import SamplingParams
from memenvs.models.sampling import sample_tokens

HALVES = torch.tensor([0.5, 0.25, 0.125, 0.125]).log()  # sums: 0.5, 0.75, 0.875, 1


def sampled(uniforms, logits=HALVES, **settings):
    numbers = torch.tensor(uniforms, dtype=torch.float64)
    ids, logprobs = sample_tokens(logits[None], numbers[None], SamplingParams(**settings))
    return ids[0].tolist(), logprobs[0].tolist()


def test_a_uniform_number_finds_the_token_whose_share_it_falls_in():
    assert sampled([0.0, 0.49, 0.51, 0.74, 0.76, 0.88, 1 - 2**-53])[0] == [0, 0, 1, 1, 2, 3, 3]


def test_logprobs_are_nats_of_the_token():
    assert sampled([0.6])[1] == pytest.approx([math.log(0.25)])


def test_a_token_without_a_chance_is_never_drawn():
    logits = torch.tensor([-math.inf, 0.0, -math.inf, 0.0, -math.inf])
    assert sampled([0.0, 0.5, 1 - 2**-53], logits)[0] == [1, 3, 3]


def test_temperature_changes_the_tokens_and_their_logprobs():
    # at 0.5 the shares are squared: 1/4, 1/16, 1/64, 1/64 of 22/64, so 16/22, 4/22, 1/22, 1/22
    ids, logprobs = sampled([0.72, 0.74], temperature=0.5)
    assert ids == [0, 1]
    assert logprobs == pytest.approx([math.log(16 / 22), math.log(4 / 22)])


def test_top_k_keeps_the_likeliest_and_logprobs_are_of_the_whole_distribution():
    # of 0.5 and 0.25 together, 0.6 falls within the first two thirds, 0.7 behind
    ids, logprobs = sampled([0.6, 0.7, 0.99], top_k=2)
    assert ids == [0, 1, 1]
    assert logprobs == pytest.approx([math.log(0.5), math.log(0.25), math.log(0.25)])


def test_min_p_keeps_tokens_by_their_share_of_the_likeliest():
    # 0.25 is half of 0.5: at 0.5 two are left, of which 2/3 and 1/3; just above, one; at 0.25 all four
    ids, logprobs = sampled([0.6, 0.7, 0.99], min_p=0.5)
    assert ids == [0, 1, 1]
    assert logprobs[1] == pytest.approx(math.log(0.25))
    assert sampled([0.99], min_p=0.51)[0] == [0]
    assert sampled([0.99], min_p=0.25)[0] == [3]


def test_top_p_keeps_the_fewest_tokens_that_reach_it():
    assert sampled([0.99], top_p=0.5)[0] == [0]
    assert sampled([0.65, 0.99], top_p=0.51)[0] == [0, 1]


def test_top_p_is_a_share_of_the_tokens_that_top_k_keeps():
    # top_k leaves 0.5 and 0.25; the first is two thirds of them, which reaches 0.6
    assert sampled([0.99], top_k=2, top_p=0.6)[0] == [0]
