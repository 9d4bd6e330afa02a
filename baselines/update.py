"""One update of a policy: what it is compared with, the loss of sampled tokens, and the optimizer's steps."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from memenvs.baselines import losses
from memenvs.baselines.flags import RewardArgs, StepArgs
from memenvs.core.batching import lexicographic_order
from memenvs.core.optional import require
from memenvs.models import Ids, PolicyOutput
from memenvs.rollout.records import Episode, Floats, Sample

if TYPE_CHECKING:
    from memenvs.models import HFPolicy

T = TypeVar("T")

MAX_GRAD_NORM = 1.0
"""A gradient of a larger norm is scaled down to this."""


class Experience(NamedTuple):
    """A training sequence, and what its tokens are learned by.

    Attributes:
        sample: the sequence, N tokens of it sampled by the policy.
        group: name of its group; groups are not shared among minibatches.
        advantages: (N,); empty in distillation.
        returns: (N,) targets of the critic; None without one.
    """

    sample: Sample
    group: int
    advantages: Floats = np.zeros(0)
    returns: Floats | None = None


def to_experiences(
    episodes: Sequence[Episode], advantages: Sequence[Floats], returns: Sequence[Floats] | None = None
) -> list[Experience]:
    """The samples of episodes with their parts of the episodes' advantages and returns (N,).

    The episodes keep their advantages, for those who look at them.
    """
    experiences = []
    for number, (episode, values) in enumerate(zip(episodes, advantages, strict=True)):
        episode.advantages = values
        targets: Sequence[Any] = (
            [None] * len(episode.samples) if returns is None else episode.split(returns[number])
        )
        parts = zip(episode.samples, episode.split(values), targets, strict=True)
        experiences += [Experience(sample, episode.group, part, target) for sample, part, target in parts]
    return experiences


def old_logprobs_from(
    policy: HFPolicy, args: RewardArgs, critic: HFPolicy | None = None
) -> Literal["sampling", "scoring", "update"]:
    """Where the log-probabilities come from that an update compares with.

    They come from sampling if the update computes as sampling did. If it rounds differently (another engine,
    or bfloat16) they are the policy's own: from the update's pass, if it has only one, and scored before it
    otherwise. They are also scored before it where that costs nothing, because the critic is the policy
    itself, and where the penalties of rewards need them.
    """
    if args.sampler == "hf" and policy.model.dtype == require("torch", "train").float32:
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
    """Write into the samples what an update compares with, before anything changes.

    That is `values` by a critic and `ref_logprobs` by a reference model, where there are such. Where
    `old_logprobs_from` says so, the policy's own log-probabilities replace the sampled ones, and the metric
    `kl_sampler` is how far these were, in nats. Every process scores its share.
    """
    rescore = old_logprobs_from(policy, args, critic) == "scoring"
    if critic is None and ref_model is None and not rescore:
        return {}
    chosen = share([sample.ids for sample in samples], processes)
    mine, ids = [samples[i] for i in chosen], [samples[i].ids for i in chosen]
    scores: list[dict[str, Floats]] = [{} for _ in mine]
    with require("torch", "train").no_grad():
        for batch in policy.micro_batches(ids, args.micro_batch_tokens):
            part, columns = [mine[i] for i in batch], dict[str, Any]()
            if rescore:
                output = evaluate_in(policy, part)
                columns["logprobs"] = output.logprobs
            if critic is not None:
                shared = rescore and critic is policy
                columns["values"] = output.values if shared else values_in(critic, part)
            if ref_model is not None:
                columns["ref_logprobs"] = evaluate_in(ref_model, part).logprobs
            cuts = np.cumsum([sample.response_mask.sum() for sample in part])[:-1]
            for name, column in columns.items():
                array = column.float().cpu().numpy().astype(np.float64)
                for i, values in zip(batch, np.split(array, cuts), strict=True):
                    scores[i][name] = values
    numbered = list(zip(chosen, scores, strict=True))
    everything = numbered if processes is None else processes.gather(numbered)
    drift: list[Floats] = []
    for i, own in sorted(everything, key=lambda one: one[0]):
        sample = samples[i]
        sample.values, sample.ref_logprobs = own.get("values"), own.get("ref_logprobs")
        if rescore:
            drift.append(sample.logprobs[sample.response_mask] - own["logprobs"])
            sample.logprobs[sample.response_mask] = own["logprobs"]
    return {"kl_sampler": float(np.concatenate(drift).mean())} if drift else {}


def share(sequences: Sequence[Ids], processes: ProcessGroup | None) -> list[int]:
    """Numbers of this process's sequences: neighbours in order of their ids, which share prefixes.

    Every process has about as many tokens.
    """
    order = lexicographic_order(sequences)
    if processes is None or processes.size == 1:
        return order
    ends = np.cumsum([len(sequences[i]) for i in order], dtype=np.int64)
    owners = (ends - 1) * processes.size // max(1, sum(map(len, sequences)))
    return [i for i, owner in zip(order, owners, strict=True) if owner == processes.rank]


@dataclass
class Updates:
    """All passes over what a step learned from, in micro-batches, with the optimizer's steps.

        updates = Updates(policy, optimizer, items, args, processes=processes, seed=(seed, step))
        for part, weights in updates:  # the items of a micro-batch, and the weights (N,) of their tokens
            updates.backward((weights * losses).sum(), {"loss": losses.mean()})
        metrics = updates.metrics()

    There are `epochs` passes with `minibatches` optimizer steps each. The loss of a minibatch is one weighted
    sum over its tokens, so that it does not depend on how it is cut into micro-batches or shared among
    processes. A step with a loss or gradient that is not finite is skipped.

    Args:
        policy: to be trained.
        optimizer: of its parameters.
        items: of all processes; each process takes its share.
        args: `epochs`, `minibatches`, `loss_agg_mode`, `micro_batch_tokens`.
        processes: that train together.
        seed: of the order of groups.
        trained: parameters whose gradients are clipped together, by the name of their norm in the log; by
            default the policy's.
        fixed: parameters that never get a step.
        counts: whether an item has a gradient; one without is not computed.

    Attributes:
        nonfinite: steps that were skipped.
    """

    policy: HFPolicy
    optimizer: Any
    items: Sequence[Experience]
    args: StepArgs
    _: KW_ONLY
    processes: ProcessGroup
    seed: Sequence[int]
    trained: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    fixed: Iterable[Any] = ()
    counts: Callable[[Experience], bool] = bool
    nonfinite: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.trained = self.trained or {"grad_norm": self.policy.model_parameters()}
        # Of metrics: their sums, and what they are means over
        self._totals, self._sizes = defaultdict[str, float](float), defaultdict[str, float](float)
        self._seen: list[tuple[dict[str, float], float]] = []  # this minibatch's means, and tokens
        self._tokens = 0  # sampled tokens of this micro-batch

    def __iter__(self) -> Iterator[tuple[list[Experience], Any]]:
        torch, policy, args = require("torch", "train"), self.policy, self.args
        for epoch in range(args.epochs if self.items else 0):
            rng = np.random.default_rng([*self.seed, epoch])
            for minibatch in _minibatches(self.items, args.minibatches, rng):
                self.optimizer.zero_grad(set_to_none=True)
                self._seen = []
                lengths = torch.tensor([int(one.sample.response_mask.sum()) for one in minibatch])
                # One is computed in any case, so that the optimizer has gradients to step by.
                needed = [i for i, one in enumerate(minibatch) if self.counts(one)] or [0]
                chosen = share([minibatch[i].sample.ids for i in needed], self.processes)
                mine = torch.tensor([needed[i] for i in chosen], dtype=torch.long)
                ids = [minibatch[i].sample.ids for i in mine]
                batches = policy.micro_batches(ids, args.micro_batch_tokens)
                for batch in batches:
                    part = mine[batch]
                    weights = losses.token_weights(
                        torch.repeat_interleave(part, lengths[part]),
                        lengths,
                        args.loss_agg_mode,
                        horizon=args.max_new_tokens,
                    )
                    self._tokens = len(weights)
                    yield [minibatch[i] for i in part], weights.to(policy.device, torch.float32)
                even = sum(len(one.sample.ids) for one in minibatch) / self.processes.size
                self._seen.append(({"computed": policy.computed(ids, batches) / even}, even))
                self._step()

    def backward(self, loss: Any, metrics: Mapping[str, Any]) -> None:
        """Add the gradient of a loss () of this micro-batch; its metrics are means over its tokens."""
        loss.backward()
        self._seen.append(({name: float(value.detach()) for name, value in metrics.items()}, self._tokens))

    def metrics(self) -> dict[str, float]:
        """Means of the metrics over tokens, of gradient norms over optimizer steps taken.

        `nonfinite` counts the steps that were not. Without an item nothing was done, and `skipped` is 1.
        """
        if not self.items:
            return {"skipped": 1.0}
        names = sorted(set(self.processes.gather(list(self._totals))))
        sums = self.processes.sum(*(self._totals[name] for name in names))
        counts = self.processes.sum(*(self._sizes[name] for name in names))
        means = {name: total / max(n, 1e-12) for name, total, n in zip(names, sums, counts, strict=True)}
        return {**means, "nonfinite": float(self.nonfinite)}

    def _step(self) -> None:
        for weight in master_weights(self.fixed):
            weight.grad = None
        finite = all(math.isfinite(value) for numbers, _ in self._seen for value in numbers.values())
        groups = list(self.trained.values())
        norms = apply_gradients(self.optimizer, groups, self.processes, finite=finite)
        if norms is None:
            self.nonfinite += 1
            return
        for numbers, weight in [*self._seen, (dict(zip(self.trained, norms, strict=True)), 1)]:
            for name, value in numbers.items():
                self._totals[name] += value * weight
                self._sizes[name] += weight


def policy_loss(
    now: PolicyOutput, experiences: Sequence[Experience], weights: Any, args: RewardArgs, own: bool = False
) -> tuple[Any, dict[str, Any]]:
    """The loss () of a micro-batch by its advantages, and its metrics.

    Args:
        now: the policy's output for the micro-batch, N sampled tokens.
        experiences: of the micro-batch.
        weights: (N,) of the tokens in the loss of the minibatch.
        args: of the loss.
        own: compare the policy with itself in this pass: the only one before the optimizer's step.
    """
    samples = [one.sample for one in experiences]
    sampled = flat_tensor([sample.logprobs[sample.response_mask] for sample in samples], now.logprobs)
    old = now.logprobs.detach() if own else sampled
    advantages = flat_tensor([one.advantages for one in experiences], now.logprobs)
    clipped = losses.policy_loss(
        now.logprobs, old, advantages, clip=args.clip, clip_high=args.clip_high, dual_clip=args.dual_clip
    )
    loss = (weights * clipped.losses).sum()
    metrics = {
        "policy_loss": clipped.losses.mean(),
        "clip_fraction": clipped.clipped.float().mean(),
        "entropy": -old.mean(),  # of what was sampled, at its temperature
        "approx_kl": losses.kl_penalty(old, now.logprobs.detach()).mean(),  # old sampled: KL(old || new)
    }
    if own:
        metrics["kl_sampler"] = (sampled - old).mean()
    if args.kl_coef:
        reference = flat_tensor([sample.ref_logprobs for sample in samples], now.logprobs)
        penalty = losses.kl_penalty(now.logprobs, reference, args.kl_estimator)
        metrics["kl_ref"] = penalty.mean()
        if args.kl_in_loss:
            loss = loss + args.kl_coef * (weights * penalty).sum()
    if args.entropy_coef:
        loss = loss - args.entropy_coef * (weights * now.entropy).sum()
    return loss, metrics


def apply_gradients(
    optimizer: Any,
    groups: Sequence[Sequence[Any]],
    processes: ProcessGroup,
    *,
    finite: bool = True,
) -> list[float] | None:
    """One optimizer step by the gradients of all processes.

    Args:
        optimizer: of the parameters.
        groups: of parameters in training; each group's gradient is scaled down to norm `MAX_GRAD_NORM`.
        processes: that train together.
        finite: whether the loss of this process was finite.

    Returns:
        The norm of each group before it was clipped. None where a norm, or the loss of a process, is not
        finite: then nothing is changed, neither weights nor the optimizer's state.
    """
    clip = require("torch", "train").nn.utils.clip_grad_norm_
    masters = [master_weights(parameters) for parameters in groups]
    for weights in masters:
        processes.sum_gradients(weights)
    norms = [float(clip(weights, MAX_GRAD_NORM)) for weights in masters]
    # The norms are the same in all processes.
    if processes.any(not finite) or not all(map(math.isfinite, norms)):
        optimizer.zero_grad(set_to_none=True)
        return None
    optimizer.step()
    return norms


def make_optimizer(groups: Sequence[dict[str, Any]], **settings: Any) -> Any:
    """AdamW over float32 weights.

    Of a parameter in bfloat16 it steps a float32 copy, its master weight (Micikevicius et al., 2018, section
    3.1): a step below the rounding of bfloat16 is not lost. A gradient is added to the master's in float32 as
    soon as a backward pass has made it, and after each step the master is rounded into the parameter. Where
    a parameter has been set since to another value, its master takes that.

    Args:
        groups: of parameters, as for `torch.optim.AdamW`, each with settings of its own.
        settings: of all groups.
    """
    masters = [{**group, "params": [_add_master(weight) for weight in group["params"]]} for group in groups]
    optimizer = require("torch", "train").optim.AdamW(masters, **settings)
    optimizer.register_step_pre_hook(lambda *_: _take_changes(optimizer))
    optimizer.register_step_post_hook(lambda *_: _round_masters(optimizer))
    return optimizer


def master_weights(parameters: Iterable[Any]) -> list[Any]:
    """What `make_optimizer` steps of these parameters: their master weights, or in float32 themselves."""
    return [getattr(weight, "master", weight) for weight in parameters]


def _add_master(weight: Any) -> Any:
    torch = require("torch", "train")
    if weight.dtype == torch.float32:
        return weight
    master = weight.detach().float().requires_grad_()
    weight.master, master.rounded = master, weight

    def move_gradient(weight: Any) -> None:
        gradient, weight.grad = weight.grad, None
        master.grad = gradient.float() if master.grad is None else master.grad.add_(gradient)

    weight.register_post_accumulate_grad_hook(move_gradient)
    return master


def _take_changes(optimizer: Any) -> None:
    torch = require("torch", "train")
    with torch.no_grad():
        for master in optimizer_masters(optimizer).values():
            own = master.to(master.rounded.dtype)
            if not torch.equal(own, master.rounded):
                master.copy_(torch.where(own == master.rounded, master, master.rounded.float()))


def _round_masters(optimizer: Any) -> None:
    with require("torch", "train").no_grad():
        for master in optimizer_masters(optimizer).values():
            master.rounded.copy_(master)


def optimizer_masters(optimizer: Any) -> dict[int, Any]:
    """The master weights that an optimizer steps, by their places among all that it steps."""
    stepped = [weight for group in optimizer.param_groups for weight in group["params"]]
    return {i: weight for i, weight in enumerate(stepped) if hasattr(weight, "rounded")}


def evaluate_in(policy: HFPolicy, samples: Sequence[Sample], *, entropy: bool = False) -> PolicyOutput:
    """Log-probabilities of a micro-batch under the policy as it is now."""
    return policy.forward([s.ids for s in samples], [s.response_mask for s in samples], entropy=entropy)


def values_in(critic: HFPolicy, samples: Sequence[Sample]) -> Any:
    """The critic's values (N,) of a micro-batch now."""
    return critic.values([s.ids for s in samples], [s.response_mask for s in samples])


class ProcessGroup:
    """The processes that `accelerate launch` or `torchrun` started, by the variables that both set.

    Every process holds the whole model. Rollouts are shared by groups and updates by samples; gradients are
    summed. No random number depends on the rank: a run gives the same curve on any number of processes.

    Attributes:
        rank: number of this process.
        size: number of processes.
        device: of torch, this process's own.

    Args:
        device: of torch; None: a GPU if there is one.
    """

    def __init__(self, device: str | None = None) -> None:
        torch = require("torch", "train")
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        own = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
        self.device = device or own
        cuda = self.device.startswith("cuda")
        if cuda and self.size > 1:
            torch.cuda.set_device(self.device)
        if self.size > 1 and not torch.distributed.is_initialized():
            # Imported after the group it would keep it, as a default argument, beyond `close`: its threads
            # would live on at exit, where they abort the process now and then.
            require("torch.distributed.nn", "train")
            # Objects are gathered through gloo: they never need a GPU.
            torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")

    @property
    def is_main(self) -> bool:
        """Whether this process writes logs and checkpoints."""
        return self.rank == 0

    def shard(self, items: Sequence[T]) -> list[T]:
        """This process's share of the items."""
        return list(items[self.rank :: self.size])

    def gather(self, items: Sequence[T]) -> list[T]:
        """The items of all processes, in the order that `shard` had them from."""
        if self.size == 1:
            return list(items)
        parts: list[list[T]] = [[] for _ in range(self.size)]
        require("torch.distributed", "train").all_gather_object(parts, list(items))
        longest = max(map(len, parts))
        return [part[i] for i in range(longest) for part in parts if i < len(part)]

    def sum(self, *numbers: float) -> list[float]:
        """The sums of numbers over all processes."""
        if self.size == 1:
            return list(numbers)
        torch = require("torch", "train")
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return [float(value) for value in total]

    def sum_gradients(self, parameters: Iterable[Any]) -> None:
        """Replace each gradient by its sum over all processes."""
        if self.size == 1:
            return
        torch = require("torch", "train")
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
            require("torch.distributed", "train").destroy_process_group()


def _minibatches(
    items: Sequence[Experience], count: int, rng: np.random.Generator
) -> Iterator[list[Experience]]:
    """Items in `count` parts of about as many groups each, in random order."""
    groups = rng.permutation(sorted({one.group for one in items}))
    for part in np.array_split(groups, min(count, len(groups))):
        chosen = set(part.tolist())
        yield [one for one in items if one.group in chosen]


def flat_tensor(parts: Sequence[Any], like: Any) -> Any:
    """Arrays (N_i,) as one tensor (N,), where `like` is."""
    torch = require("torch", "train")
    return torch.from_numpy(np.concatenate(parts)).to(like.device, torch.float32)
