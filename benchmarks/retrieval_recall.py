"""Recall@k of the gold passage of NQ questions: BM25 and a dense index over the same corpus.

python -m benchmarks.retrieval_recall --corpus FILE.jsonl.gz --questions nq_open_gold.jsonl.gz --dense DIR
"""

from __future__ import annotations

import argparse
import gzip
import json

from memenvs.retrieval.dense import DenseRetriever
from memenvs.retrieval.lexical import LexicalRetriever
from memenvs.retrieval.protocol import Passage


def main() -> None:
    """Print a table row for each retriever."""
    parser = argparse.ArgumentParser(description="Recall@k of NQ's gold passages")
    parser.add_argument("--corpus", required=True, help="JSONL, gzipped")
    parser.add_argument("--questions", required=True, help='JSONL of {"question", "title", "text"}, gzipped')
    parser.add_argument("--dense", required=True, help="index folder over the same corpus")
    args = parser.parse_args()
    with gzip.open(args.questions, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    gold = [Passage.of("", record["title"], record["text"]).contents for record in records]
    questions = [record["question"] for record in records]
    print("| retriever | recall@1 | recall@3 | recall@10 |\n| --- | --- | --- | --- |")
    for name, retriever in (
        ("bm25", LexicalRetriever.from_file(args.corpus)),
        ("dense", DenseRetriever(args.dense)),
    ):
        found = [
            [passage.contents for passage in retriever.passages(ids)]
            for ids in retriever.search(questions, 10).ids
        ]
        cells = [sum(g in f[:k] for g, f in zip(gold, found, strict=True)) / len(gold) for k in (1, 3, 10)]
        print(f"| {name} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
