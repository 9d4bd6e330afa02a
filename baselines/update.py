"""Samples with advantages come in; the policy is trained on them, and statistics of the training go out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memenvs.baselines import losses
from memenvs.baselines.args import PPOArgs, UpdateArgs, kl_in_loss
from memenvs.baselines.distributed import World
from memenvs.baselines.measure import evaluate_in, values_in
from memenvs.core.optional import require
from memenvs.models.batching import micro_batches, padding_share
from memenvs.models.policy import Evaluation
from memenvs.rollout.records import Episode, Floats, Sample

if TYPE_CHECKING:
    from memenvs.models.hf import HFPolicy


class Item(NamedTuple):
    """A training sequence and what it is to learn.

    Attributes:
        sample: the sequence, N tokens of it written.
        group: name of its group.
        advantages: (N,).
        returns: (N,) what the critic is to predict; None without a critic.
    """

    sample: Sample
    group: int
    advantages: Floats
    returns: Floats | None = None


def items_of(
    episodes: Sequence[Episode], advantages: Sequence[Floats], returns: Sequence[Floats] | None = None
) -> list[Item]:
    """The samples of episodes with their parts of the episodes' advantages (N,)."""
    found = []
    for number, (episode, values) in enumerate(zip(episodes, advantages, strict=True)):
        wanted: Sequence[Any] = (
            [None] * len(episode.samples) if returns is None else episode.split(returns[number])
        )
        parts = zip(episode.samples, episode.split(values), wanted, strict=True)
        found += [Item(sample, episode.group, part, want) for sample, part, want in parts]
    return found


def update(
    policy: HFPolicy,
    optimizer: Any,
    items: Sequence[Item],
    args: UpdateArgs,
    *,
    world: World,
    seed: Sequence[int],
    critic: HFPolicy | None = None,
    critic_only: bool = False,
) -> dict[str, float]:
    """Train on all items, `epochs` times in `minibatches` optimizer steps; means of what was seen.

    Without an item nothing is done, and `skipped` is 1. An optimizer step whose loss or gradient is not
    finite is not taken, and counted as `nonfinite`; the means are those of the others.

    The loss of a minibatch is one weighted sum over its tokens, so that it does not depend on how it is cut
    into micro-batches or dealt to processes. A separate critic has a gradient of its own, clipped apart; a
    shared one adds its loss to the policy's.

    Args:
        policy: to be trained.
        optimizer: of its parameters, and of the critic's.
        items: of all processes; each process takes its share.
        args: see `UpdateArgs`, and `PPOArgs` with a critic.
        world: the processes.
        seed: of the order of groups.
        critic: whose value head is to be trained: the policy itself, or another model; None: no critic.
        critic_only: leave the policy as it is (critic warm-up).
    """
    if not items:
        return {"skipped": 1.0}
    trained = _trained(policy, critic, critic_only)
    seen, skipped = Means(), 0
    for epoch in range(args.epochs):
        rng = np.random.default_rng([*seed, epoch])
        for minibatch in _minibatches(items, args.minibatches, rng):
            optimizer.zero_grad(set_to_none=True)
            told = Means()
            whole = sorted(minibatch, key=lambda item: len(item.sample.ids))
            lengths = [len(item.advantages) for item in whole]
            mine = world.share(whole)
            batches = micro_batches([len(item.sample.ids) for item in mine], args.micro_batch_tokens)
            for batch in batches:
                part = [mine[i] for i in batch]
                weights = _weights(part, lengths, args, policy.device)
                for loss, numbers in _losses(policy, critic, part, weights, args, critic_only):
                    loss.backward()
                    told.add({name: float(number.detach()) for name, number in numbers.items()}, len(weights))
            if critic_only:
                policy.model.zero_grad(set_to_none=True)
            norms = apply_gradients(
                optimizer, list(trained.values()), args.max_grad_norm, world, finite=told.finite
            )
            if norms is None:
                skipped += 1
                continue
            told.add(dict(zip(trained, norms, strict=True)), 1)
            told.add({"padding": padding_share([len(item.sample.ids) for item in mine], batches)}, 1)
            seen.merge(told)
    return {**seen.means(world), "nonfinite": float(skipped)}


def apply_gradients(
    optimizer: Any, groups: Sequence[Sequence[Any]], max_norm: float, world: World, *, finite: bool = True
) -> list[float] | None:
    """One optimizer step by the gradients of all processes; the norm of each group before it was clipped.

    Where a norm is not finite, or a process says that its loss was not, nothing is changed, neither weights
    nor the optimizer's state, and None is returned.

    Args:
        optimizer: of the parameters.
        groups: of parameters with the gradients of this process; the norm of each is cut by itself.
        max_norm: above 0.
        world: the processes.
        finite: whether the loss of this process was finite.
    """
    clip = require("torch", "train").nn.utils.clip_grad_norm_
    for parameters in groups:
        world.add_gradients(parameters)
    norms = [float(clip(parameters, max_norm)) for parameters in groups]
    # The norms are the same in all processes.
    if world.any(not finite) or not all(map(math.isfinite, norms)):
        optimizer.zero_grad(set_to_none=True)
        return None
    optimizer.step()
    return norms


class Means:
    """Weighted means of named numbers."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, float]] = {}

    def add(self, numbers: dict[str, float], weight: float) -> None:
        """Count numbers that are means over `weight` things."""
        for name, value in numbers.items():
            total, count = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = (total + value * weight, count + weight)

    def merge(self, other: Means) -> None:
        """Count what another has counted."""
        for name, (total, weight) in other._sums.items():
            mine, count = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = (mine + total, count + weight)

    @property
    def finite(self) -> bool:
        """Whether every number so far was finite."""
        return all(math.isfinite(total) for total, _ in self._sums.values())

    def means(self, world: World) -> dict[str, float]:
        """The means over all processes."""
        names = sorted({name for names in world.gather([list(self._sums)]) for name in names})
        sums = world.add(*(number for name in names for number in self._sums.get(name, (0.0, 0.0))))
        return {name: sums[2 * i] / max(sums[2 * i + 1], 1e-12) for i, name in enumerate(names)}


def _trained(policy: HFPolicy, critic: HFPolicy | None, critic_only: bool) -> dict[str, list[Any]]:
    """Parameters whose gradients are clipped together, by the name of their norm in the log."""
    shared = critic is policy
    values = critic.critic_parameters(shared=shared) if critic else []
    if critic_only or not critic:
        return {"critic_grad_norm": values} if critic_only else {"grad_norm": policy.model_parameters()}
    if shared:
        return {"grad_norm": policy.parameters()}
    return {"grad_norm": policy.model_parameters(), "critic_grad_norm": values}


def _losses(
    policy: HFPolicy,
    critic: HFPolicy | None,
    items: Sequence[Item],
    weights: Any,
    args: UpdateArgs,
    critic_only: bool,
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The losses of one micro-batch, each to be propagated before the next is made, and what they tell.

    Args:
        policy: in training.
        critic: as in `update`.
        items: of the micro-batch, N tokens of them written.
        weights: (N,) of each token in the loss of the minibatch.
        args: as in `update`.
        critic_only: as in `update`.
    """
    samples, shared = [item.sample for item in items], critic is policy
    if shared or not critic_only:
        told = evaluate_in(policy, samples, args, entropy=bool(args.entropy_coef))
        loss, numbers = _policy_loss(told, items, weights, args)
        if shared:
            value_loss, value_numbers = _value_loss(told.values, items, weights, args)
            loss = value_loss if critic_only else loss + value_loss
            numbers |= value_numbers
        yield loss, numbers
    if critic is not None and not shared:
        yield _value_loss(values_in(critic, samples, args), items, weights, args)


def _policy_loss(
    told: Evaluation, items: Sequence[Item], weights: Any, args: UpdateArgs
) -> tuple[Any, dict[str, Any]]:
    samples = [item.sample for item in items]
    old = _tensor([sample.logprobs[sample.response_mask] for sample in samples], told.logprobs)
    advantages = _tensor([item.advantages for item in items], told.logprobs)
    clipped = losses.policy_loss(
        told.logprobs, old, advantages, clip=args.clip, clip_high=args.clip_high, dual_clip=args.dual_clip
    )
    loss = (weights * clipped.losses).sum()
    numbers = {
        "policy_loss": clipped.losses.mean(),
        "clip_fraction": clipped.clipped.float().mean(),
        "entropy": -old.mean(),  # of what was sampled, at its temperature
        "kl_old": losses.kl_penalty(old, told.logprobs.detach()).mean(),  # old sampled: KL(old || new)
    }
    if args.kl_coef:
        reference = _tensor([_known(sample.ref_logprobs) for sample in samples], told.logprobs)
        penalty = losses.kl_penalty(told.logprobs, reference, args.kl_kind)
        numbers["kl_ref"] = penalty.mean()
        if kl_in_loss(args):
            loss = loss + args.kl_coef * (weights * penalty).sum()
    if args.entropy_coef:
        loss = loss - args.entropy_coef * (weights * told.entropy).sum()
    return loss, numbers


def _value_loss(
    values: Any, items: Sequence[Item], weights: Any, args: UpdateArgs
) -> tuple[Any, dict[str, Any]]:
    if not isinstance(args, PPOArgs):
        raise TypeError(f"a critic is trained with PPOArgs, got {type(args).__name__}")
    returns = _tensor([_known(item.returns) for item in items], values)
    before = _tensor([_known(item.sample.values) for item in items], values)
    errors = losses.value_loss(values, before, returns, clip=args.value_clip).losses
    return args.value_coef * (weights * errors).sum(), {"value_loss": errors.mean()}


def _minibatches(items: Sequence[Item], count: int, rng: np.random.Generator) -> Iterator[list[Item]]:
    """Items in `count` parts of about as many groups each, in an order drawn anew."""
    groups = rng.permutation(sorted({item.group for item in items}))
    for part in np.array_split(groups, min(count, len(groups))):
        chosen = set(part.tolist())
        yield [item for item in items if item.group in chosen]


def _weights(items: Sequence[Item], lengths: Sequence[int], args: UpdateArgs, device: Any) -> Any:
    """(N,) the weight of each token in the loss of its minibatch."""
    own = [len(item.advantages) for item in items]
    # A token's weight asks for the length of its own sequence and for sums over all: the sequences of this
    # micro-batch are numbered first, and the others stand behind them.
    others = list((Counter(lengths) - Counter(own)).elements())
    torch = require("torch", "train")
    rows = torch.repeat_interleave(torch.arange(len(own)), torch.tensor(own))
    weights = losses.token_weights(rows, torch.tensor(own + others), args.aggregate, horizon=args.horizon)
    return weights.to(device, torch.float32)


def _tensor(parts: Sequence[Floats], like: Any) -> Any:
    torch = require("torch", "train")
    return torch.from_numpy(np.concatenate(parts)).to(like.device, torch.float32)


def _known(values: Floats | None) -> Floats:
    if values is None:
        raise ValueError("a sample has not been measured; call measure() before update()")
    return values
