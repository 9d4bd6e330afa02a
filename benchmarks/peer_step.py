"""One GRPO step of SmolLM2 with our policy or TRL's: processor seconds and peak memory.

python -m benchmarks.peer_step ours [--dtype bfloat16]
.venv-trainers/bin/python -m benchmarks.peer_step trl [--dtype bfloat16]

In bfloat16 ours keeps float32 master weights beside the model's; TRL's default (`autocast`) has float32
weights alone. With `--dtype bfloat16` TRL has bfloat16 weights alone, and the smallest updates are lost.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import transformers

from memenvs.baselines.update import make_optimizer, master_weights
from memenvs.models import HFPolicy
from memenvs.models.packaged import resolve

PROMPTS, COPIES, PROMPT, REPLY = 2, 8, 195, 46  # prompts, replies to each, tokens of both
LR = 1e-6


def prompts(tokenizer: Any) -> list[list[int]]:
    """Beginnings (T,) of the reading task's prompts."""
    env = gym.make("memenvs:MemChunkQA-v0")
    return [tokenizer(env.reset(seed=seed)[0])["input_ids"][:PROMPT] for seed in range(PROMPTS)]


def ours(dtype: str) -> float:
    """Sample, one backward pass of the clipped surrogate, a step of AdamW; its processor seconds."""
    policy = HFPolicy("smollm2", dtype=dtype, chat=False)
    rows = [np.array(ids) for ids in prompts(policy.tokenizer) for _ in range(COPIES)]
    optimizer = make_optimizer([{"params": policy.parameters()}], lr=LR)
    advantages = np.random.default_rng(0).normal(size=len(rows))
    start = time.process_time()
    replies = policy.sample(rows, [np.random.default_rng(i) for i in range(len(rows))], REPLY)
    sequences = [np.concatenate([row, reply.ids]) for row, reply in zip(rows, replies, strict=True)]
    masks = [np.arange(len(ids)) >= PROMPT for ids in sequences]
    for batch in policy.micro_batches(sequences, 8_192):
        output = policy.forward([sequences[i] for i in batch], [masks[i] for i in batch], entropy=True)
        old = torch.from_numpy(np.concatenate([replies[i].logprobs for i in batch])).float()
        own = np.repeat(advantages[batch], [len(replies[i].ids) for i in batch])
        weights, ratio = torch.from_numpy(own).float(), (output.logprobs - old).exp()
        loss = -torch.minimum(ratio * weights, ratio.clamp(0.8, 1.2) * weights).mean()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(master_weights(policy.parameters()), 1.0)
    optimizer.step()
    return time.process_time() - start


def trl(dtype: str) -> float:
    """The first step of `GRPOTrainer` with the same sizes and random rewards; its processor seconds."""
    import datasets
    from trl import GRPOConfig, GRPOTrainer

    folder, rewards = resolve("smollm2"), np.random.default_rng(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = GRPOConfig(
        output_dir="build/peer_step",
        use_cpu=True,
        bf16=dtype == "autocast",
        gradient_checkpointing=False,
        per_device_train_batch_size=PROMPTS * COPIES,
        num_generations=COPIES,
        max_completion_length=REPLY,
        max_steps=1,
        learning_rate=LR,
        top_k=0,
        report_to=[],
        save_strategy="no",
    )
    trainer = GRPOTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16 if dtype == "bfloat16" else torch.float32
        ),
        processing_class=tokenizer,
        args=config,
        train_dataset=datasets.Dataset.from_dict(
            {"prompt": [tokenizer.decode(p) for p in prompts(tokenizer)]}
        ),
        reward_funcs=lambda completions, **_: rewards.normal(size=len(completions)).tolist(),
    )
    start = time.process_time()
    trainer.train()
    return time.process_time() - start


def main() -> None:
    """Measure one of the two."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("who", choices=["ours", "trl"])
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "autocast"], default="float32")
    args = parser.parse_args()
    if (args.who, args.dtype) == ("ours", "autocast"):
        parser.error("autocast is TRL's; give bfloat16")
    torch.set_num_threads(1)
    seconds = ours(args.dtype) if args.who == "ours" else trl(args.dtype)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{args.who}, {args.dtype}: {seconds:.1f} CPU s, peak {peak:.2f} GB")


if __name__ == "__main__":
    main()
