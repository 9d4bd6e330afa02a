"""Recall@k of the gold passage of NQ questions: BM25 and a dense index over the same corpus.

python -m benchmarks.retrieval_recall --corpus FILE.jsonl.gz --questions nq_open_gold.jsonl.gz --dense DIR

A line of the questions is {"question", "title", "text"}; DIR is an index over the same corpus.
"""

from __future__ import annotations

from benchmarks.harness import print_head, print_row, read_gzip, run
from memenvs.retrieval.dense import DenseRetriever
from memenvs.retrieval.lexical import LexicalRetriever
from memenvs.retrieval.protocol import Passage


def main(*, corpus: str, questions: str, dense: str) -> None:
    """Print a table row for each retriever."""
    records = read_gzip(questions)
    gold = [Passage.of("", record["title"], record["text"]).contents for record in records]
    texts = [record["question"] for record in records]
    print_head("retriever", "recall@1", "recall@3", "recall@10")
    for name, retriever in (
        ("bm25", LexicalRetriever.from_file(corpus)),
        ("dense", DenseRetriever(dense)),
    ):
        found = [
            [passage.contents for passage in retriever.passages(ids)]
            for ids in retriever.search(texts, 10).ids
        ]
        cells = [sum(g in f[:k] for g, f in zip(gold, found, strict=True)) / len(gold) for k in (1, 3, 10)]
        print_row(name, *(f"{cell:.3f}" for cell in cells))


if __name__ == "__main__":
    run(main)
