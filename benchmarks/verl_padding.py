"""What rows that train nothing cost in a step of verl's own worker, without flash-attn, on a CPU.

.venv-verl/bin/python -m benchmarks.verl_padding [--rows 0 24]

One pass of a random Qwen3 of 0.4 M parameters reads eight rows of 1,064 tokens and a number of rows of 128,
with which verl fills up a mini-batch. "Packed" is `actor_rollout_ref.model.use_remove_padding=True`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.harness import alone, cost, print_head, print_row, run
from memenvs.core.episode import Episode, Reply, Turn

GROUPS, SIZE, PROMPT, REPLY = 2, 4, 1000, 64
TESTS = Path(__file__).parents[1] / "tests"
PROCESS = {"WORLD_SIZE": 1, "RANK": 0, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29541}


def episodes(draws: np.random.Generator) -> list[Episode]:
    """Two groups of four episodes of one turn, with a made-up advantage of every token."""
    from memenvs.baselines.update import give_advantages

    info = {"turn": 0, "context": "rewrite", "rewards": {"outcome": 0.0}, "metrics": {}}
    played = []
    for number in range(GROUPS * SIZE):
        group, member = divmod(number, SIZE)
        read, ids = draws.integers(5, 500, PROMPT), draws.integers(5, 500, REPLY)
        reply = Reply("", ids, draws.normal(-3, 0.1, REPLY), read=read, tokens=REPLY)
        turn = Turn("", info, reply, info, end="terminated")
        metrics = {"success": 0.0}
        played.append(Episode(group=group, member=member, turns=[turn], end="terminated", metrics=metrics))
    give_advantages(played, [draws.normal(size=REPLY) for _ in played])
    return played


def measure(padding: int, packed: bool) -> tuple[float, float]:
    """Processor seconds of a step, and the megabytes that it adds, after one that warms up."""
    sys.path += [str(TESTS / "support"), str(TESTS / "trainers")]
    os.environ |= {name: str(value) for name, value in PROCESS.items()}
    import test_verl_step as verl
    from tiny_model import save_tiny_model
    from verl_stub import compose, overrides

    # verl and its check print what they do
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        model = save_tiny_model(Path(folder) / "model", window=40_000)
        flags = ["--model", str(model), "--out", f"{folder}/run", *verl.RUN, "--micro-batch-tokens", "16384"]
        verl.learn(["grpo", *flags, "--engine", "verl", "--dry-run"])
        actor = "actor_rollout_ref.actor"
        sizes = f"{actor}.ppo_mini_batch_size={(GROUPS * SIZE + padding) // SIZE}"
        packing = f"actor_rollout_ref.model.use_remove_padding={packed}"
        limit = f"{actor}.ppo_max_token_len_per_gpu=16384"
        config = compose([*overrides(Path(folder) / "run"), *verl.EXACT, sizes, packing, limit])
        worker, played = verl.worker_of(config), episodes(np.random.default_rng(0))
        first, second = (verl.batch_of(played, config, False) for _ in range(2))
        worker.train_mini_batch(first)
        spent = cost(lambda: worker.train_mini_batch(second))
    return spent.cpu, spent.memory


def main(*, rows: Sequence[int] = (0, 24)) -> None:
    """Measure padded and packed passes; numbers of rows are multiples of 4."""
    print_head("rows that train nothing", "way", "CPU s", "MB added")
    for packed in (False, True):
        for padding in rows:
            seconds, memory = alone(measure, padding, packed)
            print_row(padding, "packed" if packed else "padded", f"{seconds:.1f}", f"{memory:.0f}")


if __name__ == "__main__":
    run(main)
