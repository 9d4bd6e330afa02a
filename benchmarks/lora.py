"""A LoRA adapter on a real model: passes in the model's dtype and in float32, sampling with merged weights.

python -m benchmarks.lora [--model smollm2] [--rank 8] [--rows 16] [--tokens 24]
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from benchmarks.harness import fastest, run
from memenvs.models import HFPolicy, LoRA
from memenvs.models.lora import MergedModel, twin, without_adapter

TEXT = "Ada Lovelace wrote the first program for the engine. " * 12


class UnmergedPolicy(HFPolicy):
    """Samples with the adapter unmerged, as on a GPU."""

    _merged = None  # type: ignore[assignment]


def passes(model: Any, ids: Any) -> tuple[float, float]:
    """Seconds of a forward pass without gradients, and of one with a backward pass; 0 without parameters."""

    def learn() -> None:
        model.base_model(input_ids=ids, use_cache=False).last_hidden_state.float().square().mean().backward()

    with torch.no_grad():
        read = fastest(lambda: model.base_model(input_ids=ids, use_cache=False))
    return read, fastest(learn) if any(one.requires_grad for one in model.parameters()) else 0.0


def difference(policy: HFPolicy, rows: int, tokens: int) -> str:
    """Sampled log-probabilities minus those of the update's pass, in nats."""
    prompts = [policy.encode(f"{TEXT}{row}") for row in range(rows)]
    replies = policy.sample(prompts, [np.random.default_rng(row) for row in range(rows)], tokens)
    whole = [np.concatenate([prompt, reply.ids]) for prompt, reply in zip(prompts, replies, strict=True)]
    masks = [np.arange(len(ids)) >= len(prompt) for ids, prompt in zip(whole, prompts, strict=True)]
    with torch.no_grad():
        now = policy.forward(whole, masks).logprobs.numpy()
    apart = np.concatenate([reply.logprobs for reply in replies]) - now
    return (
        f"mean {apart.mean():+.4f}, mean size {np.abs(apart).mean():.4f}, largest {np.abs(apart).max():.2f}"
    )


def main(model: str = "smollm2", rank: int = 8, rows: int = 16, tokens: int = 24) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    policy = HFPolicy(model, chat=False, lora=LoRA(rank))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in policy.model.named_parameters():
            if ".lora_B." in name:
                weight.copy_(torch.randn(weight.shape, generator=generator) * 3e-3)
    count = sum(weight.numel() for weight in policy.model_parameters())
    print(f"{policy.model.dtype}, adapter of {count:,} parameters")

    ids = torch.randint(0, policy.model.config.vocab_size, (2, 256), generator=generator)
    plain = without_adapter(policy.model)
    whole = copy.deepcopy(plain).requires_grad_()
    exact = twin(policy.model)
    for name, weight in exact.named_parameters():
        if ".lora_" in name:
            weight.data = weight.data.float()
    for name, network in {
        "model alone": plain,
        "all weights learn": whole,
        "adapter in the model's dtype": policy.model,
        "adapter in float32": exact,
    }.items():
        read, learn = passes(network, ids)
        print(f"{name}: forward {read:.2f} s, forward and backward {learn:.2f} s of 512 tokens", flush=True)
    del whole, exact

    print(f"sums of weights and adapter: {fastest(lambda: MergedModel(policy.model), 1):.2f} s")
    unmerged = UnmergedPolicy(policy.model, policy.tokenizer, chat=False)
    for name, one in {"sums": policy, "adapter": unmerged}.items():
        prompts = [one.encode(f"{TEXT}{row}") for row in range(rows)]

        def sample(one: HFPolicy = one, prompts: Any = prompts) -> None:
            one.sample(prompts, [np.random.default_rng(row) for row in range(rows)], tokens)

        print(f"sampling by the {name}: {fastest(sample, 2):.2f} s; {difference(one, rows, tokens)}")


if __name__ == "__main__":
    run(main)
