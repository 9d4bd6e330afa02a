"""An update steps along its loss, with any number of micro-batches."""

import copy
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

from memenvs.baselines import grpo, mt_ppo
from memenvs.baselines.args import LossAggMode
from memenvs.baselines.grpo import GRPOArgs
from memenvs.baselines.mt_ppo import MTPPOArgs
from memenvs.baselines.optimizer import make_optimizer
from memenvs.baselines.processes import ProcessGroup, share
from memenvs.baselines.scoring import score
from memenvs.core.episode import Sample
from memenvs.models import HFPolicy

LOSS_AGG_MODES = get_args(LossAggMode)


@pytest.fixture
def policy(tiny_model):
    return HFPolicy(str(tiny_model), chat=False).add_value_head()


@pytest.fixture
def items(policy):
    """Six sequences of two groups with random advantages, measured under the policy itself."""
    draws = np.random.default_rng(0)
    samples = []
    for length in (5, 9, 7, 12, 6, 8):
        prompt, reply = draws.integers(5, 500, 4), draws.integers(5, 500, length)
        samples.append(Sample.of((prompt, None, -1), (reply, np.zeros(length), 0)))
    args = GRPOArgs()
    score(policy, samples, args, critic=policy, ref_model=policy)
    for sample in samples:
        sample.logprobs[sample.response_mask] = sample.ref_logprobs
    sizes = [int(sample.response_mask.sum()) for sample in samples]
    return [
        replace(sample, group=group, advantages=draws.normal(size=n), returns=draws.normal(size=n))
        for sample, group, n in zip(samples, (1, 1, 1, 2, 2, 2), sizes, strict=True)
    ]


def weights_after(policy, items, *, critic_only=False, **options):
    """The weights after one plain gradient step, and the metrics."""
    trained = HFPolicy(copy.deepcopy(policy.model), policy.tokenizer, chat=False).add_value_head()
    trained.value_head.load_state_dict(policy.value_head.state_dict())
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    own = {"processes": ProcessGroup("cpu"), "seed": (0, 1), "critic_only": critic_only}
    metrics = mt_ppo.update(trained, trained, optimizer, items, MTPPOArgs(**options), **own)
    return [weight.detach().clone() for weight in trained.parameters()], metrics


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_micro_batches_do_not_change_the_step(policy, items, mode):
    options = {"loss_agg_mode": mode, "max_new_tokens": 12}
    whole, _ = weights_after(policy, items, micro_batch_tokens=10_000, **options)
    cut, _ = weights_after(policy, items, micro_batch_tokens=20, **options)
    for one, other in zip(whole, cut, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-mean"])
def test_a_sequence_without_advantage_is_not_computed_and_weighs_as_before(tiny_model, items, mode):
    flat = [replace(one, advantages=one.advantages * (i != 3)) for i, one in enumerate(items)]

    def step(samples, **options):
        policy = HFPolicy(str(tiny_model), chat=False)
        args = GRPOArgs(loss_agg_mode=mode, **options)
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
        done = grpo.update(policy, optimizer, samples, args, processes=ProcessGroup("cpu"), seed=(0, 1))
        return policy.parameters(), done["computed"]

    without, computed = step(flat)
    everything, all_computed = step(flat, entropy_coef=1e-12)  # which every sequence has a part in
    assert computed < all_computed
    for one, other in zip(without, everything, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    nothing = [replace(one, advantages=one.advantages * 0) for one in items]
    for one, other in zip(step(nothing)[0], HFPolicy(str(tiny_model), chat=False).parameters(), strict=True):
        assert torch.equal(one, other)


def grpo_update(policy, optimizer, samples, **options):
    args = GRPOArgs(**options)
    return grpo.update(policy, optimizer, samples, args, processes=ProcessGroup("cpu"), seed=(0, 1))


def without_advantages(items, *groups):
    return [replace(one, advantages=one.advantages * (one.group not in groups)) for one in items]


@pytest.mark.parametrize("options", [{}, {"epochs": 2, "minibatches": 2}])
def test_metrics_are_means_over_the_groups_that_do_not_differ_too(tiny_model, items, options):
    flat = without_advantages(items, 1)

    def metrics(**more):
        policy = HFPolicy(str(tiny_model), chat=False)
        optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
        return grpo_update(policy, optimizer, flat, **options, **more)

    found, wanted = metrics(), metrics(entropy_coef=1e-12)  # which every sequence has a part in
    for name in ("policy_loss", "clip_fraction", "approx_kl", "entropy"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-3, abs=1e-8)
    sampled = [sample.logprobs[sample.response_mask] for sample in items]
    assert found["entropy"] == pytest.approx(-np.concatenate(sampled).mean())


def adam_after_a_step(tiny_model, items):
    """A policy whose optimizer has momentum."""
    policy = HFPolicy(str(tiny_model), chat=False)
    optimizer = make_optimizer([{"params": policy.parameters()}], lr=1e-3, weight_decay=0.01)
    grpo_update(policy, optimizer, items)
    return policy, optimizer


def test_a_step_in_which_no_group_differs_moves_nothing_and_is_skipped(tiny_model, items):
    policy, optimizer = adam_after_a_step(tiny_model, items)
    before = [weight.detach().clone() for weight in policy.parameters()]
    metrics = grpo_update(policy, optimizer, without_advantages(items, 1, 2), epochs=2)
    assert (metrics["skipped"], metrics["grad_norm"], metrics["policy_loss"]) == (1.0, 0.0, 0.0)
    assert metrics["entropy"] > 0
    for one, other in zip(before, policy.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_minibatch_in_which_no_group_differs_takes_no_step(tiny_model, items):
    weights = []
    for samples in (without_advantages(items, 1), [one for one in items if one.group == 2]):
        policy, optimizer = adam_after_a_step(tiny_model, items)
        metrics = grpo_update(policy, optimizer, samples, minibatches=2)
        assert "skipped" not in metrics
        weights.append([weight.detach().clone() for weight in policy.parameters()])
    for one, other in zip(*weights, strict=True):
        assert torch.equal(one, other)


def test_the_divergence_from_the_reference_is_in_the_loss(policy, items):
    for item in items:
        item.ref_logprobs = item.ref_logprobs - 1.0
    _, metrics = weights_after(policy, items, kl_coef=0.1)
    # d = log pi - log ref = 1: k3 = exp(-1) - 1 + 1
    assert metrics["kl_ref"] == pytest.approx(np.exp(-1), rel=1e-4)
    _, metrics = weights_after(policy, items, kl_coef=0.1, kl_estimator="k2")
    assert metrics["kl_ref"] == pytest.approx(0.5, rel=1e-4)  # 1^2 / 2


def test_approx_kl_is_of_the_policy_that_sampled(policy, items):
    for item in items:
        item.logprobs = np.where(item.response_mask, item.logprobs + 0.25, 0.0)
    _, metrics = weights_after(policy, items)
    # d = log old - log new = 0.25, on tokens that old wrote: k3 = exp(-0.25) - 1 + 0.25
    assert metrics["approx_kl"] == pytest.approx(np.exp(-0.25) - 0.75, rel=1e-4)


def test_a_minibatch_whose_loss_is_not_finite_is_skipped_and_counted(policy, items):
    spoiled = [
        replace(item, advantages=item.advantages * np.inf) if item.group == 1 else item for item in items
    ]
    alone, _ = weights_after(policy, [item for item in items if item.group == 2])
    # Six sequences in six parts at most: each group stays together, so that one step of two is skipped.
    after, metrics = weights_after(policy, spoiled, minibatches=6)
    assert metrics["nonfinite"] == 1
    assert np.isfinite(metrics["policy_loss"])
    for one, other in zip(alone, after, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_samples_of_vllm_are_scored_again(policy, items):
    samples = items
    for sample in samples:
        sample.logprobs = np.where(sample.response_mask, sample.logprobs + 0.25, 0.0)
    metrics = score(policy, samples, GRPOArgs(vllm={}), critic=policy)
    assert metrics["kl_sampler"] == pytest.approx(0.25, abs=1e-5)
    _, seen = weights_after(policy, items)
    assert seen["approx_kl"] == pytest.approx(0, abs=1e-9)


def test_nothing_to_learn_from_changes_nothing(policy):
    before = [weight.detach().clone() for weight in policy.parameters()]
    after, metrics = weights_after(policy, [])
    assert metrics == {"skipped": 1.0}
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def half(tiny_model):
    return HFPolicy(
        transformers.AutoModelForCausalLM.from_pretrained(tiny_model).bfloat16(), str(tiny_model), chat=False
    )


def passes(policy):
    """The batches that the model reads from now on; one more token gives their logits."""
    seen = []

    def note(module, args, inputs):
        if inputs["input_ids"].shape[1] > 1:
            seen.append(inputs["input_ids"])

    policy.model.base_model.register_forward_pre_hook(note, with_kwargs=True)
    return seen


@pytest.fixture
def measured(tiny_model):
    """A policy in bfloat16, its samples off by 0.25 nats, and their advantages."""
    policy, draws, samples = half(tiny_model), np.random.default_rng(0), []
    for length in (5, 9, 7):
        prompt, reply = draws.integers(5, 500, 4), draws.integers(5, 500, length)
        alone = Sample.of((prompt, None, -1), (reply, np.zeros(length), 0))
        with torch.no_grad():
            own = policy.forward([alone.ids], [alone.response_mask]).logprobs.double().numpy()
        sample = Sample.of((prompt, None, -1), (reply, own + 0.25, 0))
        samples.append(replace(sample, group=1, advantages=draws.normal(size=length)))
    return policy, samples


def test_a_single_pass_compares_the_policy_with_itself_and_scores_nothing_before(measured):
    policy, samples = measured
    args, seen = GRPOArgs(lr=0.1), passes(policy)
    assert score(policy, samples, args) == {}
    assert seen == []
    optimizer = make_optimizer([{"params": policy.parameters()}], lr=0.1)
    metrics = grpo.update(policy, optimizer, samples, args, processes=ProcessGroup("cpu"), seed=(0, 1))
    assert len(seen) == 1
    assert metrics["approx_kl"] == metrics["clip_fraction"] == 0.0
    assert metrics["kl_sampler"] == pytest.approx(0.25, abs=0.02)
    # -A * 1, over tokens
    wanted = -np.mean(np.concatenate([one.advantages for one in samples]))
    assert metrics["policy_loss"] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("options", [{}, {"epochs": 2}])
@pytest.mark.parametrize(("cap", "weight"), [(2.0, np.exp(-0.25)), (0.5, 0.5)])
def test_the_loss_of_a_token_is_weighed_by_its_probability_when_it_was_sampled(
    measured, options, cap, weight
):
    # the sampler is 0.25 nats off: exp(-0.25) = 0.78, which a cap of 0.5 cuts
    policy, samples = measured
    args = GRPOArgs(importance_cap=cap, **options)
    score(policy, samples, args)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    metrics = grpo.update(policy, optimizer, samples, args, processes=ProcessGroup("cpu"), seed=(0, 1))
    wanted = -weight * np.mean(np.concatenate([one.advantages for one in samples]))
    assert metrics["policy_loss"] == pytest.approx(wanted, abs=0.03)


def test_the_weight_of_a_sequence_is_masked_outside_its_bounds(measured):
    policy, samples = measured  # the sampler is 0.25 nats off a token: a sequence of n has exp(-n / 4)
    lengths = [int(one.response_mask.sum()) for one in samples]
    bounds = {"importance_cap": 2.0, "importance_floor": float(np.exp(-min(lengths) / 4 - 0.125))}
    args = GRPOArgs(importance_level="sequence", **bounds)
    score(policy, samples, args)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.0)
    metrics = grpo.update(policy, optimizer, samples, args, processes=ProcessGroup("cpu"), seed=(0, 1))
    total = sum(one.advantages.sum() for one in samples if len(one.advantages) == min(lengths))
    wanted = -np.exp(-min(lengths) / 4) * total / sum(lengths)
    assert metrics["policy_loss"] == pytest.approx(wanted, abs=0.03)


@pytest.mark.parametrize("mode", ["gspo", "cispo"])
def test_losses_by_sequence_do_not_depend_on_micro_batches_nor_on_replies_outside_the_loss(
    policy, items, mode
):
    for item in items:
        item.logprobs = np.where(item.response_mask, item.logprobs + np.linspace(-0.3, 0.3, len(item.ids)), 0)
    options = {"loss_mode": mode, "clip": (0.02, 0.03), "epochs": 2}
    whole, _ = weights_after(policy, items, **options)
    cut, metrics = weights_after(policy, items, micro_batch_tokens=20, **options)
    plain, _ = weights_after(policy, items, **{**options, "loss_mode": "ppo"})
    for one, other in zip(whole, cut, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert metrics["clip_fraction"] > 0
    assert not all(map(torch.allclose, whole, plain))
    # the last two tokens of a sequence are cut off: as if they had not been sampled
    shorter = [replace(item, cut_off=np.arange(len(item.ids)) >= len(item.ids) - 2) for item in items]
    dropped = []
    for item in items:
        mask = item.response_mask & (np.arange(len(item.ids)) < len(item.ids) - 2)
        parts = {"advantages": item.advantages[:-2], "values": item.values[:-2], "returns": item.returns[:-2]}
        dropped.append(replace(item, response_mask=mask, **parts))
    masked, _ = weights_after(policy, shorter, mask_truncated=True, **options)
    without, _ = weights_after(policy, dropped, **options)
    for one, other in zip(masked, without, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"loss_mode": "cispo", "dual_clip": 3.0}, "dual_clip is for loss_mode ppo, got cispo"),
        ({"importance_level": "sequence"}, "importance_level are for importance_cap"),
        ({"importance_cap": 2.0, "importance_floor": 3.0}, "1 must lie between .* got 3.0 and 2.0"),
        ({"importance_cap": 5.0, "importance_floor": 2.0}, "1 must lie between .* got 2.0 and 5.0"),
        ({"importance_cap": 0.9, "importance_floor": 0.5}, "1 must lie between .* got 0.5 and 0.9"),
    ],
)
def test_flags_of_the_loss_that_contradict_each_other_are_refused(flags, said):
    with pytest.raises(ValueError, match=said):
        GRPOArgs(model="tiny", **flags).check()


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_replies_that_were_cut_off_are_not_in_the_loss(policy, items, mode):
    def cut(item):
        return replace(item, cut_off=item.response_mask)

    options = {"loss_agg_mode": mode, "max_new_tokens": 12, "kl_coef": 0.1, "micro_batch_tokens": 20}
    without, _ = weights_after(policy, items[1:], **options)
    masked, _ = weights_after(policy, [cut(items[0]), *items[1:]], mask_truncated=True, **options)
    everything, _ = weights_after(policy, [cut(items[0]), *items[1:]], **options)
    for one, other in zip(without, masked, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    assert not all(map(torch.allclose, without, everything))
    before = [weight.detach().clone() for weight in policy.parameters()]
    nothing, metrics = weights_after(policy, list(map(cut, items)), mask_truncated=True, **options)
    assert metrics["skipped"] == 1.0
    assert all(map(torch.equal, before, nothing))


@pytest.mark.parametrize("several", [{"epochs": 2}, {"minibatches": 2}, {"kl_coef": 0.1, "kl_in": "reward"}])
def test_log_probabilities_that_are_needed_later_are_scored_before(measured, several):
    policy, samples = measured
    args = MTPPOArgs(**several)
    assert score(policy, samples, args)["kl_sampler"] == pytest.approx(0.25, abs=0.02)


def test_sequences_with_a_common_prefix_go_to_one_process():
    class Half(ProcessGroup):
        def __init__(self, rank):
            self.rank, self.size = rank, 2

    ids = [np.array([first, 5, last]) for last in (1, 2, 3) for first in (7, 900)]
    assert [share(ids, Half(rank)) for rank in (0, 1)] == [[0, 2, 4], [1, 3, 5]]
    assert share(ids, None) == [0, 2, 4, 1, 3, 5]
    assert share([], Half(1)) == []  # every episode of a step has failed
