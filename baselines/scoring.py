"""What an update compares with: old log-probabilities, a critic's values, a reference's log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from memenvs.baselines.args import RewardArgs
from memenvs.baselines.processes import ProcessGroup, share
from memenvs.core.episode import Floats, Sample
from memenvs.core.progress import progress
from memenvs.models import PolicyOutput
from memenvs.models.hf import HFPolicy


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


def evaluate_in(policy: HFPolicy, samples: Sequence[Sample], *, entropy: bool = False) -> PolicyOutput:
    """Log-probabilities of a micro-batch under the policy as it is now."""
    return policy.forward([s.ids for s in samples], [s.response_mask for s in samples], entropy=entropy)


def values_in(critic: HFPolicy, samples: Sequence[Sample]) -> Tensor:
    """The critic's values (N,) of a micro-batch now."""
    return critic.values([s.ids for s in samples], [s.response_mask for s in samples])
