"""Losses of tokens against recorded values and numbers worked out by hand, whole and in micro-batches."""

import math
from functools import partial
from typing import get_args

import numpy as np
import pytest
from reference_values import cases

pytest.importorskip("torch")

import torch

from memenvs.baselines.args import Divergence, LossAggMode
from memenvs.baselines.losses import (
    aggregate,
    cispo_loss,
    divergence,
    importance_weights,
    kl_penalty,
    policy_loss,
    token_weights,
    value_loss,
)
from memenvs.models.hf import entropy_of

LOSS_AGG_MODES, DIVERGENCES = get_args(LossAggMode), get_args(Divergence)
NEAR = {"atol": 1e-5, "rtol": 1e-4}
close = np.testing.assert_allclose


def flat(case, *names, mask="response_mask"):
    """The sequence of each written token, the size of the batch, then the named values there."""
    written = torch.tensor(case["input"][mask], dtype=torch.bool)
    return (
        torch.nonzero(written)[:, 0],
        written.shape,
        *(torch.tensor(case["input"][n])[written] for n in names),
    )


@pytest.mark.parametrize("case", cases("verl_policy_loss_clip_higher"))
def test_the_policy_loss_is_as_recorded(case):
    rows, shape, new, old, advantages = flat(case, "log_prob", "old_log_prob", "advantages")
    taken, recorded = case["input"], case["output"]
    clips = {"clip": taken["cliprange_low"], "clip_high": taken["cliprange_high"]}
    losses, clipped = policy_loss(new, old, advantages, **clips, dual_clip=taken["clip_ratio_c"])
    for mode in LOSS_AGG_MODES:
        close(aggregate(losses, rows, mode, horizon=shape[1]), recorded[mode]["pg_loss"], **NEAR)
    close(clipped.float().mean(), recorded["token-mean"]["pg_clipfrac"], **NEAR)
    if "search_r1(no dual clip)" in recorded:
        plain, _ = policy_loss(new, old, advantages, **clips)
        close(plain.mean(), recorded["search_r1(no dual clip)"], **NEAR)


@pytest.mark.parametrize("case", cases("verl_agg_loss"))
def test_losses_are_aggregated_as_recorded(case):
    rows, shape, losses = flat(case, "loss_mat", mask="loss_mask")
    recorded = case["output"]
    for mode in LOSS_AGG_MODES:
        close(aggregate(losses, rows, mode, horizon=shape[1]), recorded[mode], **NEAR)
    longer = aggregate(losses, rows, "seq-mean-token-sum-norm", horizon=7)
    close(longer, recorded["seq-mean-token-sum-norm(factor=7)"], **NEAR)
    # Two processes, 20 tokens in all: theirs is scaled by 2, since its gradients are averaged over them.
    share = token_weights(rows, torch.tensor([20]))
    close(2 * (share * losses).sum(), recorded["token-mean(dp2,ntok=20)"], **NEAR)


@pytest.mark.parametrize("case", cases("verl_value_loss"))
def test_the_value_loss_is_as_recorded(case):
    rows, _, values, old, returns = flat(case, "vpreds", "values", "returns")
    losses = value_loss(values, old, returns, clip=case["input"]["cliprange_value"])
    close(aggregate(losses, rows), case["output"]["vf_loss"], **NEAR)


@pytest.mark.parametrize("case", cases("verl_kl_penalty"))
def test_the_kl_penalty_is_as_recorded(case):
    taken = [torch.tensor(case["input"][name]) for name in ("logprob", "ref_logprob")]
    close(kl_penalty(*taken), case["output"]["low_var_kl"], **NEAR)


def one(ratio, advantage, **clips):
    """The loss of one token, its gradient by log pi, and whether its ratio was clipped."""
    logprob = torch.tensor([math.log(ratio)], requires_grad=True)
    losses, clipped = policy_loss(logprob, torch.zeros(1), torch.tensor([advantage]), **clips)
    losses.sum().backward()
    return losses.item(), logprob.grad.item(), clipped.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "clipped"),
    [
        (1.1, 2.0, -2.2, -2.2, False),  # inside: -A rho, and d rho / d log pi = rho
        (1.5, 2.0, -2.4, 0.0, True),  # above 1.2 a good token gains no more
        (0.5, 2.0, -1.0, -1.0, False),  # a good token that fell is pulled up, however far it fell
        (0.5, -2.0, 1.6, 0.0, True),  # under 0.8 a bad token gains no more
        (1.5, -2.0, 3.0, 3.0, False),  # a bad token that rose is pushed down, however far it rose
    ],
)
def test_the_ratio_is_clipped_where_it_would_help(ratio, advantage, loss, gradient, clipped):
    close(one(ratio, advantage), [loss, gradient, clipped], rtol=1e-5)


def test_dual_clip_bounds_a_bad_token_that_rose():
    # 5 times as likely, A = -1: 5 becomes 3, and pushes no more; a good token is not bounded
    close(one(5.0, -1.0, dual_clip=3.0), [3.0, 0.0, False], rtol=1e-6)
    close(one(0.1, 1.0, dual_clip=3.0)[0], -0.1, rtol=1e-6)


def test_a_token_that_became_certain_gives_a_finite_loss():
    losses, _ = policy_loss(torch.tensor([0.0]), torch.tensor([-1e4]), torch.tensor([-1.0]))
    assert torch.isfinite(losses).all()


def test_importance_weights_are_ratios_up_to_the_cap():
    # 0.6 / 0.3 and 0.1 / 0.4 stay; 0.9 / 0.1 = 9 is cut at 2
    trained, sampled = torch.tensor([0.6, 0.1, 0.9]).log(), torch.tensor([0.3, 0.4, 0.1]).log()
    close(importance_weights(trained, sampled, cap=2.0), [2.0, 0.25, 2.0], rtol=1e-5)


@pytest.mark.parametrize("case", cases("verl_policy_loss_modes"))
def test_gspo_and_cispo_are_as_recorded_with_their_gradients(case):
    taken = case["input"]
    rows, shape, new, old, advantages = flat(case, "log_prob", "old_log_prob", "advantages")
    written = torch.tensor(taken["response_mask"], dtype=torch.bool)
    clips = {"clip": taken["clip_ratio_low"], "clip_high": taken["clip_ratio_high"]}
    computes = {"gspo": partial(policy_loss, sequences=rows, **clips), "cispo": partial(cispo_loss, **clips)}
    for name, compute in computes.items():
        for mode, recorded in case["output"][name].items():
            own = new.clone().requires_grad_()
            losses, clipped = compute(own, old, advantages)
            loss = aggregate(losses, rows, mode, horizon=shape[1])
            loss.backward()
            close(loss.detach(), recorded["pg_loss"], **NEAR)
            close(own.grad, torch.tensor(recorded["gradient"])[written], **NEAR)
            close(clipped.float().mean(), recorded["pg_clipfrac"], **NEAR)


@pytest.mark.parametrize("case", cases("verl_policy_loss_modes"))
def test_importance_weights_by_token_and_sequence_capped_and_masked_are_as_recorded(case):
    rows, _, old, sampler = flat(case, "old_log_prob", "rollout_log_prob")
    written = torch.tensor(case["input"]["response_mask"], dtype=torch.bool)
    for name, recorded in case["output"]["weights"].items():
        level, form = name.split()
        floor = case["input"]["floor"] if form == "masked" else None
        sequences = rows if level == "sequence" else None
        weights = importance_weights(old, sampler, case["input"]["cap"], floor=floor, sequences=sequences)
        close(weights, torch.tensor(recorded)[written], **NEAR)


def test_the_mean_of_gspo_over_sequences_is_eq_5_and_has_its_gradient():
    draws = np.random.default_rng(0)
    lengths, low, high = [3, 1, 5, 2], 0.1, 0.2
    rows = torch.repeat_interleave(torch.arange(4), torch.tensor(lengths))
    old = torch.from_numpy(draws.normal(-1, 1, 11))
    new = (old + torch.from_numpy(draws.normal(0, 0.3, 11))).requires_grad_()
    scores = [1.0, -0.5, 0.25, -2.0]
    total, start = torch.zeros((), dtype=torch.float64), 0
    for length, score in zip(lengths, scores, strict=True):
        own = slice(start, start + length)
        ratio = (new[own].exp().prod() / old[own].exp().prod()) ** (1 / length)
        total = total - torch.minimum(ratio * score, ratio.clamp(1 - low, 1 + high) * score) / len(lengths)
        start += length
    losses, _ = policy_loss(new, old, torch.tensor(scores)[rows], clip=low, clip_high=high, sequences=rows)
    loss = aggregate(losses, rows, "seq-mean-token-mean")
    close(loss.item(), total.item(), rtol=1e-12)
    close(*(torch.autograd.grad(each, new)[0] for each in (loss, total)), rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize(("ratio", "weight"), [(1.1, 1.1), (5.0, 1.2), (0.1, 0.8)])
def test_cispo_clips_the_weight_of_a_token_and_keeps_its_gradient(ratio, weight):
    logprob = torch.tensor([math.log(ratio) - 1], requires_grad=True)
    losses, clipped = cispo_loss(logprob, torch.tensor([-1.0]), torch.tensor([2.0]))
    losses.sum().backward()
    close(logprob.grad, [-2 * weight], rtol=1e-5)
    close(losses.item(), -2 * weight * (math.log(ratio) - 1), rtol=1e-5)
    assert clipped.item() == (ratio != 1.1)


def test_a_sequence_s_importance_weight_is_a_product_and_goes_to_all_its_tokens():
    # 2 * 1.5 = 3 and 0.5 * 0.2 = 0.1; a cap of 2 cuts the first, a floor of 0.5 leaves both out
    apart, rows = torch.tensor([2.0, 0.5, 1.5, 0.2]).log(), torch.tensor([0, 1, 0, 1])
    for floor, wanted in ((None, [2.0, 0.1, 2.0, 0.1]), (0.5, [0.0] * 4), (0.1 - 1e-6, [0.0, 0.1, 0.0, 0.1])):
        weights = importance_weights(apart, torch.zeros(4), cap=2.0, floor=floor, sequences=rows)
        close(weights, wanted, rtol=1e-5)


def test_the_value_loss_takes_the_worse_of_the_two():
    # V = 1, V_old = 0, clip 0.2: V_clip = 0.2. Target 2: (1 - 2)^2 = 1 < (0.2 - 2)^2 = 3.24, half of it 1.62.
    # Target 0: (1 - 0)^2 = 1 > 0.04, half of it 0.5.
    close(value_loss(torch.ones(2), torch.zeros(2), torch.tensor([2.0, 0.0])), [1.62, 0.5], rtol=1e-6)


def test_without_a_clip_the_value_loss_is_half_the_square():
    close(value_loss(torch.ones(1), torch.zeros(1), torch.tensor([3.0]), clip=None), [2.0])


def test_a_token_that_left_its_reference_far_behind_has_a_finite_penalty_and_gradient():
    logprob = torch.tensor([-200.0, 200.0], requires_grad=True)
    penalty = kl_penalty(logprob, torch.zeros(2))
    penalty.sum().backward()
    assert torch.isfinite(penalty).all()
    assert torch.isfinite(logprob.grad).all()


def test_the_mean_of_the_estimate_over_the_policy_is_its_kl():
    policy, other = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4]], dtype=torch.float64)
    exact = (policy * (policy / other).log()).sum()
    close((policy * kl_penalty(policy.log(), other.log())).sum(), exact, rtol=1e-9)


def test_the_mean_gradient_of_k2_is_that_of_the_divergence_from_the_reference():
    logits = torch.tensor([4.0, 0, 0, 0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.0, 4.0, 0, 0], dtype=torch.float64).log_softmax(0)
    logprobs = logits.log_softmax(0)
    (exact,) = torch.autograd.grad((logprobs.exp() * (logprobs - reference)).sum(), logits, retain_graph=True)
    sampled = logprobs.exp().detach()  # the mean over tokens that the policy samples
    (gradient,) = torch.autograd.grad((sampled * kl_penalty(logprobs, reference, "k2")).sum(), logits)
    close(gradient, exact, rtol=1e-9, atol=1e-12)
    close(gradient, [0.2633, -0.1341, -0.0646, -0.0646], atol=5e-5)


def test_k2_of_a_token_is_half_the_square():
    close(kl_penalty(torch.tensor([-1.0, 3.0]), torch.tensor([1.0, 3.0]), "k2"), [2.0, 0.0])  # (-1 - 1)^2 / 2


def test_entropy_of_equal_logits_is_the_log_of_their_number():
    close(entropy_of(torch.zeros(2, 3, 8).log_softmax(-1)), np.full((2, 3), math.log(8)), rtol=1e-6)


def test_a_token_that_cannot_come_up_adds_nothing_to_the_entropy_or_its_gradient():
    logits = torch.tensor([[1.0, 2.0, -math.inf]], requires_grad=True)
    found = entropy_of(logits.log_softmax(-1))
    found.sum().backward()
    close(found.detach(), entropy_of(torch.tensor([[1.0, 2.0]]).log_softmax(-1)), rtol=1e-6)
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 2] == 0.0


def test_weights_by_hand():
    # Three sequences of 2, 0 and 1 tokens; the empty one does not count.
    rows, lengths = torch.tensor([0, 0, 2]), torch.tensor([2, 0, 1])
    close(token_weights(rows, lengths, "token-mean"), [1 / 3, 1 / 3, 1 / 3])
    close(token_weights(rows, lengths, "seq-mean-token-mean"), [1 / 4, 1 / 4, 1 / 2])
    close(token_weights(rows, lengths, "seq-mean-token-sum"), [1 / 2, 1 / 2, 1 / 2])
    close(token_weights(rows, lengths, "seq-mean-token-sum-norm", horizon=10), [1 / 20, 1 / 20, 1 / 20])


def test_weights_are_as_exact_as_losses_in_float64():
    rows = torch.tensor([0, 0, 0, 1])
    losses = torch.tensor([3.0, 3.0, 3.0, 3.0], dtype=torch.float64)
    for mode, loss in (("token-mean", 3.0), ("seq-mean-token-mean", 3.0), ("seq-mean-token-sum", 6.0)):
        assert aggregate(losses, rows, mode).item() == pytest.approx(loss, rel=1e-15)
    assert token_weights(rows, torch.tensor([3, 0, 0, 0]), "token-mean")[0].item() == 1 / 3


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_micro_batches_add_up_to_the_whole_batch(mode):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([3, 1, 0, 5, 2])
    rows = torch.repeat_interleave(torch.arange(5), lengths)
    logprobs = torch.randn(11, generator=generator, dtype=torch.float64).requires_grad_()
    old, advantages = torch.randn(2, 11, generator=generator, dtype=torch.float64)
    losses, _ = policy_loss(logprobs, old, advantages)
    whole = aggregate(losses, rows, mode, horizon=6)
    (gradient,) = torch.autograd.grad(whole, logprobs, retain_graph=True)
    total, summed = 0.0, torch.zeros(11, dtype=torch.float64)
    for part in torch.tensor_split(torch.randperm(11, generator=generator), 3):  # cut across sequences
        share = token_weights(rows[part], lengths, mode, horizon=6)
        loss = (share * policy_loss(logprobs[part], old[part], advantages[part])[0]).sum()
        total += loss.item()
        summed += torch.autograd.grad(loss, logprobs)[0]
    close(total, whole.item(), rtol=1e-14)
    close(summed, gradient, rtol=1e-14)


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_a_batch_without_a_written_token_has_loss_zero(mode):
    assert aggregate(torch.zeros(0), torch.zeros(0, dtype=torch.long), mode, horizon=4).item() == 0.0


def distributions(*shape):
    """Two batches of log-probabilities."""
    draws = np.random.default_rng(0)
    return [torch.from_numpy(draws.normal(0, 2, shape)).log_softmax(-1) for _ in range(2)]


def test_divergences_by_hand():
    student, teacher = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.25, 0.75]]).log()
    # 1/4 log 1/2 + 3/4 log 3/2;  1/2 log 2 + 1/2 log 2/3;  the middle is 3/8, 5/8
    forward = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    reverse = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    halves = 0.25 * math.log(2 / 3) + 0.75 * math.log(1.2) + 0.5 * math.log(4 / 3) + 0.5 * math.log(0.8)
    for kind, value in {"forward": forward, "reverse": reverse, "jsd": halves / 2}.items():
        close(divergence(student, teacher, kind), [value], **NEAR)


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_a_divergence_has_the_gradient_of_its_value(kind):
    student, teacher = distributions(3, 5)
    logits = student.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda own: divergence(own.log_softmax(-1), teacher, kind), [logits])


@pytest.mark.parametrize("kind", DIVERGENCES)
def test_a_token_that_neither_writes_adds_nothing_to_a_divergence(kind):
    student, teacher = distributions(3, 5)
    longer = [
        torch.cat([one, torch.full((3, 1), -math.inf)], 1).requires_grad_() for one in (student, teacher)
    ]
    found = divergence(*longer, kind)
    close(found.detach(), divergence(student, teacher, kind))
    found.sum().backward()
    assert bool(longer[0].grad.isfinite().all())
