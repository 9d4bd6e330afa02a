"""Build a generated world, read it chunk by chunk, and see how far word overlap gets."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from memenvs import collect
from memenvs.commands import main as memenvs
from memenvs.evaluation.summary import metric_interval

TASKS = 50


def run(words: Sequence[str]) -> None:
    """Run a command of memenvs."""
    if memenvs(words):
        raise SystemExit(1)


def main() -> None:
    """Build, show one episode, and score three policies."""
    with tempfile.TemporaryDirectory() as folder:
        tasks = Path(folder) / "world"
        print("1. Build a world: invented people, places and works, and questions about them.\n")
        size = ["--entities", "1000", "--num-tasks", str(TASKS), "--documents", "100", "--seed", "7"]
        print("$ memenvs build world", *size, "--out world")
        run(["build", "world", *size, "--out", str(tasks)])

        reading = {"tasks": str(tasks), "chunk_size": 4000}
        episodes = {
            policy: collect("MemChunkQA-v0", policy, range(TASKS), env_args=reading, tasks=range(TASKS))
            for policy in ("lexical", "random_text", "silent")
        }
        print("\n2. One episode, read by word overlap in chunks of 4,000 tokens.\n")
        print("TAMTRL asks a scorer how likely each memory is, given the evidence of its turn:")
        print("the signal. At the end each turn is paid its share of the outcome: the credit.\n")
        solved = next((episode for episode in episodes["lexical"] if episode.success), episodes["lexical"][0])
        env_args = [f"{name}={value}" for name, value in reading.items()]
        credit = ["--methods", "TAMTRL", "--scorer", "lexical", "--task", str(solved.number)]
        run(["play", "--env", "MemChunkQA-v0", "--env-args", *env_args, *credit])

        print(f"\n3. Three policies on {TASKS} tasks: mean and 95% interval.\n")
        print(f"{'policy':12}{'EM':>23}{'F1':>23}{'sub_em':>23}")
        for policy, played in episodes.items():
            names = ("em", "f1", "sub_em")
            columns = [metric_interval(name, [episode.metrics[name] for episode in played]) for name in names]
            print(f"{policy:12}" + "".join(f"{column!s:>23}" for column in columns))
        print("\nA small language model reads: make demo-lm")


if __name__ == "__main__":
    main()
