"""HFScorer against padded batches in request order with full logits: processor time and peak memory.

python -m benchmarks.scorers [--requests 64] [--plain-batch 8]
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers

from memenvs.data import bundled
from memenvs.wrappers.scorers import HFScorer, TokenScores
from memenvs.wrappers.scorers.protocol import TokenPair

VOCABULARY = 32_000


def model() -> transformers.Qwen3ForCausalLM:
    """A random Qwen3 of 17 M parameters with tied embeddings."""
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=1_024,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=64,
        max_position_embeddings=4_096,
        tie_word_embeddings=True,
    )
    return transformers.Qwen3ForCausalLM(config).eval()


def mixed(count: int, rng: np.random.Generator) -> list[TokenPair]:
    """Prompts of 500 to 3,000 tokens without a common prefix, each with a continuation of 50 to 300."""
    return [TokenPair(ids(rng, 500, 3_000), ids(rng, 50, 300)) for _ in range(count)]


def shared(count: int, rng: np.random.Generator) -> list[TokenPair]:
    """The same, with 8 continuations per prompt."""
    prompts = [ids(rng, 500, 3_000) for _ in range(count // 8)]
    return [TokenPair(prompt, ids(rng, 50, 300)) for prompt in prompts for _ in range(8)]


def growing(count: int, rng: np.random.Generator) -> list[TokenPair]:
    """Trajectories of 8 turns, 100 to 500 tokens each, with the same answer of 5 to 20 after every turn."""
    pairs = []
    for _ in range(count // 8):
        answer, read = ids(rng, 5, 20), list[int]()
        for _ in range(8):
            read = [*read, *ids(rng, 100, 500)]
            pairs.append(TokenPair(read, answer))
    return pairs


def ids(rng: np.random.Generator, least: int, most: int) -> list[int]:
    """Random token ids of random length."""
    return rng.integers(0, VOCABULARY, rng.integers(least, most + 1)).tolist()


@torch.no_grad()
def plain(model: transformers.Qwen3ForCausalLM, pairs: list[TokenPair], batch: int) -> list[TokenScores]:
    """Padded batches in request order, all logits, one log-softmax: what trainers usually do."""
    scores = []
    for start in range(0, len(pairs), batch):
        some = pairs[start : start + batch]
        rows = [torch.tensor([*pair.prompt, *pair.continuation]) for pair in some]
        padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        logits = model(input_ids=padded, attention_mask=mask, use_cache=False).logits[:, :-1]
        chosen = logits.log_softmax(-1).gather(2, padded[:, 1:, None])[..., 0]
        for row, pair in zip(chosen, some, strict=True):
            first = len(pair.prompt) - 1
            scores.append(row[first : first + len(pair.continuation)].double().numpy())
    return scores


class ScorerCost:
    """The cost of a call: processor and wall-clock seconds; peak memory above its start, in MB."""

    def __init__(self, work: Callable[[], list[TokenScores]]):
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # otherwise it may reuse memory that earlier work freed
        self._done, self._peak = threading.Event(), 0
        watcher, before = threading.Thread(target=self._watch), memory()
        watcher.start()
        cpu, clock = processor(), time.perf_counter()
        self.scores = work()
        self.cpu, self.clock = processor() - cpu, time.perf_counter() - clock
        self._done.set()
        watcher.join()
        self.memory = (self._peak - before) / 1e6

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self._peak = max(self._peak, memory())


def memory() -> int:
    """Bytes of this process in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def processor() -> float:
    """Processor seconds of this process, over all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def row(name: str, pairs: list[TokenPair], scorer: HFScorer, batch: int) -> None:
    """Print one line of the table, after checking that both ways agree."""
    ours = ScorerCost(lambda: scorer.token_logprobs(pairs))
    theirs = ScorerCost(lambda: plain(scorer.model, pairs, batch))
    for a, b in zip(ours.scores, theirs.scores, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4)
    print(
        f"| {name} | {theirs.cpu:.1f} ({theirs.clock:.1f}) | {ours.cpu:.1f} ({ours.clock:.1f}) "
        f"| {theirs.cpu / ours.cpu:.1f} | {theirs.memory:,.0f} | {ours.memory:,.0f} "
        f"| {ours.memory / theirs.memory:.3f} |",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="HFScorer against padded batches with full logits")
    parser.add_argument("--requests", type=int, default=64, help="requests of each kind; a multiple of 8")
    parser.add_argument(
        "--plain-batch", type=int, default=8, help="requests in a padded batch of the plain way"
    )
    parser.add_argument("--max-batch-tokens", type=int, help="of HFScorer")
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of torch; two that wait for each other spin"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(bundled("tokenizers/world.json")))
    scorer = HFScorer(model(), tokenizer, max_batch_tokens=args.max_batch_tokens)
    print(f"{scorer.model.num_parameters():,} parameters, {torch.get_num_threads()} threads")
    print("| requests | plain, CPU s (clock) | HFScorer | ratio | plain, MB | HFScorer | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    scorer.token_logprobs(mixed(2, np.random.default_rng(1)))  # warm
    for name, make in (
        ("of mixed length", mixed),
        ("8 continuations to a prompt", shared),
        ("after each of 8 turns", growing),
    ):
        pairs = make(args.requests, np.random.default_rng(0))
        row(f"{args.requests} {name}", pairs, scorer, args.plain_batch)
    turns = [pairs[turn::8] for turn in range(8)]
    apart = ScorerCost(lambda: [scores for turn in turns for scores in scorer.token_logprobs(turn)])
    together = ScorerCost(lambda: scorer.token_logprobs(pairs))
    print(f"turn by turn {apart.cpu:.1f} s, in one call {together.cpu:.1f}: {apart.cpu / together.cpu:.1f}")


if __name__ == "__main__":
    main()
