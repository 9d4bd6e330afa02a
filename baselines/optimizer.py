"""AdamW over float32 weights, and one step by the gradients of all processes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from memenvs.baselines.processes import ProcessGroup

MASTER = ".master"
"""After a parameter's number: the name of its master weight in a checkpoint."""


def apply_gradients(
    optimizer: Optimizer,
    groups: Sequence[Sequence[Tensor]],
    processes: ProcessGroup,
    *,
    max_norm: float = 1.0,
    finite: bool = True,
) -> list[float] | None:
    """One optimizer step by the gradients of all processes.

    Args:
        optimizer: optimizer of the parameters.
        groups: groups of parameters in training.
        processes: processes that train together.
        max_norm: a group's gradient of a larger norm is scaled down to it.
        finite: whether the loss of this process was finite.

    Returns:
        The norm of each group before it was clipped. None if a norm, or the loss of a process, is not finite:
        then neither the weights nor the optimizer's state change.
    """
    clip = torch.nn.utils.clip_grad_norm_
    masters = [master_weights(parameters) for parameters in groups]
    for weights in masters:
        processes.sum_gradients(weights)
    norms = [float(clip(weights, max_norm)) for weights in masters]
    # The norms are the same in all processes.
    if processes.any(not finite) or not all(map(math.isfinite, norms)):
        optimizer.zero_grad(set_to_none=True)
        return None
    optimizer.step()
    return norms


def make_optimizer(groups: Sequence[dict[str, Any]], **settings: Any) -> AdamW:
    """AdamW over float32 weights.

    For a parameter in bfloat16 it steps a float32 copy, its master weight (Micikevicius et al., 2018, section
    3.1), so that a step below the rounding of bfloat16 is not lost. A gradient is added to the master's in
    float32 as soon as a backward pass has computed it, and after each step the master is rounded into the
    parameter. If a parameter has been set to another value since, its master takes that value.

    Args:
        groups: groups of parameters, as for `torch.optim.AdamW`, each with its own settings.
        settings: settings of all groups. Unless they say otherwise, one kernel does all of a step (`fused`),
            which on a CPU takes a fifth of the time.
    """
    if not settings.get("foreach"):
        settings.setdefault("fused", True)
    stepped = [{**group, "params": [_add_master(weight) for weight in group["params"]]} for group in groups]
    optimizer = AdamW(stepped, **settings)
    masters: list[Any] = [*optimizer_masters(optimizer).values()]

    @torch.no_grad()
    def take_changes(*_: Any) -> None:
        for master in masters:
            rounded = master.to(master.rounded.dtype)
            if not torch.equal(rounded, master.rounded):
                master.copy_(torch.where(rounded == master.rounded, master, master.rounded.float()))

    @torch.no_grad()
    def round_masters(*_: Any) -> None:
        for master in masters:
            master.rounded.copy_(master)

    optimizer.register_step_pre_hook(take_changes)
    optimizer.register_step_post_hook(round_masters)
    return optimizer


def set_rates(optimizer: Optimizer, step: int, last: int, *, end: float = 1.0) -> None:
    """Set the learning rates of a step.

        share of step k = (k - 1) / W                               k <= W, the warm-up
                        = 1 - (1 - end) (k - 1 - W) / (last - 1 - W)    afterwards

    As in verl and transformers, whose schedules the papers' code has, the first step of a warm-up has rate 0.

    Args:
        optimizer: each of its groups has its `full_lr`, and `warmup`: W steps or, below 1, a share of all.
        step: k, from 1.
        last: number of the last step.
        end: share of the full rate in the last step.
    """
    for group in optimizer.param_groups:
        rise = int(group["warmup"] * last if group["warmup"] < 1 else group["warmup"])
        fallen = max(0.0, (step - 1 - rise) / max(last - 1 - rise, 1))
        share = min(1.0, (step - 1) / rise) if rise else 1.0
        group["lr"] = group["full_lr"] * share * (1 - (1 - end) * fallen)


@torch.no_grad()
def mix_weights(weights: Iterable[Tensor], others: Iterable[Tensor], share: float) -> None:
    """Move weights towards others, in float32 where they have master weights.

    w = share * other + (1 - share) * w        TR-DPO (arXiv 2404.09656), section 3
    """
    for weight, other in zip(master_weights(weights), master_weights(others), strict=True):
        weight.lerp_(other, share)
        if hasattr(weight, "rounded"):
            weight.rounded.copy_(weight)


def optimizer_masters(optimizer: Optimizer) -> dict[str, Tensor]:
    """The master weights that an optimizer steps, by their names in a checkpoint."""
    stepped = [weight for group in optimizer.param_groups for weight in group["params"]]
    return {f"{i}{MASTER}": weight for i, weight in enumerate(stepped) if hasattr(weight, "rounded")}


def master_weights(parameters: Iterable[Tensor]) -> list[Tensor]:
    """What `make_optimizer` steps of these parameters: their master weights, or in float32 themselves."""
    return [getattr(weight, "master", weight) for weight in parameters]


def _add_master(weight: Any) -> Any:
    """A float32 copy of a weight that gets its gradients; in float32 the weight itself."""
    if weight.dtype == torch.float32:
        return weight
    master = weight.detach().float().requires_grad_()
    weight.master, master.rounded = master, weight

    def move_gradient(weight: Any) -> None:
        gradient, weight.grad = weight.grad, None
        master.grad = gradient.float() if master.grad is None else master.grad.add_(gradient)

    weight.register_post_accumulate_grad_hook(move_gradient)
    return master
