"""Passages encoded a second: batches of similar length (ours), and file order in batches of 64, in turn.

python -m benchmarks.retrieval_build --corpus wiki_passages.jsonl.gz --encoder MODEL_DIR

Passages are drawn at random and kept in file order. With more `--threads` of torch, waiting counts as work.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from benchmarks.harness import in_turns, run
from memenvs.retrieval.corpus import Corpus, read_corpus
from memenvs.retrieval.dense import encode_corpus
from memenvs.retrieval.encoder import Encoder


def main(*, corpus: str, encoder: str, passages: int = 1_536, rounds: int = 3, threads: int = 1) -> None:
    """Print the rates of each round and the ratio of their medians."""
    torch.set_num_threads(threads)
    whole = Corpus.from_passages(read_corpus(corpus))
    chosen = np.sort(np.random.default_rng(0).choice(len(whole), passages, replace=False))
    subset = Corpus.from_passages(whole.passage(int(row)) for row in chosen)
    ours, theirs = Encoder(encoder, device="cpu"), SentenceTransformer(encoder, device="cpu")
    ours.passages(["warm"] * 64)

    def by_length() -> None:
        with tempfile.TemporaryDirectory() as folder:
            encode_corpus(subset, ours, Path(folder))

    def file_order() -> None:
        for start in range(0, passages, 64):
            batch = [subset.passage(row).contents for row in range(start, min(start + 64, passages))]
            theirs.encode(batch, batch_size=64, normalize_embeddings=True, show_progress_bar=False)

    seconds = in_turns({"by length": by_length, "file order, 64": file_order}, rounds)
    rates = {name: [passages / one for one in each] for name, each in seconds.items()}
    for name, values in rates.items():
        listed = ", ".join(f"{value:.1f}" for value in values)
        print(f"{name}: {statistics.median(values):.1f} passages/s of processor time (rounds: {listed})")
    ratios = [a / b for a, b in zip(*rates.values(), strict=True)]
    print(f"ratio {statistics.median(ratios):.2f} (rounds: {', '.join(f'{ratio:.2f}' for ratio in ratios)})")


if __name__ == "__main__":
    run(main)
