"""The cache in front of a retriever."""

from __future__ import annotations

from memenvs.retrieval.load import CachedRetriever
from memenvs.retrieval.protocol import Hits, Passage


class Counting:
    """Answers a query by itself, and notes what it was asked."""

    def __init__(self):
        self.calls: list[list[str]] = []

    def search(self, queries, k):
        self.calls.append(list(queries))
        return Hits([[query] * k for query in queries], [[1.0] * k for _ in queries])

    def passages(self, ids):
        return [Passage(id, id) for id in ids]


def test_a_remembered_query_is_not_searched_again():
    inner = Counting()
    cached = CachedRetriever(inner, 10)
    assert cached.search(["a", "b"], 2) == cached.search(["a", "b"], 2)
    assert inner.calls == [["a", "b"]]


def test_the_misses_of_a_batch_are_one_call_of_distinct_queries():
    inner = Counting()
    cached = CachedRetriever(inner, 10)
    cached.search(["a"], 1)
    assert cached.search(["b", "a", "c", "b"], 1).ids == [["b"], ["a"], ["c"], ["b"]]
    assert inner.calls == [["a"], ["b", "c"]]


def test_another_k_is_another_question():
    cached = CachedRetriever(Counting(), 10)
    assert [len(cached.search(["a"], k).ids[0]) for k in (1, 3)] == [1, 3]


def test_the_least_recently_used_answer_is_forgotten():
    inner = Counting()
    cached = CachedRetriever(inner, 2)
    for query in ("a", "b", "a", "c", "a", "b"):
        cached.search([query], 1)
    assert inner.calls == [["a"], ["b"], ["c"], ["b"]]


def test_a_batch_larger_than_the_cache_is_answered():
    cached = CachedRetriever(Counting(), 2)
    assert cached.search(list("abcde"), 1).ids == [["a"], ["b"], ["c"], ["d"], ["e"]]


def test_changing_an_answer_does_not_change_the_memory():
    cached = CachedRetriever(Counting(), 2)
    cached.search(["a"], 1).ids[0].append("mine")
    assert cached.search(["a"], 1).ids == [["a"]]
