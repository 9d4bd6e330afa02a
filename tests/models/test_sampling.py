"""What the sampling loop asks of its model: prompts are read once, and finished rows leave the batch."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from memenvs.models import HFPolicy
from memenvs.models.loading import cache_inputs


@pytest.fixture(scope="module")
def policy(tiny_model):
    return HFPolicy(tiny_model, chat=False, device="cpu")


@pytest.fixture
def reads(policy):
    """Shapes (rows, tokens) of what the model has read since."""
    shapes = []
    hook = policy.model.model.embed_tokens.register_forward_pre_hook(
        lambda module, args: shapes.append((*args[0].shape, 1)[:2])
    )
    yield shapes
    hook.remove()


def rngs(count):
    return [np.random.default_rng(i) for i in range(count)]


def test_copies_of_a_prompt_are_read_once(policy, reads):
    prompt, other = np.arange(100, 150), np.arange(200, 250)
    policy.sample([prompt, other, prompt, prompt], rngs(4), 3)
    # a token for the logits of the prompts; the last token of a reply need not be read
    assert reads == [(1, 100), (1, 1), (4, 1), (4, 1)]


class Older(torch.nn.Module):
    def forward(self, input_ids, past_key_values=None, use_cache=None): ...


class Newer(torch.nn.Module):
    def forward(self, input_ids, cache=None, use_cache=None): ...


def test_a_model_is_given_its_cache_by_the_name_it_knows():
    cache = object()
    assert cache_inputs(Older(), cache) == {"past_key_values": cache, "use_cache": True}
    assert cache_inputs(Newer(), cache) == {"cache": cache, "use_cache": True}


def test_rows_that_have_ended_are_removed_once_they_are_a_quarter(policy, reads):
    prompts = [np.arange(100, 110 + i) for i in range(4)]
    policy.sample(prompts, rngs(4), [1, 3, 3, 4])
    # after one token a quarter has ended: 3 rows go on; after three only the last
    assert reads[-3:] == [(3, 1), (3, 1), (1, 1)]


def test_rows_that_have_ended_stay_while_they_are_few(policy, reads):
    prompts = [np.arange(100 + i, 110 + i) for i in range(5)]
    policy.sample(prompts, rngs(5), [1, 3, 3, 3, 3])  # four fifths still write
    assert reads[-2:] == [(5, 1), (5, 1)]


def same_and_other(*seeds):
    return [np.random.default_rng(seed) for seed in seeds]


def test_rows_with_the_same_prompt_and_the_same_tokens_so_far_are_read_as_one(policy, reads):
    prompt = np.arange(100, 150)
    together = policy.sample([prompt] * 5, same_and_other(0, 0, 1, 0, 1), 6)
    assert reads[-5:] == [(2, 1)] * 5  # three rows draw by the numbers of seed 0, two by those of seed 1
    for seed, reply in zip((0, 0, 1, 0, 1), together, strict=True):
        assert reply.ids.tolist() == policy.sample([prompt], same_and_other(seed), 6)[0].ids.tolist()


def test_rows_that_part_later_sample_what_each_samples_alone(policy, reads):
    # with few likely tokens rows agree for some tokens, then part; some end early and leave their places
    cold = policy.at_temperature(0.15)
    prompts = [np.arange(100, 150), np.arange(300, 330)]
    rows, limits = [prompts[i % 2] for i in range(16)], [3 + 5 * (i % 5) for i in range(16)]
    together = cold.sample(rows, rngs(16), limits)
    widths = [count for count, width in reads if width == 1]
    for i, (prompt, limit) in enumerate(zip(rows, limits, strict=True)):
        reply = cold.sample([prompt], rngs(16)[i : i + 1], limit)[0]
        assert reply.ids.tolist() == together[i].ids.tolist()
        np.testing.assert_allclose(reply.logprobs, together[i].logprobs, rtol=0, atol=1e-4)
    assert widths[1] < max(widths)


def test_a_row_that_has_ended_at_the_window_does_not_disturb_the_rest(policy):
    prompts = [np.full(1023, 100), *[np.arange(100, 110)] * 5]  # the first has room for one token
    found = policy.sample(prompts, rngs(6), 20)
    assert [len(reply.ids) for reply in found] == [1, 20, 20, 20, 20, 20]


def test_a_batch_keeps_to_its_budget_of_tokens(tiny_model, policy, reads):
    small = HFPolicy(policy.model, policy.tokenizer, chat=False, max_batch_tokens=100)
    small.sample([np.arange(100, 110 + i) for i in range(4)], rngs(4), 35)
    # 2 rows of 13 + 35 tokens fit into 100, 3 do not; nor do 3 of 11 + 35
    assert max(rows for rows, _ in reads) == 2
    assert [shape for shape in reads if shape[1] > 1] == [(1, 13 + 12), (1, 11 + 10)]


def test_prompts_of_different_lengths_are_read_without_padding(policy, reads):
    policy.sample([np.full(n, 100 + n) for n in (50, 100, 49, 95)], rngs(4), 1)
    assert reads[0] == (1, 50 + 100 + 49 + 95)


def alike(count, shared, own=5):
    """Prompts that begin with the same tokens and end in different ones, of different lengths."""
    draw = np.random.default_rng(0)
    head = draw.integers(100, 4000, shared)
    return [np.concatenate([head, draw.integers(100, 4000, own + i)]) for i in range(count)]


def test_a_prefix_that_prompts_share_is_read_once(policy, reads):
    policy.sample(alike(4, 60), rngs(4), 1)
    assert reads[0] == (1, 60 + 5 + 6 + 7 + 8)


def test_a_prefix_too_short_to_pay_is_read_with_each_prompt(policy, reads):
    policy.sample(alike(2, 30, own=200), rngs(2), 1)
    assert reads[0] == (1, 230 + 231)


def test_rows_that_share_a_prefix_sample_what_each_samples_alone(policy):
    first, second, copies, alone = alike(3, 80), alike(2, 50)[::-1], alike(1, 40) * 3, alike(1, 7)
    prompts = [first[0], second[0], copies[0], first[1], alone[0], first[2], second[1], *copies[1:]]
    limits = [30, 9, 30, 2, 30, 30, 12, 5, 20]  # rows leave, and with them whole groups
    together = policy.sample(prompts, rngs(9), limits)
    for i, (prompt, limit) in enumerate(zip(prompts, limits, strict=True)):
        reply = policy.sample([prompt], rngs(9)[i : i + 1], limit)[0]
        assert reply.ids.tolist() == together[i].ids.tolist()
        np.testing.assert_allclose(reply.logprobs, together[i].logprobs, rtol=0, atol=1e-4)
