"""One update of a policy: passes over a step's samples in micro-batches, by a loss of sampled tokens."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from memenvs.baselines import losses
from memenvs.baselines.args import RewardArgs, StepArgs
from memenvs.baselines.optimizer import apply_gradients, master_weights
from memenvs.baselines.processes import ProcessGroup, share
from memenvs.core.episode import Episode, Floats, Sample
from memenvs.core.progress import progress
from memenvs.models import PolicyOutput
from memenvs.models.hf import HFPolicy

Loss = tuple[Tensor, dict[str, Tensor]]
"""The loss () of a micro-batch, and metrics, which are means over its tokens."""
Metrics = list[tuple[Mapping[str, float], float]]
"""Metrics, each with the number of tokens that they are means over."""


@dataclass
class Objective:
    """What an update minimizes.

    Attributes:
        policy: reads the samples.
        args: `epochs`, `minibatches`, `loss_agg_mode`, `mask_truncated`, `micro_batch_tokens`.
        losses: is given the samples of a micro-batch and the weights (N,) of their tokens; each loss ()
            that it yields adds its gradient, before the next is computed, and comes with metrics, which are
            means over the tokens.
        trained: parameters whose gradients are clipped together, by the name of their norm in the log; by
            default the policy's.
        fixed: parameters that never get a step, as the policy's while only its critic learns.
        teaches: whether a sample has a gradient, as one without advantages may not. A sample that has none is
            in the metrics alone: it is read without gradients, before the first optimizer step not at all.
        unmoved: the metrics of a sample without a gradient before the first optimizer step.
    """

    policy: HFPolicy
    args: StepArgs
    losses: Callable[[list[Sample], Tensor], Iterable[Loss]]
    trained: Mapping[str, Sequence[Tensor]] = field(default_factory=dict)
    fixed: Sequence[Tensor] = ()
    teaches: Callable[[Sample], bool] = bool
    unmoved: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.trained = self.trained or {"grad_norm": self.policy.model_parameters()}

    def in_loss(self, sample: Sample) -> NDArray[np.bool_]:
        """(N,) which of a sample's sampled tokens are in the loss."""
        if self.args.mask_truncated:
            return sample.ended
        return np.ones(int(sample.response_mask.sum()), np.bool_)

    def has_gradient(self, sample: Sample) -> bool:
        """Whether a sample moves the weights."""
        return self.teaches(sample) and bool(self.in_loss(sample).any())

    def read(
        self, minibatch: Sequence[Sample], chosen: Sequence[int], processes: ProcessGroup, *, learn: bool
    ) -> tuple[Metrics, int]:
        """Read this process's share of some samples of a minibatch.

        Args:
            minibatch: the whole, in whose loss they have their weight.
            chosen: their numbers.
            processes: share them.
            learn: add the gradients of their losses.

        Returns:
            Metrics, and the number of positions computed.
        """
        policy, args = self.policy, self.args
        counted = [self.in_loss(sample) for sample in minibatch]
        lengths = torch.tensor([int(tokens.sum()) for tokens in counted])
        shared = share([minibatch[i].ids for i in chosen], processes)
        mine = torch.tensor([chosen[i] for i in shared], dtype=torch.long)
        ids = [minibatch[i].ids for i in mine]
        batches = policy.micro_batches(ids, args.micro_batch_tokens)
        seen: Metrics = []
        for batch in progress(batches, len(batches), "micro-batches"):
            part = mine[batch]
            tokens = torch.from_numpy(np.concatenate([counted[i] for i in part]))
            rows = torch.repeat_interleave(part, lengths[part])
            weights = torch.zeros(len(tokens))  # of what is not in the loss
            shares = losses.token_weights(rows, lengths, args.loss_agg_mode, horizon=args.max_new_tokens)
            weights[tokens] = shares.float()
            weights = weights.to(policy.device)
            with torch.set_grad_enabled(learn):
                for loss, metrics in self.losses([minibatch[i] for i in part], weights):
                    if learn:
                        loss.backward()
                    means = {name: float(value.detach()) for name, value in metrics.items()}
                    seen.append((means, len(weights)))
        return seen, policy.computed(ids, batches)


def train_on(
    objective: Objective,
    optimizer: Optimizer,
    samples: Sequence[Sample],
    *,
    processes: ProcessGroup,
    seed: Sequence[int],
) -> dict[str, float]:
    """All passes over what a step learned from, in micro-batches, with the optimizer's steps.

    There are `epochs` passes with `minibatches` optimizer steps each. The loss of a minibatch is one weighted
    sum over its tokens, so that it does not depend on how it is cut into micro-batches or shared among
    processes. An optimizer step without a gradient is not taken, since momentum would move the weights; one
    with a loss or gradient that is not finite is skipped.

    Args:
        objective: what is minimized.
        optimizer: optimizer of its parameters.
        samples: samples of all processes; each process takes its share.
        processes: processes that train together.
        seed: seed of the order of groups.

    Returns:
        Means of the metrics over the tokens of all samples, of gradient norms over the optimizer steps
        taken; `nonfinite` counts the steps that were skipped. Where no sample has a gradient nothing is
        moved, and `skipped` is 1.
    """
    args = objective.args
    if not samples:
        return {"skipped": 1.0}
    if not any(map(objective.has_gradient, samples)):
        norms = dict.fromkeys(objective.trained, 0.0)
        return {**objective.unmoved, **norms, "computed": 0.0, "skipped": 1.0}
    measured: Metrics = []
    nonfinite, moved = 0, False
    for epoch in range(args.epochs):
        rng = np.random.default_rng([*seed, epoch])
        for minibatch in _minibatches(samples, args.minibatches, rng):
            optimizer.zero_grad(set_to_none=True)
            teaches = np.array([objective.has_gradient(sample) for sample in minibatch])
            needed, rest = np.flatnonzero(teaches).tolist(), np.flatnonzero(~teaches).tolist()
            seen, computed = objective.read(minibatch, needed, processes, learn=True)
            if moved:
                more, again = objective.read(minibatch, rest, processes, learn=False)
                seen, computed = seen + more, computed + again
            else:  # the policy is still the one that sampled them, so nothing has to be read
                tokens = sum(int(minibatch[i].response_mask.sum()) for i in rest)
                seen.append((objective.unmoved, tokens / processes.size))
            even = sum(len(sample.ids) for sample in minibatch) / processes.size
            seen.append(({"computed": computed / even}, even))
            for weight in master_weights(objective.fixed):
                weight.grad = None
            if needed:  # AdamW's momentum would move the weights even without a gradient
                finite = all(math.isfinite(value) for numbers, _ in seen for value in numbers.values())
                groups, limit = [*objective.trained.values()], args.max_grad_norm
                norms_now = apply_gradients(optimizer, groups, processes, max_norm=limit, finite=finite)
                if norms_now is None:
                    nonfinite += 1
                    continue
                seen.append((dict(zip(objective.trained, norms_now, strict=True)), 1))
                moved = True
            measured += seen
    return {**_means(measured, processes), "nonfinite": float(nonfinite)}


def _means(measured: Metrics, processes: ProcessGroup) -> dict[str, float]:
    """The mean of each metric over the tokens of all processes."""
    totals, sizes = defaultdict[str, float](float), defaultdict[str, float](float)
    for numbers, size in measured:
        for name, value in numbers.items():
            totals[name] += value * size
            sizes[name] += size
    names = sorted(set(processes.gather(list(totals))))
    sums = processes.sum(*(totals[name] for name in names))
    counted = processes.sum(*(sizes[name] for name in names))
    return {name: total / max(n, 1e-12) for name, total, n in zip(names, sums, counted, strict=True)}


def _minibatches(items: Sequence[Sample], count: int, rng: np.random.Generator) -> Iterator[list[Sample]]:
    """The items in `count` parts of about the same number of groups, in random order."""
    groups = rng.permutation(sorted({sample.group for sample in items}))
    for part in np.array_split(groups, min(count, len(groups))):
        chosen = set(part.tolist())
        yield [sample for sample in items if sample.group in chosen]


def give_advantages(
    episodes: Sequence[Episode], advantages: Sequence[Floats], returns: Sequence[Floats] | None = None
) -> list[Sample]:
    """The samples of episodes, which get their parts of the episodes' advantages and returns (N,).

    The episodes keep their advantages, for files of episodes.
    """
    for number, (episode, values) in enumerate(zip(episodes, advantages, strict=True)):
        episode.advantages = values
        for sample, part in zip(episode.samples, episode.split(values), strict=True):
            sample.advantages = part
        if returns is not None:
            for sample, part in zip(episode.samples, episode.split(returns[number]), strict=True):
                sample.returns = part
    return [sample for episode in episodes for sample in episode.samples]


def policy_loss(
    now: PolicyOutput, samples: Sequence[Sample], weights: Tensor, args: RewardArgs, first: bool = False
) -> Loss:
    """The loss () of a micro-batch by its advantages, and its metrics.

    Args:
        now: the policy's output for the micro-batch, N sampled tokens.
        samples: the micro-batch.
        weights: (N,) weights of the tokens in the loss of the minibatch.
        args: flags of the loss.
        first: compare the policy with itself in this pass: the only one before the optimizer's step.
    """
    sampled = flat_tensor([sample.logprobs[sample.response_mask] for sample in samples], now.logprobs)
    old = now.logprobs.detach() if first else sampled
    advantages = flat_tensor([sample.advantages for sample in samples], now.logprobs)
    lengths = torch.tensor([int(sample.response_mask.sum()) for sample in samples])
    sequences = torch.repeat_interleave(lengths).to(weights.device)
    # What a sequence has outside the loss (`mask_truncated`) has no part in the ratio of the rest.
    sequences = torch.where(weights > 0, sequences, sequences + len(samples))
    clip: dict[str, Any] = {"clip": args.clip[0], "clip_high": args.clip[-1]}
    if args.loss_mode == "cispo":
        of_tokens, clipped = losses.cispo_loss(now.logprobs, old, advantages, **clip)
    else:
        whole = sequences if args.loss_mode == "gspo" else None
        clip |= {"dual_clip": args.dual_clip, "sequences": whole}
        of_tokens, clipped = losses.policy_loss(now.logprobs, old, advantages, **clip)
    if args.importance_cap is not None:
        sampler = sampled if first else flat_tensor([_sampler_logprobs(s) for s in samples], now.logprobs)
        whole = sequences if args.importance_level == "sequence" else None
        bounds: dict[str, Any] = {"cap": args.importance_cap, "floor": args.importance_floor}
        of_tokens = losses.importance_weights(old, sampler, **bounds, sequences=whole) * of_tokens
    loss = (weights * of_tokens).sum()
    metrics = {
        "policy_loss": of_tokens.mean(),
        "clip_fraction": clipped.float().mean(),
        "approx_kl": losses.kl_penalty(old, now.logprobs.detach()).mean(),  # old sampled: KL(old || new)
    }
    if first:
        metrics["kl_sampler"] = (sampled - old).mean()
    if args.kl_coef:
        reference = flat_tensor([sample.ref_logprobs for sample in samples], now.logprobs)
        metrics["kl_ref"] = (now.logprobs - reference).mean()
        if args.kl_in_loss:
            penalty = losses.kl_penalty(now.logprobs, reference, args.kl_estimator)
            metrics["kl_ref"] = penalty.mean()
            loss = loss + args.kl_coef * (weights * penalty).sum()
    if args.entropy_coef and now.entropy is not None:
        loss = loss - args.entropy_coef * (weights * now.entropy).sum()
    return loss, metrics


def _sampler_logprobs(sample: Sample) -> Floats:
    """Nats (N,) of the sampled tokens when they were sampled."""
    if sample.sampler_logprobs is None:
        return sample.logprobs[sample.response_mask]
    return sample.sampler_logprobs


def sampled_entropy(samples: Iterable[Sample]) -> dict[str, float]:
    """The metric `entropy`: the mean of -log p of the sampled tokens, nats, at the temperature they had."""
    nats = [sample.logprobs[sample.response_mask] for sample in samples]
    return {"entropy": -float(np.concatenate(nats).mean())} if nats else {}


def flat_tensor(parts: Sequence[Any], like: Tensor) -> Tensor:
    """Arrays (N_i,) as one tensor (N,), where `like` is."""
    return torch.from_numpy(np.concatenate(parts)).to(like.device, torch.float32)
