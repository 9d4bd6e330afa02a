"""Passages encoded a second: batches of similar length (ours), and file order in batches of 64, in turn.

python -m benchmarks.retrieval_build --corpus wiki_passages.jsonl.gz --encoder MODEL_DIR
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from memenvs.retrieval.corpus import Corpus, read_corpus
from memenvs.retrieval.dense import encode_corpus
from memenvs.retrieval.encoder import Encoder


def main() -> None:
    """Print the rates of each round and the ratio of their medians."""
    parser = argparse.ArgumentParser(description="Index-build speed")
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--encoder", required=True)
    parser.add_argument("--passages", type=int, default=1_536, help="drawn at random, kept in file order")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of torch; with more, waiting counts as work"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    whole = Corpus.from_passages(read_corpus(args.corpus))
    chosen = np.sort(np.random.default_rng(0).choice(len(whole), args.passages, replace=False))
    corpus = Corpus.from_passages(whole.passage(int(row)) for row in chosen)
    ours, theirs = Encoder(args.encoder, device="cpu"), SentenceTransformer(args.encoder, device="cpu")
    ours.passages(["warm"] * 64)
    rates: dict[str, list[float]] = {"by length": [], "file order, 64": []}
    for _ in range(args.rounds):
        with timed(rates["by length"], args.passages), tempfile.TemporaryDirectory() as folder:
            encode_corpus(corpus, ours, Path(folder))
        with timed(rates["file order, 64"], args.passages):
            for start in range(0, args.passages, 64):
                batch = [corpus.passage(row).contents for row in range(start, min(start + 64, args.passages))]
                theirs.encode(batch, batch_size=64, normalize_embeddings=True, show_progress_bar=False)
    for name, values in rates.items():
        rounds = ", ".join(f"{value:.1f}" for value in values)
        print(f"{name}: {statistics.median(values):.1f} passages/s of processor time (rounds: {rounds})")
    ratios = [a / b for a, b in zip(*rates.values(), strict=True)]
    print(f"ratio {statistics.median(ratios):.2f} (rounds: {', '.join(f'{ratio:.2f}' for ratio in ratios)})")


@contextlib.contextmanager
def timed(rates: list[float], count: int) -> Iterator[None]:
    """Record `count` over the processor seconds of the block, without other work on the machine."""
    began = time.process_time()
    yield
    rates.append(count / (time.process_time() - began))


if __name__ == "__main__":
    main()
