"""HFPolicy's sampling against the same loop without a cache, `generate`, and the model's passes alone.

python -m benchmarks.sampling [--tokens 256] [--rows 16] [--groups 16] [--copies 16]
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import transformers

from benchmarks.harness import cost, fastest, print_head, print_row, random_qwen3, run, world_tokenizer
from memenvs.models import HFPolicy
from memenvs.models.chat import Ids
from memenvs.models.loading import cache_inputs
from memenvs.models.sampling import prefill, sample_tokens
from memenvs.models.settings import SamplingParams

VOCABULARY = 4_096
SHAPE = {  # 1.2 M parameters
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "head_dim": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 2_048,
}


@torch.no_grad()
def without_cache(policy: HFPolicy, prompts: Sequence[Ids], tokens: int) -> list[list[int]]:
    """The same draws from the same numbers, reading everything again at each step; padded on the right."""
    uniforms = np.stack([rng.random(tokens) for rng in rngs(len(prompts))])
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    ids = torch.zeros(len(prompts), int(lengths.max()) + tokens, dtype=torch.long)
    for row, prompt in zip(ids, prompts, strict=True):
        row[: len(prompt)] = torch.from_numpy(prompt)
    rows = torch.arange(len(prompts))
    for step in range(tokens):
        read = ids[:, : int(lengths.max()) + step]
        hidden = policy.model.model(input_ids=read, use_cache=False).last_hidden_state
        logits = policy.model.lm_head(hidden[rows, lengths + step - 1])
        sampled, _ = sample_tokens(logits, torch.from_numpy(uniforms[:, step, None]), SamplingParams())
        ids[rows, lengths + step] = sampled[:, 0]
    return [row[n : n + tokens].tolist() for row, n in zip(ids, lengths.tolist(), strict=True)]


@torch.no_grad()
def bare(policy: HFPolicy, prompts: Sequence[Ids], tokens: int) -> None:
    """The model's passes alone: prompts once, then one token's logits a step, without sampling or checks."""
    cache, _ = prefill(policy.model.model, prompts, tokens, "cpu")
    step = torch.zeros(len(prompts), 1, dtype=torch.long)
    width = max(map(len, prompts))
    lengths = torch.tensor([len(prompt) for prompt in prompts])[:, None]
    mask = torch.arange(width + tokens) >= width - lengths
    behind = cache_inputs(policy.model.model, cache)
    for used in range(1, tokens):
        hidden = policy.model.model(
            input_ids=step,
            attention_mask=mask[:, : width + used],
            position_ids=lengths + used - 1,
            **behind,
        ).last_hidden_state
        policy.model.lm_head(hidden[:, -1])


@torch.no_grad()
def generate(policy: HFPolicy, prompts: Sequence[Ids], tokens: int) -> None:
    """The way of transformers: the batch padded on the left, without log-probabilities."""
    width = max(map(len, prompts))
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, (prompt, shown) in enumerate(zip(prompts, mask, strict=True)):
        ids[row, width - len(prompt) :] = torch.from_numpy(prompt)
        shown[width - len(prompt) :] = 1
    policy.model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=tokens, do_sample=True, top_k=0, pad_token_id=0
    )


def rngs(rows: int) -> list[np.random.Generator]:
    """A generator for each row."""
    return [np.random.default_rng([0, row]) for row in range(rows)]


def compare(name: str, policy: HFPolicy, prompts: Sequence[Ids], tokens: int, plain: bool) -> None:
    """Print a line of the table, after checking that the way without a cache samples the same tokens."""
    sampled = cost(lambda: policy.sample(prompts, rngs(len(prompts)), tokens))
    bares = fastest(lambda: bare(policy, prompts, tokens), 1)
    theirs = fastest(lambda: generate(policy, prompts, tokens), 1)
    ours, replies = sampled.cpu, sampled.result
    cells = [f"{len(prompts) * tokens / ours:,.0f}", f"{bares / ours:.2f}", f"{theirs / ours:.2f}"]
    if plain:
        slow = cost(lambda: without_cache(policy, prompts, tokens))
        same = np.mean([reply.ids.tolist() == ids for reply, ids in zip(replies, slow.result, strict=True)])
        if same < 0.9:  # a random number on the border of two tokens may pick either
            raise RuntimeError(f"only {same:.0%} of the replies are those of the plain way")
        cells.append(f"{slow.cpu / ours:.1f} ({slow.cpu:.0f} CPU s to {ours:.1f})")
    print_row(name, *cells)


def main(tokens: int = 256, rows: int = 16, groups: int = 16, copies: int = 16, threads: int = 1) -> None:
    """Print the table."""
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    policy = HFPolicy(random_qwen3(**SHAPE, initializer_range=0.1), world_tokenizer(), chat=False)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, VOCABULARY, rng.integers(100, 201)) for _ in range(max(rows, groups))]
    policy.sample(prompts[:2], rngs(2), 4)  # warm
    print(f"{policy.model.num_parameters():,} parameters, {tokens} new tokens, {threads} threads")
    print_head(
        "prompts of 100 to 200 tokens", "tokens/CPU s", "its passes alone", "generate", "without a cache"
    )
    compare(f"{rows}, all different", policy, prompts[:rows], tokens, plain=True)
    repeated = [prompt for prompt in prompts[:groups] for _ in range(copies)]
    compare(f"{groups}, {copies} copies of each", policy, repeated, tokens, plain=False)


if __name__ == "__main__":
    run(main)
