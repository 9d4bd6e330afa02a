"""Samples with advantages come in; the policy is trained on them, and statistics of the training go out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memenvs.baselines import losses
from memenvs.baselines.batches import micro_batches, padding_share
from memenvs.baselines.episode import Episode, Floats, Sample
from memenvs.baselines.measure import evaluate_in
from memenvs.baselines.options import UpdateArgs
from memenvs.baselines.world import World
from memenvs.extras import require

if TYPE_CHECKING:
    from memenvs.baselines.hf_policy import HFPolicy


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
    critic_only: bool = False,
) -> dict[str, float]:
    """Train on all items, `epochs` times in `minibatches` optimizer steps; means of what was seen.

    Without an item nothing is done, and `skipped` is 1. An optimizer step whose loss or gradient is not
    finite is not taken, and counted as `nonfinite`; the means are those of the others.

    The loss of a minibatch is one weighted sum over its tokens, so that it does not depend on how it is cut
    into micro-batches or dealt to processes.

    Args:
        policy: to be trained.
        optimizer: of its parameters.
        items: of all processes; each process takes its share.
        args: see `UpdateArgs`.
        world: the processes.
        seed: of the order of groups.
        critic_only: leave the policy as it is (critic warm-up).
    """
    if not items:
        return {"skipped": 1.0}
    head: Any = policy.value_head
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
                _backward(policy, [mine[i] for i in batch], lengths, args, critic_only, told)
            if critic_only:
                policy.model.zero_grad(set_to_none=True)
            trained = policy.parameters() if not critic_only else list(head.parameters())
            norm = apply_gradients(optimizer, trained, args.max_grad_norm, world, finite=told.finite)
            if norm is None:
                skipped += 1
                continue
            told.add({"grad_norm": norm}, 1)
            told.add({"padding": padding_share([len(item.sample.ids) for item in mine], batches)}, 1)
            seen.merge(told)
    return {**seen.means(world), "nonfinite": float(skipped)}


def apply_gradients(
    optimizer: Any, parameters: Sequence[Any], max_norm: float, world: World, *, finite: bool = True
) -> float | None:
    """One optimizer step by the gradients of all processes, their norm clipped; the norm before clipping.

    Where the norm is not finite, or a process says that its loss was not, nothing is changed, neither
    weights nor the optimizer's state, and None is returned.

    Args:
        optimizer: of the parameters.
        parameters: with the gradients of this process.
        max_norm: above 0.
        world: the processes.
        finite: whether the loss of this process was finite.
    """
    world.add_gradients(parameters)
    norm = float(require("torch", "train").nn.utils.clip_grad_norm_(parameters, max_norm))
    if world.any(not finite) or not math.isfinite(norm):  # the norm is the same in all processes
        optimizer.zero_grad(set_to_none=True)
        return None
    optimizer.step()
    return norm


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


def _backward(
    policy: HFPolicy,
    items: Sequence[Item],
    lengths: Sequence[int],
    args: UpdateArgs,
    critic_only: bool,
    seen: Means,
) -> None:
    """Add the gradient of one micro-batch of a minibatch whose samples have so many written tokens."""
    samples = [item.sample for item in items]
    told = evaluate_in(policy, samples, args, entropy=bool(args.entropy_coef))
    old = _tensor([sample.logprobs[sample.written] for sample in samples], told.logprobs)
    advantages = _tensor([item.advantages for item in items], told.logprobs)
    weights = _weights(items, lengths, args, told.logprobs)
    clipped = losses.policy_loss(
        told.logprobs, old, advantages, clip=args.clip, clip_high=args.clip_high, dual_clip=args.dual_clip
    )
    loss = (weights * clipped.losses).sum()
    numbers = {
        "policy_loss": clipped.losses.mean(),
        "clip_fraction": clipped.clipped.float().mean(),
        "entropy": -old.mean(),  # of what was sampled, at its temperature
        "kl_old": losses.kl_penalty(
            old, told.logprobs.detach()
        ).mean(),  # old sampled the tokens: KL(old || new)
    }
    if args.kl_coef:
        reference = _tensor([_known(sample.reference) for sample in samples], told.logprobs)
        penalty = losses.kl_penalty(told.logprobs, reference, args.kl_kind)
        loss, numbers["kl_ref"] = loss + args.kl_coef * (weights * penalty).sum(), penalty.mean()
    if args.entropy_coef:
        loss = loss - args.entropy_coef * (weights * told.entropy).sum()
    if policy.value_head is not None:
        returns = _tensor([_known(item.returns) for item in items], told.logprobs)
        before = _tensor([_known(sample.values) for sample in samples], told.logprobs)
        errors = losses.value_loss(told.values, before, returns, clip=args.value_clip).losses
        value_loss = args.value_coef * (weights * errors).sum()
        loss = value_loss if critic_only else loss + value_loss
        numbers["value_loss"] = errors.mean()
    loss.backward()
    seen.add({name: float(number.detach()) for name, number in numbers.items()}, len(old))


def _minibatches(items: Sequence[Item], count: int, rng: np.random.Generator) -> Iterator[list[Item]]:
    """Items in `count` parts of about as many groups each, in an order drawn anew."""
    groups = rng.permutation(sorted({item.group for item in items}))
    for part in np.array_split(groups, min(count, len(groups))):
        chosen = set(part.tolist())
        yield [item for item in items if item.group in chosen]


def _weights(items: Sequence[Item], lengths: Sequence[int], args: UpdateArgs, like: Any) -> Any:
    """(N,) the weight of each token in the loss of its minibatch."""
    own = [len(item.advantages) for item in items]
    # A token's weight asks for the length of its own sequence and for sums over all: the sequences of this
    # micro-batch are numbered first, and the others stand behind them.
    others = list((Counter(lengths) - Counter(own)).elements())
    torch = require("torch", "train")
    rows = torch.repeat_interleave(torch.arange(len(own)), torch.tensor(own))
    weights = losses.token_weights(rows, torch.tensor(own + others), args.aggregate, horizon=args.horizon)
    return weights.to(like.device, torch.float32)


def _tensor(parts: Sequence[Floats], like: Any) -> Any:
    torch = require("torch", "train")
    return torch.from_numpy(np.concatenate(parts)).to(like.device, torch.float32)


def _known(values: Floats | None) -> Floats:
    if values is None:
        raise ValueError("a sample has not been measured; call measure() before update()")
    return values
