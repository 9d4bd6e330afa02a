"""The server's application, and the real server as a process called over loopback."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import uvicorn
from starlette.exceptions import HTTPException

from memenvs.commands import main
from memenvs.core.errors import ServerError
from memenvs.core.servers import allowed_hosts
from memenvs.retrieval import Corpus
from memenvs.retrieval import server as server_module
from memenvs.retrieval.build import build_index
from memenvs.retrieval.client import HTTPRetriever
from memenvs.retrieval.lexical import LexicalRetriever
from memenvs.retrieval.protocol import Hits, Passage
from memenvs.retrieval.server import Batcher, create_app

CORPUS = Corpus.from_documents(
    [(f"d{i}", f"Title {i}", f"word{i % 7} and word{i % 11} of passage {i}") for i in range(300)]
)


@pytest.fixture(scope="module")
def local():
    return LexicalRetriever(CORPUS)


@pytest.fixture
def app(local):
    return create_app(local, {"passages": 300}, default_k=2)


def post(app, *bodies, path="/retrieve", headers=None):
    """Status and JSON of the answers to requests that are sent at once."""

    async def ask_all():
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://here", headers=headers) as client:
            contents = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies]
            return await asyncio.gather(*(client.post(path, content=content) for content in contents))

    return [(response.status_code, response.json()) for response in asyncio.run(ask_all())]


def test_with_scores_documents_come_with_their_scores(app, local):
    ids, scores = local.search(["word3"], 3)
    expected = [
        {"document": {"id": passage.id, "contents": passage.contents}, "score": score}
        for passage, score in zip(local.passages(ids[0]), scores[0], strict=True)
    ]
    body = {"queries": ["word3"], "topk": 3, "return_scores": True}
    assert post(app, body) == [(200, {"result": [expected]})]


@pytest.mark.parametrize("ask", [{"queries": ["word1"], "topk": None}, {"queries": ["word1 \ud800"]}])
def test_a_topk_of_null_is_the_servers_and_without_scores_documents_come_bare(app, local, ask):
    passages = local.passages(local.search(["word1"], 2).ids[0])
    expected = [{"id": passage.id, "contents": passage.contents} for passage in passages]
    assert post(app, ask) == [(200, {"result": [expected]})]


def test_no_queries_have_no_answers(app):
    assert post(app, {"queries": []}) == [(200, {"result": []})]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"not json", 422, "not JSON"),
        (b"\xff\xfe", 422, "not JSON"),
        (b"[" * 100_000, 422, "not JSON"),
        ([], 422, "the request must be an object, got []; send {"),
        ({"queries": [1]}, 422, "request.queries[0] must be a string, got 1"),
        ({"queries": ["a"], "topk": 0}, 422, "topk must be a whole number, at least 1 and at most 100"),
        ({"queries": ["a"], "topk": True}, 422, "got True"),
        ({"queries": ["a"] * 1_024, "topk": 100}, 422, "102400 queries times topk, the limit is 10240"),
        (b" " * 16_000_001, 413, "a body of more than 16000000 bytes"),
    ],
    ids=range(9),
)
def test_a_bad_request_is_refused_with_its_reason_as_json(app, body, status, reason):
    ((answered, answer),) = post(app, body)
    assert answered == status
    assert reason in answer["detail"]


@pytest.mark.parametrize("path", ["/nowhere", "/retrieve/"])
def test_an_unknown_path_is_a_json_error(app, path):
    assert post(app, {}, path=path) == [(404, {"detail": "Not Found"})]


def test_a_web_page_is_refused(app):
    ((status, _),) = post(app, {"queries": ["word1"]}, headers={"Origin": "http://rebound.example:8000"})
    assert status == 403


@pytest.mark.parametrize("path", ["/retrieve", "/health"])
def test_a_server_with_a_token_answers_only_those_who_send_it(local, path):
    app = create_app(local, token="secret")
    for headers in ({}, {"Authorization": "Bearer secret2"}, {"Authorization": "secret"}):
        ((status, answer),) = post(app, {"queries": ["word1"]}, headers=headers)
        assert status == 401
        assert "set MEMENVS_TOKEN_FILE" in answer["detail"]
    assert post(app, {"queries": []}, headers={"Authorization": "Bearer secret"})[0][0] == 200


def test_an_answer_of_too_many_bytes_is_refused_before_it_is_made(app, monkeypatch):
    monkeypatch.setattr(server_module, "MAX_ANSWER", 200)
    assert [status for status, _ in post(app, {"queries": ["word1"], "topk": 9})] == [422]


class Echo:
    """Finds every query itself, in calls that it notes; "first" waits until it is released, "bad" fails."""

    def __init__(self):
        self.calls, self.started, self.released = [], threading.Event(), threading.Event()

    def search(self, queries, k):
        if "first" in queries:
            self.started.set()
            self.released.wait(10)
        self.calls.append((queries, k))
        if "bad" in queries:
            raise ConnectionError("gone")
        return Hits([[query] * k for query in queries], [[0.5] * k for _ in queries])

    def passages(self, ids):
        return [Passage(id, f'"A"\n{id}\ud800') for id in ids]


def gathered(echo, *requests):
    """What a batcher answers to requests (queries, k) that come at once."""

    async def ask_all():
        batcher = Batcher(echo)
        return await asyncio.gather(
            *(batcher.search(*request) for request in requests), return_exceptions=True
        )

    return asyncio.run(ask_all())


def answer(query, k=1):
    return [(f'{{"id":"{query}","contents":"\\"A\\"\\n{query}\ufffd"}}'.encode(), b"0.5")] * k


def test_requests_that_come_at_once_are_one_call_of_different_queries():
    echo = Echo()
    answers = gathered(echo, (["a", "b", "a"], 1), (["b"], 1))
    assert answers == [[answer("a"), answer("b"), answer("a")], [answer("b")]]
    assert echo.calls == [(["a", "b"], 1)]


def test_requests_for_another_number_of_passages_are_another_call():
    echo = Echo()
    assert gathered(echo, (["a"], 1), (["a"], 3)) == [[answer("a")], [answer("a", 3)]]
    assert echo.calls == [(["a"], 1), (["a"], 3)]


def test_a_full_batch_takes_no_more_requests(monkeypatch):
    monkeypatch.setattr(server_module, "MAX_BATCH", 3)
    echo = Echo()
    gathered(echo, (["a", "b"], 1), (["c"], 1), (["d"], 1))
    assert [len(queries) for queries, _ in echo.calls] == [3, 1]


def test_a_search_that_fails_fails_its_batch_and_no_other():
    first, second, other = gathered(Echo(), (["a"], 1), (["bad"], 1), (["c"], 2))
    assert (repr(first), repr(second)) == ("ConnectionError('gone')",) * 2
    assert other == [answer("c", 2)]


def test_a_failed_search_is_an_answer_of_status_500_that_hides_why():
    ((status, told),) = post(create_app(Echo()), {"queries": ["bad"]})
    assert status == 500
    assert "gone" not in told["detail"]


def test_requests_that_come_during_a_search_share_the_next_also_when_one_is_cancelled():
    echo = Echo()

    async def ask_all():
        batcher = Batcher(echo)
        first = asyncio.create_task(batcher.search(["first"], 1))
        await asyncio.to_thread(echo.started.wait, 10)
        cancelled, kept = (asyncio.create_task(batcher.search([query], 1)) for query in "ab")
        await asyncio.sleep(0.01)
        cancelled.cancel()
        echo.released.set()
        return await first, await kept, batcher.counts

    first, kept, counts = asyncio.run(ask_all())
    assert (first, kept) == ([answer("first")], [answer("b")])
    assert [queries for queries, _ in echo.calls] == [["first"], ["a", "b"]]
    assert counts == {"requests": 2, "batches": 2, "waiting": 0}


def test_too_many_waiting_queries_are_refused(monkeypatch):
    monkeypatch.setattr(server_module, "MAX_WAITING", 3)
    answered, refused = gathered(Echo(), (["a", "b"], 1), (["c", "d"], 1))
    assert answered == [answer("a"), answer("b")]
    assert isinstance(refused, HTTPException)
    assert refused.status_code == 503


HELD = """
import os, sys, time
from memenvs.commands import main
from memenvs.retrieval.lexical import LexicalRetriever
search = LexicalRetriever.search
def search_later(self, queries, k):
    while os.path.exists(os.environ["HOLD"]):
        time.sleep(0.01)
    return search(self, queries, k)
LexicalRetriever.search = search_later
main(['serve', 'retriever', *sys.argv[1:]])
"""


class Process:
    """A server on a free port, and what it wrote to its log by the time it listened."""

    def __init__(self, index, *arguments: str, program=("-m", "memenvs", "serve", "retriever")):
        command = [sys.executable, *program, "--index", str(index), "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        self.log = ""
        while not (address := re.search(r"running on (http://([\d.]+):(\d+))", self.log)):
            line = self.process.stderr.readline()
            assert line, self.log
            self.log += line
        self.url, self.host, self.port = address[1], address[2], int(address[3])

    def post(self, query: str) -> tuple[int, dict]:
        response = httpx.post(f"{self.url}/retrieve", json={"queries": [query]}, trust_env=False)
        return response.status_code, response.json()

    def health(self) -> dict:
        return httpx.get(f"{self.url}/health", trust_env=False).json()

    def stop(self) -> int:
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        code = self.process.wait(30)
        assert self.process.stderr
        self.log += self.process.stderr.read()
        self.process.stderr.close()
        return code


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server") / "index"
    build_index(CORPUS, folder, "lexical")
    return folder


@pytest.fixture(scope="module")
def server(index, tmp_path_factory):
    token = tmp_path_factory.mktemp("token") / "token"
    token.write_text("secret\n")
    server = Process(index, "--token-file", str(token))
    server.token = token
    yield server
    server.stop()


@pytest.mark.parametrize("k", [3, 100])
def test_the_client_gets_the_answers_of_the_index_by_its_token(server, local, k, monkeypatch):
    with pytest.raises(ServerError, match="HTTP 401"):
        HTTPRetriever(server.url).search(["word1"], 3)
    monkeypatch.setenv("MEMENVS_TOKEN_FILE", str(server.token))
    retriever = HTTPRetriever(server.url)
    queries = [f"word{i} " * (4_000 if i == 1 else 1) for i in range(120)]  # at k = 100 in several requests
    hits = retriever.search(queries, k)
    assert hits == local.search(queries, k)
    assert retriever.passages(hits.ids[4]) == local.passages(hits.ids[4])


def test_it_listens_on_loopback_only(server):
    assert server.host == "127.0.0.1"
    with pytest.raises(OSError, match=r"refused|unreachable|assign|timed out"):
        socket.create_connection(("127.0.0.2", server.port), timeout=1).close()  # 0.0.0.0 would take it


@pytest.mark.parametrize("path", ["/health", "/retrieve", "/nowhere"])
def test_a_request_that_names_another_host_is_refused(server, path):
    headers = {"Authorization": "Bearer secret", "Host": f"evil.example:{server.port}"}
    assert httpx.get(server.url + path, headers=headers, trust_env=False).status_code == 400
    for name in ("localhost", "127.0.0.1", "[::1]"):
        headers["Host"] = f"{name}:{server.port}"
        assert httpx.get(server.url + path, headers=headers, trust_env=False).status_code != 400


def test_a_server_that_is_open_to_the_network_may_have_any_name():
    assert [allowed_hosts(host) for host in ("0.0.0.0", "::", "node-7")] == [["*"]] * 3
    assert "127.0.0.2" in allowed_hosts("127.0.0.2")


def test_a_request_that_does_not_arrive_in_time_is_hung_up_on(app, monkeypatch, caplog):
    monkeypatch.setattr(server_module, "MAX_SECONDS", 0.2)
    config = uvicorn.Config(app, port=0, http=server_module.PatientProtocol, log_config=None, ws="none")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    half = b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"
    for sent in (b"", b"POST /retr", half, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + half):
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(sent)
            while client.recv(65_536):
                pass  # until it is closed
    running.should_exit = True
    thread.join()
    assert "Traceback" not in caplog.text


def test_clients_that_hang_up_do_not_affect_others(index):
    server = Process(index)
    body = json.dumps({"queries": ["word1"]}).encode()
    whole = b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    for sent in (whole + body, whole + body[:5], b"POST /retr", b"nonsense\r\n\r\n"):
        for _ in range(5):
            with socket.create_connection((server.host, server.port), timeout=5) as client:
                client.sendall(sent)
    assert server.post("word1")[0] == 200
    assert server.health()["passages"] == 300
    assert server.stop() == 0
    assert "Traceback" not in server.log


@pytest.mark.parametrize("begin", [b"POST /retrieve HTTP/1.1\r\nHost: x\r\nX-Long: ", b"GET / HTTP/1.1\r\n"])
def test_endless_headers_are_refused(server, begin):
    filler = b"X: y\r\n" if begin.endswith(b"\n") else b"x"
    with socket.create_connection((server.host, server.port), timeout=10) as client:
        client.sendall((begin + filler * server_module.MAX_HEADERS)[: server_module.MAX_HEADERS + 1])
        assert client.recv(4096).startswith(b"HTTP/1.1 400 ")


@pytest.fixture
def held(index, tmp_path, monkeypatch):
    """Start a server whose searches wait until a file is gone, and ask it: the server, file and answer."""
    hold = tmp_path / "hold"
    hold.touch()
    monkeypatch.setenv("HOLD", str(hold))
    with ThreadPoolExecutor(1) as pool:

        def start(*arguments):
            server = Process(index, *arguments, program=("-c", HELD))
            answer = pool.submit(server.post, "word1")
            while not server.health()["waiting"]:
                time.sleep(0.01)
            return server, hold, answer

        yield start


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_after_it_has_answered(held, number):
    server, hold, answer = held()
    server.process.send_signal(number)
    while "Shutting down" not in server.log:
        server.log += server.process.stderr.readline()
    hold.unlink()
    assert server.ended() == 0
    assert answer.result()[0] == 200
    assert "Traceback" not in server.log


def test_requests_that_are_not_answered_in_time_get_503(held):
    server, hold, answer = held("--drain", "0.1")
    server.process.send_signal(signal.SIGTERM)
    assert answer.result()[0] == 503
    hold.unlink()
    assert server.ended() == 0


def test_a_second_signal_ends_it_during_a_search_that_does_not_end(held):
    server, hold, answer = held("--drain", "0.1")
    server.process.send_signal(signal.SIGTERM)
    assert answer.result()[0] == 503
    while server.process.poll() is None:
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
    assert server.ended() == -signal.SIGTERM
    hold.unlink()


def test_an_index_or_a_token_that_is_missing_is_an_error_at_the_door(index, tmp_path, capsys):
    (tmp_path / "token").touch()
    for words in (
        ["--index", str(tmp_path)],
        ["--index", str(index), "--token-file", str(tmp_path / "token")],
    ):
        assert main(["serve", "retriever", *words]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_importing_retrieval_loads_no_heavy_library():
    code = (
        "import sys, memenvs, memenvs.retrieval, memenvs.retrieval.build, memenvs.commands.serve\n"
        "print({'torch', 'faiss', 'bm25s', 'uvicorn', 'starlette', 'transformers'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"
