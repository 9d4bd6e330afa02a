"""The cost of a training step besides the model: peak memory by turns, and the share of credit.

`python -m benchmarks.learners`; each memory is measured in its own process.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

TURNS = (2, 8, 32)
TOKENS = 256  # of a prompt with its reply


def measure(turns: int, context: str) -> dict[str, float]:
    """Peak memory in MB and seconds a token of the update of 8 episodes of a 5 M GPT."""
    import torch

    from memenvs.baselines.grpo import GRPOArgs, update
    from memenvs.baselines.update import ProcessGroup
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
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    metrics = update(policy, optimizer, samples, args, processes=processes, seed=(0,))
    tokens = sum(len(sample.ids) for sample in samples)
    return {
        "tokens": tokens,
        "peak": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "rate": tokens / (time.perf_counter() - start),
        "computed": metrics["computed"],
    }


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, metavar=("TURNS", "CONTEXT"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(int(args.one[0]), args.one[1])))
        return 0
    print("| context | turns | tokens of 8 episodes | memory of the update | computed | tokens/s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for context in ("rewrite", "append"):
        for turns in TURNS:
            command = [sys.executable, "-m", "benchmarks.learners", "--one", str(turns), context]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            row = json.loads(done.stdout.splitlines()[-1])
            print(
                f"| {context} | {turns} | {row['tokens']:,} | {row['peak']:.0f} MB | {row['computed']:.1%} "
                f"| {row['rate']:,.0f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
