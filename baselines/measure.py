"""Samples come in; what models say of them before an update goes out, in the run's precision."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memenvs.baselines import losses
from memenvs.baselines.args import RunArgs, UpdateArgs
from memenvs.baselines.distributed import World
from memenvs.core.optional import require
from memenvs.models.batching import micro_batches
from memenvs.models.policy import Evaluation
from memenvs.rollout.records import Episode, Floats, Sample

if TYPE_CHECKING:
    from memenvs.models.hf import HFPolicy


def precision(policy: HFPolicy, args: RunArgs) -> AbstractContextManager[Any]:
    """Where the run's precision holds."""
    if not args.bf16:
        return nullcontext()
    torch = require("torch", "train")
    kind: AbstractContextManager[Any] = torch.autocast(policy.device.type, torch.bfloat16)
    return kind


def evaluate_in(
    policy: HFPolicy, samples: Sequence[Sample], args: RunArgs, *, entropy: bool = False
) -> Evaluation:
    """What the policy says now of a micro-batch, in the run's precision."""
    with precision(policy, args):
        return policy.evaluate([s.ids for s in samples], [s.response_mask for s in samples], entropy=entropy)


def values_in(critic: HFPolicy, samples: Sequence[Sample], args: RunArgs) -> Any:
    """The critic's values (N,) of a micro-batch now, in the run's precision."""
    with precision(critic, args):
        return critic.values([s.ids for s in samples], [s.response_mask for s in samples])


class Measured(NamedTuple):
    """What a model says of the written tokens (N,) of a sample before an update; None where not asked."""

    logprobs: Floats | None
    values: Floats | None
    ref_logprobs: Floats | None


def measure(
    policy: HFPolicy,
    samples: Sequence[Sample],
    args: RunArgs,
    *,
    world: World | None = None,
    critic: HFPolicy | None = None,
    reference: HFPolicy | None = None,
) -> dict[str, float]:
    """Write into the samples what an update compares with, before anything changes.

    That is the critic's values and a reference model's log-probabilities, where there are such. Where the
    update computes otherwise than the sampling did (another engine, or bfloat16), the policy's own
    log-probabilities take the place of the sampled ones, and `kl_sampler` says how far these were. Every
    process measures its share.
    """
    anew = args.sampler != "hf" or args.bf16
    if critic is None and reference is None and not anew:
        return {}
    mine = list(samples) if world is None else world.share(samples)
    found: list[Measured] = [Measured(None, None, None)] * len(mine)
    with require("torch", "train").no_grad():
        for batch in micro_batches([len(sample.ids) for sample in mine], args.micro_batch_tokens):
            told = _measure(policy if anew else None, [mine[i] for i in batch], args, critic, reference)
            for i, one in zip(batch, told, strict=True):
                found[i] = one
    drift: list[Floats] = []
    for sample, one in zip(samples, found if world is None else world.gather(found), strict=True):
        sample.values, sample.ref_logprobs = one.values, one.ref_logprobs
        if one.logprobs is not None:
            drift.append(sample.logprobs[sample.response_mask] - one.logprobs)
            sample.logprobs[sample.response_mask] = one.logprobs
    return {"kl_sampler": float(np.concatenate(drift).mean())} if drift else {}


def kl_penalties(episodes: Sequence[Episode], args: UpdateArgs) -> list[Floats]:
    """What the divergence from the reference model costs each written token (N,): kl_coef times nats.

    It is that of the policy that sampled, for rewards as in RLHF (Ouyang et al., 2022, eq. 2).

    Args:
        episodes: measured, with a reference model.
        args: `kl_coef` and `kl_kind`.

    Raises:
        ValueError: an episode has not been measured.
    """
    torch = require("torch", "train")
    found = []
    for episode in episodes:
        if any(sample.ref_logprobs is None for sample in episode.samples):
            raise ValueError("an episode has not been measured; call measure() with a reference before")
        old = np.concatenate([sample.logprobs[sample.response_mask] for sample in episode.samples])
        reference = np.concatenate([sample.ref_logprobs for sample in episode.samples])
        nats = losses.kl_penalty(torch.from_numpy(old), torch.from_numpy(reference), args.kl_kind)
        found.append(args.kl_coef * nats.numpy())
    return found


def _measure(
    policy: HFPolicy | None,
    samples: Sequence[Sample],
    args: RunArgs,
    critic: HFPolicy | None,
    reference: HFPolicy | None,
) -> list[Measured]:
    """What those models that are given say of the samples of one micro-batch."""
    cuts = np.cumsum([sample.response_mask.sum() for sample in samples])[:-1]
    nothing: list[Any] = [None] * len(samples)
    own = evaluate_in(policy, samples, args) if policy else None
    logprobs = np.split(_array(own.logprobs), cuts) if own else nothing
    values = nothing
    if critic:
        shared = own is not None and critic is policy
        values = np.split(_array(own.values if own and shared else values_in(critic, samples, args)), cuts)
    pulled = np.split(_array(evaluate_in(reference, samples, args).logprobs), cuts) if reference else nothing
    return [Measured(*parts) for parts in zip(logprobs, values, pulled, strict=True)]


def _array(values: Any) -> Floats:
    array: Floats = values.float().cpu().numpy().astype(np.float64)
    return array
