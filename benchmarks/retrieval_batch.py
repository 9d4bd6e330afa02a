"""Queries a second: 256 in one call against one call each, in this process and through a server.

python -m benchmarks.retrieval_batch --questions nq_open_gold_1000.jsonl.gz --lexical DIR --dense DIR
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import time
from collections.abc import Callable

from benchmarks.retrieval_server import running
from memenvs.retrieval.client import HTTPRetriever
from memenvs.retrieval.dense import DenseRetriever
from memenvs.retrieval.lexical import LexicalRetriever
from memenvs.retrieval.load import CachedRetriever
from memenvs.retrieval.protocol import Retriever

ENVIRONMENTS, K = 256, 3


def rate(work: Callable[[], object], rounds: int) -> float:
    """Queries a second, the median of some rounds of ENVIRONMENTS queries."""
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return ENVIRONMENTS / statistics.median(seconds)


def row(name: str, retriever: Retriever, queries: list[str], rounds: int) -> None:
    """Print the rates of single calls and of one joint call, and their ratio."""
    each = rate(lambda: [retriever.search([query], K) for query in queries], rounds)
    together = rate(lambda: retriever.search(queries, K), rounds)
    print(f"| {name} | {each:,.0f} | {together:,.0f} | {together / each:.1f} |", flush=True)


def cached(retriever: Retriever, queries: list[str], rounds: int) -> None:
    """Print the rate of queries that the cache remembers."""
    remembering = CachedRetriever(retriever)
    remembering.search(queries, K)
    print(
        f"| remembered queries | | {rate(lambda: remembering.search(queries, K), rounds):,.0f} | |",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="One call against one call each")
    parser.add_argument("--questions", required=True)
    parser.add_argument("--lexical", required=True)
    parser.add_argument("--dense", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with gzip.open(args.questions, "rt", encoding="utf-8") as lines:
        distinct = [json.loads(line)["question"] for line in lines][:ENVIRONMENTS]
    groups = [distinct[i // 16] for i in range(ENVIRONMENTS)]
    print("| 256 queries | one call each, queries/s | one call | ratio |\n| --- | --- | --- | --- |")
    lexical, dense = LexicalRetriever.open(args.lexical), DenseRetriever(args.dense, device="cpu")
    row("lexical, all different", lexical, distinct, args.rounds)
    row("lexical, 16 groups of 16 that ask the same", lexical, groups, args.rounds)
    with running(args.lexical, "--cache", "0") as server:
        row("lexical behind the server, all different", HTTPRetriever(server.url), distinct, args.rounds)
    row("MiniLM, flat, all different", dense, distinct, args.rounds)
    row("MiniLM, flat, 16 groups of 16 that ask the same", dense, groups, args.rounds)
    cached(lexical, distinct, args.rounds)


if __name__ == "__main__":
    main()
