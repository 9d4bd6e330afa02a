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

from benchmarks.harness import arguments, in_turns
from memenvs.retrieval.corpus import Corpus, read_corpus
from memenvs.retrieval.dense import encode_corpus
from memenvs.retrieval.encoder import Encoder


def main() -> None:
    """Print the rates of each round and the ratio of their medians."""
    args = arguments(__doc__, corpus=str, encoder=str, passages=1_536, rounds=3, threads=1)
    torch.set_num_threads(args.threads)
    whole = Corpus.from_passages(read_corpus(args.corpus))
    chosen = np.sort(np.random.default_rng(0).choice(len(whole), args.passages, replace=False))
    corpus = Corpus.from_passages(whole.passage(int(row)) for row in chosen)
    ours, theirs = Encoder(args.encoder, device="cpu"), SentenceTransformer(args.encoder, device="cpu")
    ours.passages(["warm"] * 64)

    def by_length() -> None:
        with tempfile.TemporaryDirectory() as folder:
            encode_corpus(corpus, ours, Path(folder))

    def file_order() -> None:
        for start in range(0, args.passages, 64):
            batch = [corpus.passage(row).contents for row in range(start, min(start + 64, args.passages))]
            theirs.encode(batch, batch_size=64, normalize_embeddings=True, show_progress_bar=False)

    seconds = in_turns({"by length": by_length, "file order, 64": file_order}, args.rounds)
    rates = {name: [args.passages / one for one in rounds] for name, rounds in seconds.items()}
    for name, values in rates.items():
        rounds = ", ".join(f"{value:.1f}" for value in values)
        print(f"{name}: {statistics.median(values):.1f} passages/s of processor time (rounds: {rounds})")
    ratios = [a / b for a, b in zip(*rates.values(), strict=True)]
    print(f"ratio {statistics.median(ratios):.2f} (rounds: {', '.join(f'{ratio:.2f}' for ratio in ratios)})")


if __name__ == "__main__":
    main()
