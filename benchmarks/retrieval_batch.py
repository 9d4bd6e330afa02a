"""Queries a second: 256 in one call against one call each, in this process and through a server.

python -m benchmarks.retrieval_batch --questions nq_open_gold_1000.jsonl.gz --lexical DIR --dense DIR
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from benchmarks.harness import print_head, print_row, read_gzip, run, timed
from benchmarks.retrieval_server import running
from memenvs.retrieval.client import HTTPRetriever
from memenvs.retrieval.dense import DenseRetriever
from memenvs.retrieval.lexical import LexicalRetriever
from memenvs.retrieval.load import CachedRetriever
from memenvs.retrieval.protocol import Retriever

ENVIRONMENTS, K = 256, 3


def rate(work: Callable[[], object], rounds: int) -> float:
    """Queries a second, the median of some rounds of ENVIRONMENTS queries."""
    return ENVIRONMENTS / statistics.median(timed(work) for _ in range(rounds))


def compare(name: str, retriever: Retriever, queries: list[str], rounds: int) -> None:
    """Print the rates of single calls and of one joint call, and their ratio."""
    each = rate(lambda: [retriever.search([query], K) for query in queries], rounds)
    together = rate(lambda: retriever.search(queries, K), rounds)
    print_row(name, f"{each:,.0f}", f"{together:,.0f}", f"{together / each:.1f}")


def cached(retriever: Retriever, queries: list[str], rounds: int) -> None:
    """Print the rate of queries that the cache remembers."""
    remembering = CachedRetriever(retriever)
    remembering.search(queries, K)
    print_row("remembered queries", "", f"{rate(lambda: remembering.search(queries, K), rounds):,.0f}", "")


def main(*, questions: str, lexical: str, dense: str, rounds: int = 5) -> None:
    """Print the table."""
    distinct = [record["question"] for record in read_gzip(questions)[:ENVIRONMENTS]]
    groups = [distinct[i // 16] for i in range(ENVIRONMENTS)]
    print_head("256 queries", "one call each, queries/s", "one call", "ratio")
    bm25, flat = LexicalRetriever.open(lexical), DenseRetriever(dense, device="cpu")
    compare("lexical, all different", bm25, distinct, rounds)
    compare("lexical, 16 groups of 16 that ask the same", bm25, groups, rounds)
    with running(lexical, "--cache", "0") as server:
        compare("lexical behind the server, all different", HTTPRetriever(server.url), distinct, rounds)
    compare("MiniLM, flat, all different", flat, distinct, rounds)
    compare("MiniLM, flat, 16 groups of 16 that ask the same", flat, groups, rounds)
    cached(bm25, distinct, rounds)


if __name__ == "__main__":
    run(main)
