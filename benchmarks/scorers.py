"""HFScorer against padded batches in request order with full logits: processor time and peak memory.

python -m benchmarks.scorers [--requests 64] [--plain-batch 8]

Requests of each kind are a multiple of 8. Two `--threads` of torch that wait for each other spin.
"""

from __future__ import annotations

import numpy as np
import torch
import transformers

from benchmarks.harness import cost, print_head, print_row, random_qwen3, run, world_tokenizer
from memenvs.wrappers.scorers import HFScorer, TokenScores
from memenvs.wrappers.scorers.protocol import TokenPair

VOCABULARY = 32_000
SHAPE = {  # 17 M parameters
    "hidden_size": 256,
    "intermediate_size": 1_024,
    "num_hidden_layers": 8,
    "head_dim": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4_096,
}


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


def compare(name: str, pairs: list[TokenPair], scorer: HFScorer, batch: int) -> None:
    """Print one line of the table, after checking that both ways agree."""
    ours = cost(lambda: scorer.token_logprobs(pairs))
    theirs = cost(lambda: plain(scorer.model, pairs, batch))
    for a, b in zip(ours.result, theirs.result, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4)
    seconds = [f"{one.cpu:.1f} ({one.clock:.1f})" for one in (theirs, ours)]
    memory = [f"{one.memory:,.0f}" for one in (theirs, ours)]
    ratio = f"{ours.memory / theirs.memory:.3f}"
    print_row(name, *seconds, f"{theirs.cpu / ours.cpu:.1f}", *memory, ratio)


def main(requests: int = 64, plain_batch: int = 8, max_batch_tokens: int = 0, threads: int = 1) -> None:
    """Print the table."""
    torch.set_num_threads(threads)
    scorer = HFScorer(random_qwen3(**SHAPE), world_tokenizer(), max_batch_tokens=max_batch_tokens or None)
    print(f"{scorer.model.num_parameters():,} parameters, {torch.get_num_threads()} threads")
    print_head("requests", "plain, CPU s (clock)", "HFScorer", "ratio", "plain, MB", "HFScorer", "ratio")
    scorer.token_logprobs(mixed(2, np.random.default_rng(1)))  # warm
    for name, make in (
        ("of mixed length", mixed),
        ("8 continuations to a prompt", shared),
        ("after each of 8 turns", growing),
    ):
        pairs = make(requests, np.random.default_rng(0))
        compare(f"{requests} {name}", pairs, scorer, plain_batch)
    turns = [pairs[turn::8] for turn in range(8)]
    apart = cost(lambda: [scores for turn in turns for scores in scorer.token_logprobs(turn)])
    together = cost(lambda: scorer.token_logprobs(pairs))
    print(f"turn by turn {apart.cpu:.1f} s, in one call {together.cpu:.1f}: {apart.cpu / together.cpu:.1f}")


if __name__ == "__main__":
    run(main)
