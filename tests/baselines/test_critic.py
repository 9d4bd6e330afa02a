"""The critic: separate from the policy or part of it, with its own learning rate; KL in its rewards."""

import math
from dataclasses import replace

import numpy as np
import pytest
from made_episodes import after, before

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from memenvs.baselines.grpo import GRPOArgs
from memenvs.baselines.mt_ppo import MTPPOArgs, kl_penalties, token_advantages, update
from memenvs.baselines.processes import ProcessGroup
from memenvs.baselines.scoring import score
from memenvs.core.episode import Episode, Sample, Turn
from memenvs.models import HFPolicy, Reply


def make(tiny_model, value_head):
    policy = HFPolicy(str(tiny_model), chat=False)
    return policy.add_value_head() if value_head else policy


def weights_of(policy):
    return [weight.detach().clone() for weight in policy.parameters()]


def same(before, after):
    return [torch.equal(one, other) for one, other in zip(before, after, strict=True)]


def step(tiny_model, kind, *, returns=1.0, critic_only=False, **options):
    """Policy, critic and statistics after one step from four sequences whose returns are scaled."""
    policy = make(tiny_model, kind == "shared")
    critic = policy if kind == "shared" else make(tiny_model, True)
    draws = np.random.default_rng(0)
    samples = []
    for length in (5, 9, 7, 12):
        prompt, reply = draws.integers(5, 500, 4), draws.integers(5, 500, length)
        samples.append(Sample.of((prompt, None, -1), (reply, np.zeros(length), 0)))
    score(policy, samples, GRPOArgs(), critic=critic, ref_model=policy)
    for sample in samples:
        sample.logprobs[sample.response_mask] = sample.ref_logprobs
    items = [
        replace(
            s,
            group=group,
            advantages=draws.normal(size=s.response_mask.sum()),
            returns=returns * draws.normal(size=s.response_mask.sum()),
        )
        for group, s in enumerate(samples)
    ]
    trained = policy.model_parameters() + critic.critic_parameters(shared=kind == "shared")
    optimizer = torch.optim.SGD(trained, lr=0.1)
    args = MTPPOArgs(critic=kind, **options)
    metrics = update(
        policy,
        critic,
        optimizer,
        items,
        args,
        processes=ProcessGroup("cpu"),
        seed=(0,),
        critic_only=critic_only,
    )
    return policy, critic, metrics


def test_large_returns_leave_the_policys_step_alone_where_the_critic_is_separate(tiny_model):
    small, *_ = step(tiny_model, "separate", returns=1.0)
    large, _, metrics = step(tiny_model, "separate", returns=1000.0)
    assert metrics["critic_grad_norm"] > 100
    assert all(same(weights_of(small), weights_of(large)))


def test_large_returns_crowd_out_the_policys_step_where_the_critic_is_shared(tiny_model):
    small, *_ = step(tiny_model, "shared", returns=1.0)
    large, *_ = step(tiny_model, "shared", returns=1000.0)
    assert not all(same(weights_of(small), weights_of(large)))


@pytest.mark.parametrize("kind", ["separate", "shared"])
def test_in_its_warm_up_the_critic_learns_alone(kind, tiny_model):
    begun = make(tiny_model, True)
    policy, critic, metrics = step(tiny_model, kind, critic_only=True)
    assert all(
        torch.equal(one, other)
        for one, other in zip(begun.model_parameters(), policy.model_parameters(), strict=True)
    )
    assert not torch.equal(begun.value_head.weight, critic.value_head.weight)
    assert metrics["value_loss"] > 0


def test_a_separate_critic_trains_what_lies_below_its_value_head(tiny_model):
    begun = make(tiny_model, True)
    _, critic, _ = step(tiny_model, "separate")
    changed = [not equal for equal in same(weights_of(begun), weights_of(critic))]
    assert np.mean(changed) > 0.9


def test_a_critic_without_a_clip_learns_more_from_large_returns(tiny_model):
    def loss(**options):
        return step(tiny_model, "separate", returns=10.0, epochs=20, **options)[2]["value_loss"]

    assert loss(value_clip=None) < 0.9 * loss(value_clip=0.2)


def test_kl_in_the_reward_is_not_in_the_loss(tiny_model):
    without, *_ = step(tiny_model, "separate", kl_coef=0.0)
    inside, _, metrics = step(tiny_model, "separate", kl_coef=5.0, kl_in="reward", epochs=2)
    twice, *_ = step(tiny_model, "separate", kl_coef=0.0, epochs=2)
    assert all(same(weights_of(twice), weights_of(inside)))
    assert not all(same(weights_of(without), weights_of(inside)))
    assert math.isfinite(metrics["kl_ref"])


def episode(old, reference, reward):
    """One turn of tokens with these log-probabilities, under a critic that says 0."""
    reply = Reply("", np.arange(len(old)), np.array(old), True, np.array([7]))
    played = Episode(turns=[Turn("", before(0), reply, after(0.0, reward), "terminated")], end="terminated")
    (sample,) = played.samples
    sample.values, sample.ref_logprobs = np.zeros(len(old)), np.array(reference)
    return played


def test_the_kl_penalty_of_a_token_is_weighted_nats():
    played = episode(np.log([0.5, 0.2]), np.log([0.25, 0.4]), 1.0)
    # k1 = log(0.5 / 0.25) = log 2 and log(0.2 / 0.4) = -log 2
    (penalty,) = kl_penalties([played], 0.1)
    np.testing.assert_allclose(penalty, [0.1 * math.log(2), -0.1 * math.log(2)])


def test_a_penalty_is_taken_off_the_reward_of_its_own_token():
    played = episode([0.0, 0.0], [0.0, 0.0], 1.0)
    penalties = [np.array([0.1, 0.2])]
    _, (returns,) = token_advantages([played], whitened=False, penalties=penalties)
    # rewards -0.1 and 1 - 0.2; with gamma 1 the first return is their sum
    np.testing.assert_allclose(returns, [0.7, 0.8])
