"""Training in bfloat16: gradients agree with float32, and steps smaller than its rounding are not lost."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from memenvs.baselines.checkpoint import Checkpoints
from memenvs.baselines.mt_ppo import MTPPOArgs, update
from memenvs.baselines.optimizer import apply_gradients, make_optimizer, master_weights
from memenvs.baselines.processes import ProcessGroup
from memenvs.baselines.scoring import score
from memenvs.core.episode import Sample
from memenvs.models import HFPolicy


def policy_in(tiny_model, dtype, **options):
    return HFPolicy(str(tiny_model), chat=False, dtype=dtype, device="cpu", **options)


def sequences():
    """Six sequences of which the last tokens were sampled, and the masks of these."""
    draws = np.random.default_rng(0)
    ids = [draws.integers(5, 500, length) for length in (9, 13, 11, 16, 10, 12)]
    return ids, [np.arange(len(one)) >= 4 for one in ids]


def gradient(policy, micro_batches):
    """The gradient of -mean log pi as one vector, by its master weights."""
    ids, masks = sequences()
    optimizer = make_optimizer([{"params": policy.model_parameters()}], lr=0.1)
    for part in np.array_split(np.arange(len(ids)), micro_batches):
        logprobs = policy.forward([ids[i] for i in part], [masks[i] for i in part]).logprobs
        (-logprobs.sum() / sum(mask.sum() for mask in masks)).backward()
    (group,) = optimizer.param_groups
    return torch.cat([weight.grad.flatten() for weight in group["params"]])


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_gradients_in_bfloat16_are_those_in_float32_within_rounding(micro_batches, tiny_model):
    exact = gradient(policy_in(tiny_model, "float32"), 1)
    rounded = gradient(policy_in(tiny_model, "bfloat16"), micro_batches)
    assert rounded.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(exact, rounded, dim=0) > 0.99
    assert float(rounded.norm()) == pytest.approx(float(exact.norm()), rel=0.05)


def test_float32_weights_are_their_own_masters(tiny_model):
    policy = policy_in(tiny_model, "float32")
    optimizer = make_optimizer([{"params": policy.model_parameters()}], lr=0.1)
    assert all(
        one is other
        for one, other in zip(optimizer.param_groups[0]["params"], policy.model_parameters(), strict=True)
    )


def test_micro_batches_are_summed_in_float32():
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = make_optimizer([{"params": [weight]}], lr=0.1)
    (1.0 * weight).sum().backward()
    for _ in range(4):
        (2.0**-10 * weight).sum().backward()
    # 1 + 2^-10 is 1 in bfloat16, whose next number is 1 + 2^-7
    (master,) = optimizer.param_groups[0]["params"]
    assert float(master.grad) == 1 + 4 * 2.0**-10
    assert weight.grad is None


def test_steps_below_the_rounding_of_bfloat16_add_up():
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = make_optimizer([{"params": [weight]}], lr=2.0**-11, weight_decay=0.0)
    seen = []
    for _ in range(9):
        optimizer.zero_grad(set_to_none=True)
        (-weight).sum().backward()
        assert apply_gradients(optimizer, [[weight]], ProcessGroup("cpu")) is not None
        seen.append(float(weight.detach()))
    # AdamW steps by 2^-11 each; the next number above 1 is 1 + 2^-7, reached when half of it has been walked
    assert float(master_weights([weight])[0].detach()) == pytest.approx(1 + 9 * 2.0**-11, abs=1e-6)
    assert seen[0] == 1.0
    assert seen[-1] == 1 + 2.0**-7


def test_a_master_takes_a_value_that_its_parameter_is_set_to():
    weight = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    optimizer = make_optimizer([{"params": [weight]}], lr=1e-4, weight_decay=0.0)
    (master,) = master_weights([weight])
    weight.grad = None
    (weight * torch.tensor([1.0, 1.0, 0.0], dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    moved = master.detach().clone()
    assert 0.999 < moved[0] < 1.0  # below the rounding of bfloat16: the parameter is still 1
    with torch.no_grad():
        weight[1] = 4.0  # as loading other weights does
    optimizer.zero_grad(set_to_none=True)
    (weight * 0).sum().backward()
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    assert master.tolist() == pytest.approx([float(moved[0]), 4.0, 1.0], abs=1e-6)
    assert weight.tolist() == [1.0, 4.0, 1.0]


def test_processes_sum_the_gradients_of_masters():
    class TwoAlike(ProcessGroup):
        def sum_gradients(self, parameters):
            for weight in parameters:
                assert weight.dtype == torch.float32
                weight.grad.mul_(2)

    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = make_optimizer([{"params": [weight]}], lr=0.1)
    (3 * weight).sum().backward()
    assert apply_gradients(optimizer, [[weight]], TwoAlike("cpu")) == [6.0]


def test_a_gradient_is_scaled_down_to_the_largest_norm():
    weight = torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([3.0, 4.0])
    optimizer = torch.optim.SGD([weight], lr=1.0)
    assert apply_gradients(optimizer, [[weight]], ProcessGroup("cpu"), max_norm=0.1) == [5.0]
    assert weight.tolist() == pytest.approx([-0.06, -0.08], abs=1e-6)


def test_a_step_that_is_not_finite_leaves_masters_as_they_are():
    weight = torch.nn.Parameter(torch.ones(1, dtype=torch.bfloat16))
    optimizer = make_optimizer([{"params": [weight]}], lr=0.5)
    (weight * torch.inf).sum().backward()
    assert apply_gradients(optimizer, [[weight]], ProcessGroup("cpu")) is None
    assert float(master_weights([weight])[0].detach()) == float(weight.detach()) == 1.0
    assert master_weights([weight])[0].grad is None


def test_the_critics_warm_up_leaves_no_gradient_to_the_policys_masters(tiny_model):
    policy = policy_in(tiny_model, "bfloat16").add_value_head()
    groups = [{"params": policy.model_parameters()}, {"params": policy.critic_parameters(shared=True)}]
    optimizer = make_optimizer(groups, lr=0.1)
    before = [weight.detach().clone() for weight in policy.model_parameters()]
    ids, masks = sequences()
    samples = [Sample.of((one[:4], None, -1), (one[4:], np.zeros(len(one) - 4), 0)) for one in ids]
    args = MTPPOArgs(critic="shared")
    assert "kl_sampler" in score(policy, samples, args, critic=policy)  # bfloat16 is measured again
    samples = [
        replace(sample, group=group, advantages=np.ones(mask.sum()), returns=np.ones(mask.sum()))
        for group, (sample, mask) in enumerate(zip(samples, masks, strict=True))
    ]
    head = policy.value_head.bias.detach().clone()
    update(
        policy, policy, optimizer, samples, args, processes=ProcessGroup("cpu"), seed=(0,),
        critic_only=True,
    )  # fmt: skip
    assert all(torch.equal(one, other) for one, other in zip(before, policy.model_parameters(), strict=True))
    assert not torch.equal(head, policy.value_head.bias)
    assert policy.value_head.weight.dtype == torch.float32


def test_a_checkpoint_of_another_precision_is_refused(tiny_model, tmp_path):
    def state(dtype):
        policy = policy_in(tiny_model, dtype)
        return {"policy": policy}, make_optimizer([{"params": policy.model_parameters()}], lr=0.1)

    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(*state("bfloat16"), step=1, args={})
    with pytest.raises(ValueError, match=r"was computed in bfloat16, now float32; resume with --dtype bf"):
        checkpoints.restore(*state("float32"))
    models, optimizer = state("bfloat16")
    with torch.no_grad():
        optimizer.param_groups[0]["params"][0].zero_()
    checkpoints.restore(models, optimizer)
    _, others = state("bfloat16")
    for one, other in zip(optimizer.param_groups[0]["params"], others.param_groups[0]["params"], strict=True):
        assert torch.equal(one, other)


def test_a_run_can_be_resumed_with_the_dtype_that_the_refusal_asks_for(tiny_model, tmp_path):
    began, now = (
        MTPPOArgs(dtype="auto"),
        MTPPOArgs(dtype="bfloat16"),
    )  # auto was bfloat16 on the first machine
    policy = policy_in(tiny_model, "bfloat16")
    optimizer = make_optimizer([{"params": policy.model_parameters()}], lr=0.1)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"policy": policy}, optimizer, step=1, args=began.plain())
    now.check_begun(checkpoints.newest_args)
