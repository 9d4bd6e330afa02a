"""The retrieval client against a server that misbehaves on demand."""

from __future__ import annotations

import threading
import time

import pytest
from json_stub import JSONStub

from memenvs.core import http as json_http
from memenvs.core.http import ServerError
from memenvs.retrieval.client import HTTPRetriever
from memenvs.retrieval.load import load_retriever


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

    @property
    def proxied(self):
        """The path and the key for a proxy of every request."""
        keys = [headers["Proxy-Authorization"] for headers in self.headers]
        return list(zip(self.paths, keys, strict=True))


@pytest.fixture
def server():
    with Server() as server:
        yield server


def client(server: Server, **arguments) -> HTTPRetriever:
    return HTTPRetriever(server.url, pause=0.001, **arguments)


def test_a_search_speaks_the_protocol(server):
    hits = client(server).search(["a", "b"], 3)
    assert server.bodies == [{"queries": ["a", "b"], "topk": 3, "return_scores": True}]
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


def test_remembered_passages_are_bounded(server):
    retriever = client(server, remembered=2)
    retriever.search(["a", "b", "c"], 1)
    assert retriever.passages(["id of b", "id of c"])
    with pytest.raises(KeyError):
        retriever.passages(["id of a"])


def test_many_queries_are_several_requests(server):
    assert len(client(server, batch=2).search(list("abcde"), 1).ids) == 5
    assert [len(asked["queries"]) for asked in server.bodies] == [2, 2, 1]


@pytest.mark.parametrize("fault", [503, 500, 429, "drop"])
def test_a_passing_fault_is_tried_again(server, fault):
    server.script = [fault, fault]
    assert client(server, tries=3).search(["a"], 1).ids == [["id of a"]]


def test_a_lasting_fault_is_one_error_with_tries_and_reason(server):
    server.script = [503] * 9
    with pytest.raises(ServerError, match=r"in 3 tries over .* \(last: HTTP 503: status 503\)"):
        client(server, tries=3).search(["a"], 1)
    assert len(server.bodies) == 3


def test_a_refusal_is_not_tried_again(server):
    server.script = [422]
    with pytest.raises(ValueError, match="refused the request, HTTP 422: status 422"):
        client(server).search(["a"], 1)
    assert len(server.bodies) == 1


OTHERS = [
    b"<html>",
    b"[" * 100_000,
    {"result": 3},
    {"result": [[{"id": "1"}]]},
    {"result": [[{"document": {"id": "1", "contents": "x"}, "score": 10**400}]]},
    {"answers": []},
]


@pytest.mark.parametrize("body", OTHERS, ids=lambda body: f"{body!r:.40}")
def test_an_answer_in_another_protocol_is_named(server, body):
    server.script = [body]
    with pytest.raises(ServerError, match="does not speak the protocol"):
        client(server).search(["a"], 1)


def test_a_wrong_number_of_answers_is_refused(server):
    server.script = [{"result": []}]
    with pytest.raises(ServerError, match="0 answers to 1 queries"):
        client(server).search(["a"], 1)


def test_an_unreachable_server_names_the_command_that_starts_one():
    away = HTTPRetriever("http://127.0.0.1:9", tries=2, pause=0.001)
    with pytest.raises(ServerError, match=r"memenvs serve retriever"):
        away.search(["a"], 1)


def test_a_server_that_hangs_is_an_error(server):
    release = threading.Event()
    server.answer = lambda path, fields: release.wait(5) and None
    with pytest.raises(ServerError, match=r"TimeoutError|timed out"):
        client(server, tries=1, timeout=0.1).search(["a"], 1)
    release.set()


def test_requests_one_after_another_share_a_connection(server):
    retriever = client(server)
    for query in "abc":
        retriever.search([query], 1)
    assert server.connections == 1


def test_a_forked_process_does_not_use_its_parents_connection(server, monkeypatch):
    retriever = client(server)
    retriever.search(["a"], 1)
    monkeypatch.setattr(json_http.os, "getpid", lambda: -1)
    retriever.search(["b"], 1)
    assert server.connections == 2


def test_a_long_query_is_truncated_before_it_is_sent(server):
    client(server).search(["x" * 100_000 + "\ud800"], 1)
    assert server.bodies[0]["queries"] == ["x" * 2_000]


def test_the_address_of_a_server_is_a_spec(server):
    assert load_retriever(server.url).search(["a"], 1).ids == [["id of a"]]


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://"])
def test_a_malformed_address_is_refused(url):
    with pytest.raises(ValueError, match="an address is http://host:port"):
        HTTPRetriever(url)


@pytest.fixture
def proxy(server, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, server.url.replace("//", "//ann:p%40ss@"))
    monkeypatch.setenv("no_proxy", "inside.example")
    return server


AUTHORIZATION = "Basic YW5uOnBAc3M="  # ann:p@ss


def test_a_server_elsewhere_is_asked_through_the_proxy_of_the_environment(proxy):
    assert HTTPRetriever("http://search.example:8000/v2").search(["a"], 1).ids == [["id of a"]]
    assert proxy.proxied == [("http://search.example:8000/v2/retrieve", AUTHORIZATION)]


def test_a_proxy_tunnels_to_a_server_of_https(proxy):
    with pytest.raises(ServerError, match="Tunnel connection failed: 403"):
        HTTPRetriever("https://search.example", tries=1).search(["a"], 1)
    assert proxy.proxied == [("search.example:443", AUTHORIZATION)]


def test_this_machine_and_what_no_proxy_names_are_asked_directly(proxy):
    assert HTTPRetriever(proxy.url).search(["a"], 1).ids == [["id of a"]]
    assert proxy.proxied == [("/retrieve", None)]
    with pytest.raises(ServerError):
        HTTPRetriever("http://inside.example:9", tries=1).search(["a"], 1)
    assert len(proxy.proxied) == 1
