"""The parts of a learner's step with a real model, each compared with the plain way to compute it.

python -m benchmarks.step decode [--model smollm2] [--rows 1 16 64] [--dtypes bfloat16 float32]
python -m benchmarks.step update [--model smollm2] [--groups 8] [--dtypes bfloat16 float32]
python -m benchmarks.step score [--model smollm2] [--groups 8] [--dtypes bfloat16 float32]

A group is 8 sequences that share task and section. The fastest of `--rounds` is reported.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from benchmarks.harness import print_head, print_row, run
from memenvs.models import HFPolicy, prefixes
from memenvs.models.chat import Ids
from memenvs.models.loading import cache_inputs
from memenvs.models.sampling import sample_tokens
from memenvs.wrappers.scorers import HFScorer
from memenvs.wrappers.scorers.protocol import TokenPair

GROUP, SHARED, OWN = 8, 250, 100  # prompts of a group, tokens that they share, about as many of each alone
BORDER = 1e-5  # of the cumulative distribution: draws this close to the next token may pick either


@dataclass(frozen=True)
class Sizes:
    """What is measured, and how often."""

    model: str = "smollm2"
    dtypes: tuple[str, ...] = ("bfloat16", "float32")
    rows: tuple[int, ...] = (1, 16, 64)
    groups: int = 8
    tokens: int = 33
    rounds: int = 2
    threads: int = 1


class SampledReplies(NamedTuple):
    """Replies to B prompts, and the processor seconds for them.

    Attributes:
        ids: (B, T).
        logprobs: (B, T), nats.
        prefill: seconds until the first token of every reply.
        decode: seconds for all other tokens.
    """

    ids: Ids
    logprobs: NDArray[np.float64]
    prefill: float
    decode: float


def reading_prompts(policy: HFPolicy, rows: int) -> list[Ids]:
    """Prompts (T,) of about 350 tokens, in groups that share the first 250; text of the reading task."""
    groups = max(1, rows // GROUP)
    env = gym.make("memenvs:MemChunkQA-v0")
    observations = [env.reset(seed=seed)[0] for seed in range(groups + rows)]
    ids = [np.asarray(policy.tokenizer(text)["input_ids"], dtype=np.int64) for text in observations]
    heads, rests = [one[:SHARED] for one in ids[:groups]], [one[-OWN:] for one in ids[groups:]]
    return [np.concatenate([heads[i * groups // rows], rests[i][i % 11 :]]) for i in range(rows)]


@torch.no_grad()
def plain(policy: HFPolicy, prompts: Sequence[Ids], uniforms: NDArray[np.float64]) -> SampledReplies:
    """Prompts padded on the left, a `DynamicCache`, and one call of the model per token, as in `generate`."""
    start = time.process_time()
    width = max(map(len, prompts))
    ids, mask = torch.zeros(len(prompts), width, dtype=torch.long), torch.zeros(len(prompts), width)
    for row, shown, prompt in zip(ids, mask, prompts, strict=True):
        row[width - len(prompt) :], shown[width - len(prompt) :] = torch.from_numpy(prompt), 1
    positions = (mask.cumsum(1) - 1).clamp(min=0).long()
    behind = cache_inputs(policy.model, transformers.DynamicCache())
    drawn, logprobs, prefill = [], [], 0.0
    for step in range(uniforms.shape[1]):
        logits = policy.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            logits_to_keep=1,
            **behind,
        ).logits[:, -1]
        numbers = torch.from_numpy(uniforms[:, step, None])
        tokens, likely = (column[:, 0] for column in sample_tokens(logits, numbers, policy.sampling_params))
        drawn.append(tokens.numpy())
        logprobs.append(likely.numpy())
        prefill = prefill or time.process_time() - start
        ids, positions = tokens[:, None], positions[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], dim=1)
    whole = time.process_time() - start
    return SampledReplies(np.stack(drawn, axis=1), np.stack(logprobs, axis=1), prefill, whole - prefill)


@torch.no_grad()
def ours(policy: HFPolicy, prompts: Sequence[Ids], uniforms: NDArray[np.float64]) -> SampledReplies:
    """The policy's sampler, which reads the prompts when its logits are first needed."""
    asked: list[float] = []
    head = policy.model.get_output_embeddings()
    hook = head.register_forward_pre_hook(lambda module, args: asked.append(time.process_time()))
    start = time.process_time()
    replies = policy._sampler(prompts, list(uniforms))
    end = time.process_time()
    hook.remove()
    ids, logprobs = (np.stack([getattr(reply, name) for reply in replies]) for name in ("ids", "logprobs"))
    return SampledReplies(ids, logprobs, asked[0] - start, end - asked[0])


@torch.no_grad()
def agreement(
    policy: HFPolicy,
    prompts: Sequence[Ids],
    uniforms: NDArray[np.float64],
    one: SampledReplies,
    other: SampledReplies,
) -> tuple[float, float, float]:
    """Shares of equal replies and of those that first differ at a border; difference of log-probabilities."""
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


def decode(sizes: Sizes) -> None:
    """Print the table of sampling."""
    ratios = ["prefill, plain to ours, CPU s", "ratio", "decode, tokens/CPU s", "ratio"]
    print_head("dtype", "rows", *ratios, "replies equal, or apart at a border", "log-probabilities apart")
    for dtype in sizes.dtypes:
        policy = HFPolicy(sizes.model, dtype=dtype, chat=False)
        policy._sampler._stopping._ends[:] = False  # so that both ways write equally many tokens
        for rows in sizes.rows:
            prompts = reading_prompts(policy, rows)
            uniforms = np.stack([np.random.default_rng([0, i]).random(sizes.tokens) for i in range(rows)])
            ways: dict[Callable[..., SampledReplies], list[SampledReplies]] = {plain: [], ours: []}
            for turn in range(sizes.rounds):
                for way in (plain, ours)[:: 1 if turn % 2 == 0 else -1]:
                    ways[way].append(way(policy, prompts, uniforms))
            slow, fast = (
                (min(one.prefill for one in found), min(one.decode for one in found))
                for found in ways.values()
            )
            same, border, apart = agreement(policy, prompts, uniforms, ways[plain][0], ways[ours][0])
            tokens = rows * (sizes.tokens - 1)
            prefill = [f"{slow[0]:.1f} to {fast[0]:.1f}", f"**{slow[0] / fast[0]:.1f}**"]
            rates = [f"{tokens / slow[1]:.0f} to {tokens / fast[1]:.0f}", f"**{slow[1] / fast[1]:.1f}**"]
            print_row(dtype, rows, *prefill, *rates, f"{same:.0%}, {border:.0%}", f"{apart:.1g}")


class ReadingSequences(NamedTuple):
    """Training sequences of the reading task, the members of a group one after another.

    Attributes:
        sequences: (T,) ids each.
        masks: (T,) each, True at the reply.
    """

    sequences: list[Ids]
    masks: list[NDArray[np.bool_]]


def reading_sequences(policy: HFPolicy, groups: int, *, section_first: bool) -> ReadingSequences:
    """Prompts and replies of one turn: a group shares task and section; memories and replies differ."""
    env = gym.make("memenvs:MemChunkQA-v0", chunk_size=220)
    observations = [env.reset(seed=seed)[0] for seed in range(groups)]
    draws = np.random.default_rng(0)
    sequences, masks = list[Ids](), list[NDArray[np.bool_]]()
    for text in observations:
        before, rest = text.split("<memory>\n")
        _, rest = rest.split("</memory>\n\n")
        section, after = rest.split("</section>\n\n")
        words = section.split()
        for _ in range(GROUP):
            memory, reply = (
                " ".join(words[start : start + int(draws.integers(*lengths))])
                for start, lengths in ((int(draws.integers(20)), (0, 60)), (int(draws.integers(60)), (8, 50)))
            )
            parts = [f"<memory>\n{memory}\n</memory>\n\n", f"{section}</section>\n\n"]
            whole = "".join([before, *(parts[::-1] if section_first else parts), after])
            prompt, answer = (policy.tokenizer(one)["input_ids"] for one in (whole, reply))
            sequences.append(np.array([*prompt, *answer, policy.tokenizer.eos_token_id]))
            masks.append(np.arange(len(sequences[-1])) >= len(prompt))
    return ReadingSequences(sequences, masks)


@contextmanager
def unshared() -> Iterator[None]:
    """Read a prefix that several sequences share once for each."""
    least, prefixes.PREFIX = prefixes.PREFIX, sys.maxsize
    try:
        yield
    finally:
        prefixes.PREFIX = least


@contextmanager
def reading(policy: HFPolicy, way: str) -> Iterator[None]:
    """Read sequences as padded rows, without padding ("packed"), or with prefixes read once ("shared")."""
    packs, policy._packs = policy._packs, way != "padded"
    try:
        with unshared() if way == "packed" else nullcontext():
            yield
    finally:
        policy._packs = packs


def update(sizes: Sizes) -> None:
    """Print the table of an update's forward and backward passes."""
    seconds = ["forward, CPU s", "backward", "ratio"]
    print_head("dtype", "first", "passes", "tokens computed", *seconds, "loss apart", "gradient apart")
    for dtype in sizes.dtypes:
        policy = HFPolicy(sizes.model, dtype=dtype, chat=False)
        for section_first in (False, True):
            data = reading_sequences(policy, sizes.groups, section_first=section_first)
            draws = np.random.default_rng(1)
            advantages = [torch.from_numpy(draws.normal(size=mask.sum())).float() for mask in data.masks]
            plain: tuple[float, Any, float] | None = None
            update_pass(
                policy, ReadingSequences(data.sequences[:2], data.masks[:2]), advantages
            )  # kernels are made
            for way in ("padded", "packed", "shared"):
                seconds, computed, loss, gradient = [], 0, 0.0, None
                for _ in range(sizes.rounds):
                    with reading(policy, way):
                        computed, loss, *found = update_pass(policy, data, advantages)
                    seconds.append(found)
                gradient = torch.cat([w.grad.flatten().float() for w in policy.model_parameters()])
                forward, backward = min(seconds, key=sum)
                plain = plain or (loss, gradient, forward + backward)
                first, ratio = "section" if section_first else "memory", plain[2] / (forward + backward)
                cells = [f"{computed:,}", f"{forward:.1f}", f"{backward:.1f}", f"**{ratio:.2f}**"]
                loss_apart = abs(loss - plain[0]) / abs(plain[0])
                gradient_apart = float((gradient - plain[1]).norm() / plain[1].norm())
                print_row(dtype, first, way, *cells, f"{loss_apart:.1e}", f"{gradient_apart:.1e}")


def update_pass(
    policy: HFPolicy, data: ReadingSequences, advantages: Sequence[Any]
) -> tuple[int, float, float, float]:
    """Tokens computed, the loss, and processor seconds of forward and backward of all micro-batches."""
    policy.model.zero_grad(set_to_none=True)
    batches = policy.micro_batches(data.sequences, 8_192)
    forward = backward = total = 0.0
    for batch in batches:
        start = time.process_time()
        output = policy.forward([data.sequences[i] for i in batch], [data.masks[i] for i in batch])
        loss = -(torch.cat([advantages[i] for i in batch]) * output.logprobs).sum()
        middle = time.process_time()
        loss.backward()
        forward, backward = forward + middle - start, backward + time.process_time() - middle
        total += float(loss.detach())
    return policy.computed(data.sequences, batches), total, forward, backward


def score(sizes: Sizes) -> None:
    """Print the table of a scorer's passes."""
    print_head("dtype", "first", "padded to shared, CPU s", "ratio", "log-probabilities apart, mean")
    for dtype in sizes.dtypes:
        policy = HFPolicy(sizes.model, dtype=dtype, chat=False)
        scorer = HFScorer(policy.model, policy.tokenizer)
        for section_first in (False, True):
            data = reading_sequences(policy, sizes.groups, section_first=section_first)
            pairs = [
                TokenPair(ids[~mask].tolist(), ids[mask].tolist())
                for ids, mask in zip(data.sequences, data.masks, strict=True)
            ]
            seconds, scores = list[float](), list[Any]()
            for packs in (False, True):
                scorer._reader._packs, best = packs, np.inf
                for _ in range(sizes.rounds):
                    start = time.process_time()
                    found = np.concatenate(scorer.token_logprobs(pairs))
                    best = min(best, time.process_time() - start)
                seconds.append(best)
                scores.append(found)
            first = "section" if section_first else "memory"
            both, ratio = f"{seconds[0]:.1f} to {seconds[1]:.1f}", f"**{seconds[0] / seconds[1]:.2f}**"
            print_row(dtype, first, both, ratio, f"{np.abs(scores[0] - scores[1]).mean():.1g}")


def main(part: Literal["decode", "update", "score"], /, sizes: Sizes) -> None:
    """Measure one part and print its table."""
    torch.set_num_threads(sizes.threads)
    transformers.logging.set_verbosity_error()
    {"decode": decode, "update": update, "score": score}[part](sizes)


if __name__ == "__main__":
    run(main)
