"""The retrieval client against a server that misbehaves on demand."""

from __future__ import annotations

import gc
import os
import threading
import time

import pytest
from json_stub import JSONStub

from memenvs.core.errors import ServerError
from memenvs.retrieval.client import HTTPRetriever
from memenvs.retrieval.load import load_retriever
from memenvs.retrieval.protocol import read_token


class Server(JSONStub):
    """Answers each query with one passage; `script` holds what to do instead, first things first."""

    def __init__(self):
        super().__init__()
        self.script: list[object] = []

    def answer(self, path, fields):
        step = self.script.pop(0) if self.script else 200
        if step == "drop":
            return None
        found = [
            [{"document": {"id": f"id of {q}", "contents": f'"{q}"\ntext'}, "score": 0.5}]
            for q in fields["queries"]
        ]
        if not isinstance(step, int):
            return 200, step
        return step, {"result": found} if step == 200 else {"detail": f"status {step}"}


@pytest.fixture
def server():
    with Server() as server:
        yield server


def client(server: Server, **arguments) -> HTTPRetriever:
    return HTTPRetriever(server.url, pause=0.001, **arguments)


def test_a_search_speaks_the_protocol(server):
    hits = client(server).search(["a", "b"], 3)
    assert server.bodies == [{"queries": ["a", "b"], "topk": 3, "topk_rerank": 3, "return_scores": True}]
    assert hits == ([["id of a"], ["id of b"]], [[0.5], [0.5]])


def test_a_connection_that_the_server_has_closed_costs_no_try(server):
    server.hangs_up, retriever = True, client(server, tries=1)
    for count in (1, 2):
        retriever.search(["a"], 1)
        while server.closed < count:
            time.sleep(0.01)
    assert server.connections == 2


def test_a_passage_that_a_search_returned_is_found_by_id(server):
    retriever = client(server)
    retriever.search(["a"], 1)
    assert retriever.passages(["id of a"])[0].title == "a"


def test_a_passage_that_no_search_returned_is_a_key_error(server):
    with pytest.raises(KeyError, match=r"no recent search of .* returned passage 'x'"):
        client(server).passages(["x"])


def test_many_queries_are_several_requests(server):
    assert len(client(server, batch=2).search(list("abcde"), 1).ids) == 5
    assert [len(asked["queries"]) for asked in server.bodies] == [2, 2, 1]


TEXT = '"Town 1"\nIt lies by a river.'
HITS = {
    "dense": {"document": {"id": 7, "contents": TEXT}, "score": 2.5},
    "BM25": {"document": {"title": "Town 1", "text": "It lies by a river.", "contents": TEXT}, "score": 2.5},
    "title and text": {"document": {"title": "Town 1", "text": "It lies by a river."}, "score": 2.5},
    "online": {"document": {"contents": TEXT}},
    "reranker": {"document": TEXT, "score": 2.5},
    "without scores": {"id": "7", "contents": TEXT},
    "texts alone": TEXT,
}


@pytest.mark.parametrize("hit", HITS.values(), ids=HITS)
@pytest.mark.parametrize("page", ["", "/retrieve", "/retrieve/"])
def test_every_kind_of_server_like_search_r1s_answers(server, hit, page):
    server.script = [{"result": [[hit]]}]
    retriever = HTTPRetriever(server.url + page, tries=1)
    hits = retriever.search(["a"], 3)
    assert hits.scores == [[hit.get("score", 1.0) if isinstance(hit, dict) else 1.0]]
    assert [passage.contents for passage in retriever.passages(hits.ids[0])] == [TEXT]
    assert server.paths == ["/retrieve"]


def test_hits_without_ids_and_scores_get_ids_of_their_contents_and_falling_scores(server):
    server.script = [{"result": [["a", "b", "a"]]}, {"result": [["b"]]}]
    (first, second, third), scores = (rows[0] for rows in client(server).search(["x"], 3))
    assert first == third != second
    assert scores == [1.0, 1 / 2, 1 / 3]
    assert client(server).search(["y"], 3).ids == [[second]]


def test_hits_beyond_k_are_left_out(server):
    server.script = [{"result": [["a", "b", "c", "d"]]}]
    assert len(client(server).search(["x"], 2).ids[0]) == 2


@pytest.mark.parametrize("page", ["", "/batch_search", "/search"])
def test_a_server_like_recalls_answers(server, page):
    def answer(path, fields):
        if path != "/v2/batch_search":
            return 404, {"detail": "Not Found"}
        rows = [[{"id": q, "contents": f"text of {q}"}] * fields["top_n"] for q in fields["query"]]
        return 200, [rows, [[0.5] * fields["top_n"] for _ in rows]]

    server.answer = answer
    retriever = HTTPRetriever(f"{server.url}/v2{page}", tries=1)
    assert retriever.search(["a", "b"], 1) == ([["a"], ["b"]], [[0.5], [0.5]])
    assert retriever.passages(["b"])[0].contents == "text of b"
    assert retriever.search(["c"], 1).ids == [["c"]]
    asked = {"query": ["a", "b"], "top_n": 1, "return_score": True}
    assert (asked in server.bodies, server.paths.count("/v2/retrieve")) == (True, page == "")


def test_a_blank_query_finds_nothing_and_is_not_sent(server):
    assert client(server).search(["", "a", " \n"], 1).ids == [[], ["id of a"], []]
    assert server.bodies[0]["queries"] == ["a"]


def test_the_query_of_an_address_is_sent_and_not_shown(server):
    retriever = HTTPRetriever(f"{server.url}/retrieve?key=secret", tries=1)
    retriever.search(["a"], 1)
    assert server.paths == ["/retrieve?key=secret"]
    server.script = [403]
    with pytest.raises(ServerError) as refused:
        retriever.search(["b"], 1)
    assert "secret" not in str(refused.value)


def test_a_file_of_a_token_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "token").write_bytes(b"s\xe9cret")
    with pytest.raises(ValueError, match="token is not UTF-8"):
        read_token(tmp_path / "token")


def test_a_token_that_fits_in_no_header_is_refused_without_being_shown(monkeypatch, tmp_path):
    (tmp_path / "token").write_text("s3cret\x07")
    monkeypatch.setenv("MEMENVS_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(ValueError, match="unprintable character") as refused:
        HTTPRetriever("http://127.0.0.1:9")
    assert "s3cret" not in str(refused.value)


def test_a_passing_fault_is_tried_again(server):
    server.script = [503, "drop"]
    assert client(server, tries=3).search(["a"], 1).ids == [["id of a"]]


OTHERS = [
    b"<html>",
    b"[" * 100_000,
    {"result": 3},
    {"result": [[{"id": "1"}]]},
    {"result": [[3]]},
    {"result": [[{"document": {"title": "a"}, "score": 1.0}]]},
    [[[]], [[0.5]]],
    {"result": [[{"document": {"id": "1", "contents": "x"}, "score": 10**400}]]},
    {"answers": []},
    {"result": []},
]


@pytest.mark.parametrize("body", OTHERS, ids=lambda body: f"{body!r:.40}")
def test_an_answer_in_another_protocol_is_named(server, body):
    server.script = [body]
    gc.collect()  # what other tests left must not be finalised at the depth that a parser reaches
    with pytest.raises(ServerError, match="does not speak the protocol"):
        client(server).search(["a"], 1)


def test_a_server_that_hangs_is_an_error(server):
    release = threading.Event()
    server.answer = lambda path, fields: release.wait(5) and None
    with pytest.raises(ServerError, match=r"TimeoutError|timed out"):
        client(server, tries=1, timeout=0.1).search(["a"], 1)
    release.set()


def test_requests_one_after_another_share_a_connection_but_not_with_a_forked_process(server, monkeypatch):
    retriever = client(server)
    for query in "abc":
        retriever.search([query], 1)
    assert server.connections == 1
    monkeypatch.setattr(os, "getpid", lambda: -1)
    retriever.search(["d"], 1)
    assert server.connections == 2


def test_a_long_query_is_truncated_before_it_is_sent(server):
    client(server).search(["x" * 100_000 + "\ud800"], 1)
    assert server.bodies[0]["queries"] == ["x" * 2_000]


def test_the_address_of_a_server_is_a_spec(server):
    assert load_retriever(server.url).search(["a"], 1).ids == [["id of a"]]


def test_a_server_elsewhere_is_asked_through_the_proxy_of_the_environment(server, monkeypatch):
    for name in ("HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", server.url.replace("//", "//ann:p%40ss@"))
    assert HTTPRetriever("http://search.example:8000/v2").search(["a"], 1).ids == [["id of a"]]
    assert server.paths == ["http://search.example:8000/v2/retrieve"]
    assert server.headers[0]["Proxy-Authorization"] == "Basic YW5uOnBAc3M="  # ann:p@ss
    assert HTTPRetriever(server.url).search(["a"], 1).ids == [["id of a"]]
    assert server.paths[1:] == ["/retrieve"]  # this machine is asked directly
