"""The cost of a training step besides the model: peak memory by turns, each in a process of its own.

python -m benchmarks.learners
"""

from __future__ import annotations

import itertools
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import alone, peak, print_head, print_row

TURNS = (2, 8, 32)
TOKENS = 256  # of a prompt with its reply


def measure(turns: int, context: str) -> dict[str, float]:
    """Peak memory in MB and seconds a token of the update of 8 episodes of a 5 M GPT."""
    import torch

    from memenvs.baselines.grpo import GRPOArgs, update
    from memenvs.baselines.processes import ProcessGroup
    from memenvs.core.episode import Sample
    from memenvs.models import HFPolicy
    from memenvs.models.small_gpt import save_small_gpt

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        model = save_small_gpt(Path(folder) / "m", [], width=256, layers=6, window=TOKENS * TURNS[-1])
        policy = HFPolicy(str(model))
    draws = np.random.default_rng(0)
    samples = []
    for group in range(8):
        parts = []
        for turn in range(turns):
            length = int(draws.integers(TOKENS // 2, TOKENS))
            read, reply = draws.integers(0, 256, length - 32), draws.integers(0, 256, 32)
            parts.append([(read, None, -1), (reply, np.full(32, -5.5), turn)])
        runs = [list(itertools.chain.from_iterable(parts))] if context == "append" else parts
        for run in runs:
            sample = Sample.of(*run)
            sample.group, sample.advantages = group, draws.normal(size=int(sample.response_mask.sum()))
            samples.append(sample)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-5)
    args, processes = GRPOArgs(micro_batch_tokens=2048), ProcessGroup("cpu")
    short = Sample.of((np.zeros(8, np.int64), None, -1), (np.zeros(8, np.int64), np.zeros(8), 0))
    short.advantages = np.ones(8)
    update(policy, optimizer, [short], args, processes=processes, seed=(0,))
    before = peak()
    start = time.perf_counter()
    metrics = update(policy, optimizer, samples, args, processes=processes, seed=(0,))
    tokens = sum(len(sample.ids) for sample in samples)
    return {
        "tokens": tokens,
        "peak": 1024 * (peak() - before),
        "rate": tokens / (time.perf_counter() - start),
        "computed": metrics["computed"],
    }


def main() -> None:
    """Print the table."""
    print_head("context", "turns", "tokens of 8 episodes", "memory of the update", "computed", "tokens/s")
    for context, turns in itertools.product(("rewrite", "append"), TURNS):
        figures = alone(measure, turns, context)
        memory, computed = f"{figures['peak']:.0f} MB", f"{figures['computed']:.1%}"
        print_row(context, turns, f"{figures['tokens']:,}", memory, computed, f"{figures['rate']:,.0f}")


if __name__ == "__main__":
    main()
