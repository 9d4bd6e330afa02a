"""One update of a policy: scores before it, the loss of sampled tokens, and the optimizer's steps."""

from __future__ import annotations

import functools
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import AdamW, Optimizer

from memenvs.baselines import losses
from memenvs.baselines.flags import RewardArgs, StepArgs
from memenvs.core.batching import lexicographic_order
from memenvs.core.episode import Episode, Floats, Sample
from memenvs.core.progress import progress
from memenvs.models import Ids, PolicyOutput
from memenvs.models.hf import HFPolicy
from memenvs.models.loading import own_device

T = TypeVar("T")

Loss = tuple[Tensor, dict[str, Tensor]]
"""The loss () of a micro-batch, and metrics, which are means over its tokens."""
MASTER = ".master"
"""After a parameter's number: the name of its master weight in a checkpoint."""


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


def old_logprobs_from(
    policy: HFPolicy, args: RewardArgs, critic: HFPolicy | None = None
) -> Literal["sampling", "scoring", "update"]:
    """Where the old log-probabilities of an update come from.

    They come from sampling if the update computes as sampling did. If it rounds differently (vLLM, or
    bfloat16), they are the policy's own: from the update's pass if it has only one, otherwise scored before
    it. They are also scored before it if the critic is the policy itself, which costs nothing, and if the
    penalties of rewards need them.
    """
    if args.vllm is None and policy.model.dtype == torch.float32:
        return "sampling"
    needed = critic is policy or (args.kl_coef and not args.kl_in_loss)
    return "scoring" if needed or args.epochs > 1 or args.minibatches > 1 else "update"


def score(
    policy: HFPolicy,
    samples: Sequence[Sample],
    args: RewardArgs,
    *,
    processes: ProcessGroup | None = None,
    critic: HFPolicy | None = None,
    ref_model: HFPolicy | None = None,
) -> dict[str, float]:
    """Write into the samples what an update compares with: a critic's `values`, a reference's `ref_logprobs`.

    If `old_logprobs_from` is `"scoring"`, the policy's own log-probabilities replace the sampled ones, and
    the metric `kl_sampler` is their distance in nats. Every process scores its share.
    """
    rescore = old_logprobs_from(policy, args, critic) == "scoring"
    if critic is None and ref_model is None and not rescore:
        return {}
    chosen = share([sample.ids for sample in samples], processes)
    scored: list[tuple[int, dict[str, Floats]]] = []
    with torch.no_grad():
        batches = policy.micro_batches([samples[i].ids for i in chosen], args.micro_batch_tokens)
        for batch in progress(batches, len(batches), "micro-batches"):
            numbers = [chosen[k] for k in batch]
            part, columns = [samples[i] for i in numbers], dict[str, Any]()
            if rescore:
                output = evaluate_in(policy, part)
                columns["logprobs"] = output.logprobs
            if critic is not None:
                shared = rescore and critic is policy
                columns["values"] = output.values if shared else values_in(critic, part)
            if ref_model is not None:
                columns["ref_logprobs"] = evaluate_in(ref_model, part).logprobs
            cuts = np.cumsum([sample.response_mask.sum() for sample in part])[:-1]
            parts = {
                name: np.split(column.float().cpu().numpy().astype(np.float64), cuts)
                for name, column in columns.items()
            }
            scored += [(i, {name: part[k] for name, part in parts.items()}) for k, i in enumerate(numbers)]
    everything = scored if processes is None else processes.gather(scored)
    drift: list[Floats] = []
    for i, numbers_of in sorted(everything, key=lambda pair: pair[0]):
        sample = samples[i]
        sample.values, sample.ref_logprobs = numbers_of.get("values"), numbers_of.get("ref_logprobs")
        if rescore:
            sample.sampler_logprobs = sample.logprobs[sample.response_mask]
            drift.append(sample.sampler_logprobs - numbers_of["logprobs"])
            sample.logprobs[sample.response_mask] = numbers_of["logprobs"]
    return {"kl_sampler": float(np.concatenate(drift).mean())} if drift else {}


def share(sequences: Sequence[Ids], processes: ProcessGroup | None) -> list[int]:
    """The indices of this process's sequences: neighbours in the order of their ids, which share prefixes.

    All processes have about the same number of tokens.
    """
    order = lexicographic_order(sequences)
    if processes is None or processes.size == 1:
        return order
    ends = np.cumsum([len(sequences[i]) for i in order], dtype=np.int64)
    owners = (ends - 1) * processes.size // max(1, sum(map(len, sequences)))
    return [i for i, owner in zip(order, owners, strict=True) if owner == processes.rank]


def train_on(
    policy: HFPolicy,
    optimizer: Optimizer,
    samples: Sequence[Sample],
    args: StepArgs,
    losses_of: Callable[[list[Sample], Tensor], Iterable[Loss]],
    *,
    processes: ProcessGroup,
    seed: Sequence[int],
    trained: Mapping[str, Sequence[Tensor]] | None = None,
    fixed: Iterable[Tensor] = (),
    counts: Callable[[Sample], bool] = bool,
    unmoved: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """All passes over what a step learned from, in micro-batches, with the optimizer's steps.

    There are `epochs` passes with `minibatches` optimizer steps each. The loss of a minibatch is one weighted
    sum over its tokens, so that it does not depend on how it is cut into micro-batches or shared among
    processes. An optimizer step without a gradient is not taken, since momentum would move the weights; one
    with a loss or gradient that is not finite is skipped.

    Args:
        policy: to be trained.
        optimizer: optimizer of its parameters.
        samples: samples of all processes; each process takes its share.
        args: `epochs`, `minibatches`, `loss_agg_mode`, `mask_truncated`, `micro_batch_tokens`.
        losses_of: is given the samples of a micro-batch and the weights (N,) of their tokens; each loss
            () that it yields adds its gradient, before the next is computed, and comes with metrics, which
            are means over the tokens.
        processes: processes that train together.
        seed: seed of the order of groups.
        trained: parameters whose gradients are clipped together, by the name of their norm in the log; by
            default the policy's.
        fixed: parameters that never get a step.
        counts: whether a sample has a gradient. One without is in the metrics alone: it is read without
            gradients, and before the first optimizer step not at all.
        unmoved: the metrics of a sample without a gradient before the first optimizer step.

    Returns:
        Means of the metrics over the tokens of all samples, of gradient norms over the optimizer steps
        taken; `nonfinite` counts the steps that were skipped. Where no sample has a gradient nothing is
        moved, and `skipped` is 1.
    """
    if not samples:
        return {"skipped": 1.0}
    if not any(counts(sample) and _in_loss(sample, args).any() for sample in samples):
        norms = dict.fromkeys(trained or ["grad_norm"], 0.0)
        return {**(unmoved or {}), **norms, "computed": 0.0, "skipped": 1.0}
    trained = trained or {"grad_norm": policy.model_parameters()}
    totals, sizes = defaultdict[str, float](float), defaultdict[str, float](float)
    nonfinite, moved = 0, False
    for epoch in range(args.epochs):
        rng = np.random.default_rng([*seed, epoch])
        for minibatch in _minibatches(samples, args.minibatches, rng):
            optimizer.zero_grad(set_to_none=True)
            teaches = [counts(sample) and bool(_in_loss(sample, args).any()) for sample in minibatch]
            needed, rest = np.flatnonzero(teaches).tolist(), np.flatnonzero(np.logical_not(teaches)).tolist()
            read = functools.partial(_read, policy, minibatch, args, losses_of, processes)
            seen, computed = read(needed, learn=True)
            if moved:
                more, again = read(rest, learn=False)
                seen, computed = seen + more, computed + again
            else:
                tokens = sum(int(minibatch[i].response_mask.sum()) for i in rest)
                seen.append((unmoved or {}, tokens / processes.size))
            even = sum(len(sample.ids) for sample in minibatch) / processes.size
            seen.append(({"computed": computed / even}, even))
            for weight in master_weights(fixed):
                weight.grad = None
            if needed:
                finite = all(math.isfinite(value) for numbers, _ in seen for value in numbers.values())
                taken = apply_gradients(
                    optimizer, [*trained.values()], processes, max_norm=args.max_grad_norm, finite=finite
                )
                if taken is None:
                    nonfinite += 1
                    continue
                seen.append((dict(zip(trained, taken, strict=True)), 1))
                moved = True
            for numbers, size in seen:
                for name, value in numbers.items():
                    totals[name] += value * size
                    sizes[name] += size
    names = sorted(set(processes.gather(list(totals))))
    sums = processes.sum(*(totals[name] for name in names))
    counted = processes.sum(*(sizes[name] for name in names))
    means = {name: total / max(n, 1e-12) for name, total, n in zip(names, sums, counted, strict=True)}
    return {**means, "nonfinite": float(nonfinite)}


def _read(
    policy: HFPolicy,
    minibatch: Sequence[Sample],
    args: StepArgs,
    losses_of: Callable[[list[Sample], Tensor], Iterable[Loss]],
    processes: ProcessGroup,
    chosen: Sequence[int],
    *,
    learn: bool,
) -> tuple[list[tuple[Mapping[str, float], float]], int]:
    """This process's share of some samples of a minibatch, in micro-batches, for `train_on`.

    Args:
        policy: reads them.
        minibatch: the whole, in whose loss they have their weight.
        args: the flags that `train_on` reads.
        losses_of: yields the losses of a micro-batch.
        processes: share them.
        chosen: their numbers.
        learn: add the gradients of their losses.

    Returns:
        Metrics, each with the number of tokens that they are means over, and the positions computed.
    """
    counted = [_in_loss(sample, args) for sample in minibatch]
    lengths = torch.tensor([int(tokens.sum()) for tokens in counted])
    shared = share([minibatch[i].ids for i in chosen], processes)
    mine = torch.tensor([chosen[i] for i in shared], dtype=torch.long)
    ids = [minibatch[i].ids for i in mine]
    batches = policy.micro_batches(ids, args.micro_batch_tokens)
    seen = list[tuple[Mapping[str, float], float]]()
    for batch in progress(batches, len(batches), "micro-batches"):
        part = mine[batch]
        tokens = torch.from_numpy(np.concatenate([counted[i] for i in part]))
        rows = torch.repeat_interleave(part, lengths[part])
        weights = torch.zeros(len(tokens))  # of what is not in the loss
        weights[tokens] = losses.token_weights(rows, lengths, args.loss_agg_mode, horizon=args.max_new_tokens)
        weights = weights.to(policy.device)
        with torch.set_grad_enabled(learn):
            for loss, metrics in losses_of([minibatch[i] for i in part], weights):
                if learn:
                    loss.backward()
                seen.append(({name: float(value.detach()) for name, value in metrics.items()}, len(weights)))
    return seen, policy.computed(ids, batches)


def _in_loss(sample: Sample, args: StepArgs) -> NDArray[np.bool_]:
    """(N,) which of a sample's sampled tokens are in the loss."""
    return sample.ended if args.mask_truncated else np.ones(int(sample.response_mask.sum()), np.bool_)


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
    of_tokens, clipped = losses.policy_loss(
        now.logprobs, old, advantages, clip=args.clip[0], clip_high=args.clip[-1], dual_clip=args.dual_clip
    )
    if args.importance_cap is not None:
        sampler = sampled if first else flat_tensor([_sampler_logprobs(s) for s in samples], now.logprobs)
        of_tokens = losses.importance_weights(old, sampler, args.importance_cap) * of_tokens
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


def evaluate_in(policy: HFPolicy, samples: Sequence[Sample], *, entropy: bool = False) -> PolicyOutput:
    """Log-probabilities of a micro-batch under the policy as it is now."""
    return policy.forward([s.ids for s in samples], [s.response_mask for s in samples], entropy=entropy)


def values_in(critic: HFPolicy, samples: Sequence[Sample]) -> Tensor:
    """The critic's values (N,) of a micro-batch now."""
    return critic.values([s.ids for s in samples], [s.response_mask for s in samples])


class ProcessGroup:
    """The processes that `accelerate launch` or `torchrun` started, from the variables that both set.

    Every process holds the whole model. Rollouts are shared by groups and updates by samples; gradients are
    summed. No random number depends on the rank: a run gives the same curve on any number of processes.

    Attributes:
        rank: number of this process.
        size: number of processes.
        is_main: whether this process writes logs and checkpoints.
        device: this process's device of torch.

    Args:
        device: device of torch; None: `own_device()`.
    """

    def __init__(self, device: str | None = None) -> None:
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.is_main = self.rank == 0
        self.device = device or own_device()
        cuda = self.device.startswith("cuda")
        if cuda and self.size > 1:
            torch.cuda.set_device(self.device)
        if self.size > 1 and not torch.distributed.is_initialized():
            # Imported after the group it would keep it, as a default argument, beyond `close`: its threads
            # would live on at exit, where they abort the process now and then.
            from torch.distributed import nn  # noqa: F401

            # Objects are gathered through gloo: they never need a GPU.
            torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")

    def shard(self, items: Sequence[T]) -> list[T]:
        """This process's share of the items."""
        return list(items[self.rank :: self.size])

    def gather(self, items: Sequence[T]) -> list[T]:
        """The items of all processes, in the order that they had before `shard`."""
        if self.size == 1:
            return list(items)
        parts: list[list[T]] = [[] for _ in range(self.size)]
        torch.distributed.all_gather_object(parts, list(items))
        longest = max(map(len, parts))
        return [part[i] for i in range(longest) for part in parts if i < len(part)]

    def sum(self, *numbers: float) -> list[float]:
        """The sums of numbers over all processes."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return [float(value) for value in total]

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace each gradient by its sum over all processes."""
        if self.size == 1:
            return
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                torch.distributed.all_reduce(parameter.grad)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return self.sum(float(flag))[0] > 0

    def close(self) -> None:
        """Leave the group."""
        if self.size > 1:
            torch.distributed.destroy_process_group()


def _minibatches(items: Sequence[Sample], count: int, rng: np.random.Generator) -> Iterator[list[Sample]]:
    """The items in `count` parts of about the same number of groups, in random order."""
    groups = rng.permutation(sorted({sample.group for sample in items}))
    for part in np.array_split(groups, min(count, len(groups))):
        chosen = set(part.tolist())
        yield [sample for sample in items if sample.group in chosen]


def flat_tensor(parts: Sequence[Any], like: Tensor) -> Tensor:
    """Arrays (N_i,) as one tensor (N,), where `like` is."""
    return torch.from_numpy(np.concatenate(parts)).to(like.device, torch.float32)
