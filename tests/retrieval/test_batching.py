"""Concurrent requests in one retriever call."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from memenvs.retrieval.batching import Batcher, TooManyWaiting


def echo(queries, k):
    return [[(query, query, float(rank)) for rank in range(k)] for query in queries]


def run(batcher_of, work):
    async def main():
        batcher = batcher_of()
        try:
            return await work(batcher)
        finally:
            await batcher.close()

    return asyncio.run(main())


def run_during_a_search(work, **settings):
    """What `work(batcher)` returns, whose requests come during a search; the queries of later calls."""
    calls, started, release = [], threading.Event(), threading.Event()

    def search(queries, k):
        if queries == ["first"]:
            started.set()
            release.wait(10)
        else:
            calls.append(queries)
        return echo(queries, k)

    async def main(batcher):
        first = asyncio.ensure_future(batcher.submit(["first"], 1))
        while not started.is_set():
            await asyncio.sleep(0.001)
        asked = asyncio.ensure_future(work(batcher))
        await asyncio.sleep(0.01)
        release.set()
        await first
        return await asked

    return run(lambda: Batcher(search, **settings), main), calls


def test_requests_that_come_during_a_search_are_one_call():
    async def work(batcher):
        return await asyncio.gather(*(batcher.submit([f"q{i}"], 1) for i in range(20)))

    answers, calls = run_during_a_search(work)
    assert list(map(len, calls)) == [20]
    assert [answer[0][0][0] for answer in answers] == [f"q{i}" for i in range(20)]


def test_clients_that_ask_again_are_waited_for_and_a_single_one_waits_for_nobody():
    calls = []

    def search(queries, k):
        calls.append(queries)
        time.sleep(0.05)
        return echo(queries, k)

    async def client(batcher, name):
        for turn in range(4):
            await batcher.submit([f"{name}{turn}"], 1)

    async def work(batcher):
        await asyncio.wait_for(client(batcher, "alone"), 60)  # it would wait an hour a turn
        await asyncio.gather(*(client(batcher, f"{n} ") for n in range(8)))

    run(lambda: Batcher(search, wait=3600.0), work)
    assert max(map(len, calls)) == 8


def test_requests_of_different_k_get_their_own():
    async def work(batcher):
        return await asyncio.gather(batcher.submit(["a"], 1), batcher.submit(["b", "c"], 3))

    (one, two), _ = run_during_a_search(work)
    assert ([len(a) for a in one], [len(a) for a in two]) == ([1], [3, 3])


@pytest.mark.parametrize(("most", "sizes"), [(7, [6, 3]), (1, [3, 3, 3])])
def test_a_batch_is_split_between_requests(most, sizes):
    async def work(batcher):
        await asyncio.gather(*(batcher.submit([f"{i}{j}" for j in range(3)], 1) for i in range(3)))

    _, calls = run_during_a_search(work, max_batch=most)
    assert list(map(len, calls)) == sizes


def test_equal_queries_are_searched_once_and_answered_each():
    async def work(batcher):
        return await asyncio.gather(batcher.submit(["a", "b", "a"], 1), batcher.submit(["b"], 2))

    (one, two), calls = run_during_a_search(work)
    assert calls == [["a", "b"]]
    assert [[hit[0] for hit in answer] for answer in (*one, *two)] == [["a"], ["b"], ["a"], ["b", "b"]]


def test_a_request_that_was_cancelled_before_its_turn_is_not_searched():
    async def work(batcher):
        gone = asyncio.ensure_future(batcher.submit(["gone"], 1))
        kept = asyncio.ensure_future(batcher.submit(["kept"], 1))
        await asyncio.sleep(0)
        gone.cancel()
        await kept
        return batcher.waiting

    assert run_during_a_search(work) == (0, [["kept"]])


def test_a_failed_search_fails_only_its_own_requests():
    def search(queries, k):
        if "bad" in queries:
            raise RuntimeError("boom")
        return echo(queries, k)

    async def work(batcher):
        with pytest.raises(RuntimeError, match="boom"):
            await batcher.submit(["bad"], 1)
        return await batcher.submit(["good"], 1)

    assert run(lambda: Batcher(search), work) == [[("good", "good", 0.0)]]


def test_a_faulty_request_in_a_batch_fails_alone():
    def search(queries, k):
        if "bad" in queries:
            raise ValueError("boom")
        return echo(queries, k)

    async def work(batcher):
        asked = (batcher.submit([query], 1) for query in ("a", "bad", "b"))
        return await asyncio.gather(*asked, return_exceptions=True)

    first, failed, last = run(lambda: Batcher(search, wait=0.05), work)
    assert (first, repr(failed), last) == ([[("a", "a", 0.0)]], "ValueError('boom')", [[("b", "b", 0.0)]])


def test_a_batch_waits_only_once_for_an_unreachable_server():
    calls = []

    def search(queries, k):
        calls.append(queries)
        raise ConnectionError("gone")

    async def work(batcher):
        return await asyncio.gather(*(batcher.submit([q], 1) for q in "abc"), return_exceptions=True)

    assert [str(error) for error in run(lambda: Batcher(search, wait=0.05), work)] == ["gone"] * 3
    assert len(calls) == 1


def test_too_many_waiting_queries_are_refused():
    release = threading.Event()

    def search(queries, k):
        release.wait(5)
        return echo(queries, k)

    async def work(batcher):
        first = asyncio.ensure_future(batcher.submit(["a", "b"], 1))
        await asyncio.sleep(0.02)
        with pytest.raises(TooManyWaiting, match="2 queries are waiting, the limit is 3"):
            await batcher.submit(["c", "d"], 1)
        release.set()
        return await first

    assert len(run(lambda: Batcher(search, max_pending=3), work)) == 2


def test_closing_answers_waiting_requests():
    async def main():
        batcher = Batcher(echo, wait=0.05)
        waiting = asyncio.ensure_future(batcher.submit(["late"], 1))
        await asyncio.sleep(0)
        await batcher.close()
        return await waiting

    assert asyncio.run(main())[0][0][0] == "late"


def test_closing_does_not_wait_longer_than_its_patience():
    release = threading.Event()

    def search(queries, k):
        release.wait(30)
        return echo(queries, k)

    async def main():
        batcher = Batcher(search)
        waiting = asyncio.ensure_future(batcher.submit(["slow"], 1))
        await asyncio.sleep(0)
        await batcher.close(patience=0.05)
        over = waiting.done()
        waiting.cancel()
        return over

    assert asyncio.run(main()) is False
    release.set()
