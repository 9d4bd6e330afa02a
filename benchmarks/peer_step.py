"""One GRPO step of SmolLM2 with our policy or TRL's: processor seconds and peak memory.

python -m benchmarks.peer_step ours [--dtype bfloat16]
.venv-trainers/bin/python -m benchmarks.peer_step trl [--dtype bfloat16]

In bfloat16 ours keeps float32 master weights beside the model's; TRL's default (`autocast`) has float32
weights alone. With `--dtype bfloat16` TRL has bfloat16 weights alone, and the smallest updates are lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

import gymnasium as gym
import numpy as np
import torch
import transformers

from benchmarks.harness import peak, run
from memenvs.baselines.optimizer import make_optimizer, master_weights
from memenvs.baselines.update import flat_tensor
from memenvs.models import HFPolicy
from memenvs.models.packaged import resolve
from memenvs.models.settings import Dtype

PROMPTS, COPIES, PROMPT, REPLY = 2, 8, 195, 46  # prompts, replies to each, tokens of both
LR = 1e-6
Clock = Callable[[], float]


def prompts(model: str) -> list[list[int]]:
    """Beginnings (T,) of the reading task's prompts."""
    env = gym.make("memenvs:MemChunkQA-v0")
    tokenizer = transformers.AutoTokenizer.from_pretrained(resolve(model))
    return [tokenizer(env.reset(seed=seed)[0])["input_ids"][:PROMPT] for seed in range(PROMPTS)]


def ours(
    model: str,
    prompts: Sequence[Sequence[int]],
    dtype: Dtype,
    *,
    copies: int = COPIES,
    reply: int = REPLY,
    clock: Clock = time.process_time,
) -> float:
    """Seconds for replies to each prompt, one backward pass of the clipped surrogate, a step of AdamW."""
    policy = HFPolicy(model, dtype=dtype, chat=False)
    rows = [np.array(ids) for ids in prompts for _ in range(copies)]
    optimizer = make_optimizer([{"params": policy.parameters()}], lr=LR)
    advantages = np.random.default_rng(0).normal(size=len(rows))
    start = clock()
    replies = policy.sample(rows, [np.random.default_rng(i) for i in range(len(rows))], reply)
    sequences = [np.concatenate([row, reply.ids]) for row, reply in zip(rows, replies, strict=True)]
    masks = [np.arange(len(ids)) >= len(row) for ids, row in zip(sequences, rows, strict=True)]
    for batch in policy.micro_batches(sequences, 8_192):
        output = policy.forward([sequences[i] for i in batch], [masks[i] for i in batch])
        old = flat_tensor([replies[i].logprobs for i in batch], output.logprobs)
        weights = flat_tensor([np.full(len(replies[i].ids), advantages[i]) for i in batch], output.logprobs)
        ratio = (output.logprobs - old).exp()
        loss = -torch.minimum(ratio * weights, ratio.clamp(0.8, 1.2) * weights).mean()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(master_weights(policy.parameters()), 1.0)
    optimizer.step()
    return clock() - start


def trl(
    model: str,
    prompts: Sequence[Sequence[int]],
    dtype: str,
    *,
    copies: int = COPIES,
    reply: int = REPLY,
    rows: int = PROMPTS * COPIES,
    out: str = "build/peer_step",
    clock: Clock = time.process_time,
) -> float:
    """Seconds for the first step of `GRPOTrainer`, with random rewards and `rows` replies in a pass."""
    import datasets
    from trl import GRPOConfig, GRPOTrainer

    folder, rewards = resolve(model), np.random.default_rng(0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    config = GRPOConfig(
        output_dir=out,
        use_cpu=not torch.cuda.is_available(),
        bf16=dtype == "autocast",
        gradient_checkpointing=False,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=len(prompts) * copies // rows,
        num_generations=copies,
        max_completion_length=reply,
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
        train_dataset=datasets.Dataset.from_dict({"prompt": [tokenizer.decode(ids) for ids in prompts]}),
        reward_funcs=lambda completions, **_: rewards.normal(size=len(completions)).tolist(),
    )
    start = clock()
    trainer.train()
    return clock() - start


def main(
    who: Literal["ours", "trl"], /, dtype: Literal["float32", "bfloat16", "autocast"] = "float32"
) -> None:
    """Measure one of the two."""
    if (who, dtype) == ("ours", "autocast"):
        raise SystemExit("autocast is TRL's; give bfloat16")
    torch.set_num_threads(1)
    step = ours if who == "ours" else trl
    seconds = step("smollm2", prompts("smollm2"), dtype)
    print(f"{who}, {dtype}: {seconds:.1f} CPU s, peak {peak():.2f} GB")


if __name__ == "__main__":
    run(main)
