"""The parts of a learner's step with a real model, each beside the plain way to compute it.

python -m benchmarks.step decode [--model smollm2] [--rows 1 16 64] [--dtypes bfloat16 float32]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from memenvs import TextVectorEnv
from memenvs.models import HFPolicy
from memenvs.models.chat import Ids
from memenvs.models.sampling import sample_tokens

GROUP, SHARED, OWN = 8, 250, 100  # prompts of a group, tokens that they share, about as many of each alone
BORDER = 1e-5  # of the cumulative distribution: draws this near to the next token may go either way


class Sampled(NamedTuple):
    """Replies to B prompts, and the processor seconds that they took.

    Attributes:
        ids: (B, T).
        logprobs: (B, T), nats.
        prefill: seconds until the first token of every reply.
        decode: seconds for all others.
    """

    ids: Ids
    logprobs: NDArray[np.float64]
    prefill: float
    decode: float


def reading_prompts(policy: HFPolicy, rows: int) -> list[Ids]:
    """Prompts (T,) of about 350 tokens, in groups that share the first 250; text of the reading task."""
    groups = max(1, rows // GROUP)
    venv = TextVectorEnv("MemChunkQA-v0", groups + rows, autoreset_mode="Disabled")
    observations, _ = venv.reset(seed=list(range(groups + rows)))
    ids = [np.asarray(policy.tokenizer(text)["input_ids"], dtype=np.int64) for text in observations]
    heads, rests = [one[:SHARED] for one in ids[:groups]], [one[-OWN:] for one in ids[groups:]]
    return [np.concatenate([heads[i * groups // rows], rests[i][i % 11 :]]) for i in range(rows)]


@torch.no_grad()
def plain(policy: HFPolicy, prompts: Sequence[Ids], uniforms: NDArray[np.float64]) -> Sampled:
    """Prompts padded at the left, a `DynamicCache`, and one call of the model a token, as `generate` does."""
    start = time.process_time()
    width = max(map(len, prompts))
    ids, mask = torch.zeros(len(prompts), width, dtype=torch.long), torch.zeros(len(prompts), width)
    for row, shown, prompt in zip(ids, mask, prompts, strict=True):
        row[width - len(prompt) :], shown[width - len(prompt) :] = torch.from_numpy(prompt), 1
    positions = (mask.cumsum(1) - 1).clamp(min=0).long()
    cache, drawn, logprobs, prefill = transformers.DynamicCache(), [], [], 0.0
    for step in range(uniforms.shape[1]):
        logits = policy.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]
        tokens, likely = sample_tokens(logits, torch.from_numpy(uniforms[:, step]), policy.sampling_params)
        drawn.append(tokens.numpy())
        logprobs.append(likely.numpy())
        prefill = prefill or time.process_time() - start
        ids, positions = tokens[:, None], positions[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=1)
    whole = time.process_time() - start
    return Sampled(np.stack(drawn, axis=1), np.stack(logprobs, axis=1), prefill, whole - prefill)


@torch.no_grad()
def ours(policy: HFPolicy, prompts: Sequence[Ids], uniforms: NDArray[np.float64]) -> Sampled:
    """The policy's sampler; the prompts are read when its head is first asked."""
    asked: list[float] = []
    head = policy.model.get_output_embeddings()
    hook = head.register_forward_pre_hook(lambda module, args: asked.append(time.process_time()))
    start = time.process_time()
    replies = policy._sampler(prompts, list(uniforms))
    end = time.process_time()
    hook.remove()
    ids, logprobs = (np.stack([getattr(reply, name) for reply in replies]) for name in ("ids", "logprobs"))
    return Sampled(ids, logprobs, asked[0] - start, end - asked[0])


@torch.no_grad()
def agreement(
    policy: HFPolicy, prompts: Sequence[Ids], uniforms: NDArray[np.float64], one: Sampled, other: Sampled
) -> tuple[float, float, float]:
    """Share of equal replies, of those that first differ at a border, how far log-probabilities differ."""
    same = border = 0
    apart = 0.0
    for i, prompt in enumerate(prompts):
        differ = np.flatnonzero(one.ids[i] != other.ids[i])
        upto = int(differ[0]) if len(differ) else one.ids.shape[1]
        apart = max(apart, float(np.abs(one.logprobs[i, :upto] - other.logprobs[i, :upto]).max(initial=0)))
        if not len(differ):
            same += 1
            continue
        ids = torch.from_numpy(np.concatenate([prompt, one.ids[i, :upto]]))[None]
        shares = policy.model(input_ids=ids, logits_to_keep=1).logits[0, -1].double().softmax(0).cumsum(0)
        nearest = (shares - uniforms[i, upto]).abs().min()
        border += int(nearest < BORDER)
    return same / len(prompts), border / len(prompts), apart


def decode(args: argparse.Namespace) -> None:
    """Print the table of sampling."""
    print(
        "| dtype | rows | prefill, plain to ours, CPU s | ratio | decode, tokens/CPU s | ratio "
        "| replies equal, or apart at a border | log-probabilities apart |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for dtype in args.dtypes:
        policy = HFPolicy(args.model, dtype=dtype, chat=False)
        policy._sampler._stopping._ends[:] = False  # so that both ways write as many tokens
        for rows in args.rows:
            prompts = reading_prompts(policy, rows)
            uniforms = np.stack([np.random.default_rng([0, i]).random(args.tokens) for i in range(rows)])
            ways: dict[Callable[..., Sampled], list[Sampled]] = {plain: [], ours: []}
            ours(policy, prompts[:1], uniforms[:1, :2])  # weights are packed
            for turn in range(args.rounds):
                for way in (plain, ours)[:: 1 if turn % 2 == 0 else -1]:
                    ways[way].append(way(policy, prompts, uniforms))
            slow, fast = (
                (min(one.prefill for one in found), min(one.decode for one in found))
                for found in ways.values()
            )
            same, border, apart = agreement(policy, prompts, uniforms, ways[plain][0], ways[ours][0])
            tokens = rows * (args.tokens - 1)
            print(
                f"| {dtype} | {rows} | {slow[0]:.1f} to {fast[0]:.1f} | **{slow[0] / fast[0]:.1f}** "
                f"| {tokens / slow[1]:.0f} to {tokens / fast[1]:.0f} | **{slow[1] / fast[1]:.1f}** "
                f"| {same:.0%}, {border:.0%} | {apart:.1g} |",
                flush=True,
            )


def main() -> None:
    """Measure one part and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["decode"])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--tokens", type=int, default=33, help="of a reply")
    parser.add_argument("--rounds", type=int, default=2, help="of both ways; the least seconds are reported")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    transformers.logging.set_verbosity_error()
    {"decode": decode}[args.part](args)


if __name__ == "__main__":
    main()
