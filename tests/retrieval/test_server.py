"""The real server as a process, called over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

pytest.importorskip("uvicorn")
from memenvs.build.index import build_index
from memenvs.commands import main
from memenvs.core.errors import ServerError
from memenvs.retrieval import Corpus
from memenvs.retrieval import server as server_module
from memenvs.retrieval.batching import Batcher
from memenvs.retrieval.client import HTTPRetriever
from memenvs.retrieval.lexical import LexicalRetriever
from memenvs.retrieval.protocol import Hits, Passage

DOCUMENTS = [(f"d{i}", f"Title {i}", f"word{i % 7} and word{i % 11} of passage {i}") for i in range(300)]


SERVER = ("-m", "memenvs", "serve", "retriever")


class Process:
    """A server on a free port, and what it wrote to its log by the time it listened."""

    def __init__(self, index, *arguments: str, program: tuple[str, ...] = SERVER):
        command = [sys.executable, *program, "--index", str(index), "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr
        self.log = ""
        while not (address := re.search(r"running on http://([\d.]+):(\d+)", self.log)):
            line = self.process.stderr.readline()
            assert line, self.log
            self.log += line
        self.host, self.port = address[1], int(address[2])

    def post(self, body: object, path: str = "/retrieve") -> tuple[int, dict]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body))
        response = connection.getresponse()
        answer = response.status, json.loads(response.read())
        connection.close()
        return answer

    def health(self) -> dict:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        connection.request("GET", "/health")
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(10)
        assert self.process.stderr
        self.log += self.process.stderr.read()
        self.process.stderr.close()
        return code


def program(before: str, first: str = "") -> tuple[str, str]:
    """A server that runs a line of Python first and one before each search of `queries`."""
    code = (
        f"import sys, time\nfrom memenvs.retrieval import server\n{first}\nsearch = server.look_up\n"
        f"def look_up(retriever, queries, k):\n    {before}\n    return search(retriever, queries, k)\n"
        "server.look_up = look_up\n"
        "from memenvs.commands import main\nmain(['serve', 'retriever', *sys.argv[1:]])"
    )
    return "-c", code


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server") / "index"
    build_index(Corpus.from_documents(DOCUMENTS), folder, "lexical")
    return folder


@pytest.fixture(scope="module")
def server(index):
    fails = program("assert 'boom' not in queries")
    server = Process(index, "--topk", "2", "--wait-ms", "40", "--cache", "0", program=fails)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def local(index):
    return LexicalRetriever.open(index)


def test_with_scores_documents_come_with_their_scores(server, local):
    status, answer = server.post({"queries": ["word3"], "topk": 3, "return_scores": True})
    ids, scores = local.search(["word3"], 3)
    passages = local.passages(ids[0])
    expected = [
        {"document": {"id": p.id, "contents": p.contents}, "score": score}
        for p, score in zip(passages, scores[0], strict=True)
    ]
    assert (status, answer) == (200, {"result": [expected]})


def test_without_scores_documents_come_bare(server, local):
    status, answer = server.post({"queries": ["word3"], "topk": 1, "return_scores": False})
    passage = local.passages(local.search(["word3"], 1).ids[0])[0]
    assert (status, answer) == (200, {"result": [[{"id": passage.id, "contents": passage.contents}]]})


@pytest.mark.parametrize("ask", [{"queries": ["word1"], "topk": None}, {"queries": ["word1"]}])
def test_a_topk_of_null_is_the_servers(server, ask):
    assert len(server.post(ask)[1]["result"][0]) == 2


def test_the_client_of_search_r1_gets_the_passages_of_a_whole_batch_in_one_request(server, local):
    """What `_batch_search` posts and `_passages2string` reads; train_grpo.sh has 2,560 rollouts at once."""
    queries = [f"word{i % 11} of rollout {i}" for i in range(2_560)]
    queries[0] = "word1 " * 4_000  # a policy may write anything
    _, answer = server.post({"queries": queries, "topk": 3, "return_scores": True})
    found = [[hit["document"]["contents"].partition("\n") for hit in hits] for hits in answer["result"]]
    expected = [
        [(f'"{p.title}"', "\n", p.text) for p in local.passages(ids)] for ids in local.search(queries, 3).ids
    ]
    assert found == expected


def test_no_queries_have_no_answers(server):
    assert server.post({"queries": []}) == (200, {"result": []})


@pytest.mark.parametrize("k", [3, 100])
def test_the_client_gets_the_answers_of_the_index(server, local, k):
    retriever = HTTPRetriever(f"http://{server.host}:{server.port}")
    queries = [f"word{i}" for i in range(120)]  # at k = 100 they take several requests
    hits = retriever.search(queries, k)
    assert hits == local.search(queries, k)
    assert retriever.passages(hits.ids[4]) == local.passages(hits.ids[4])


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"not json", 422, "not JSON"),
        (b"\xff\xfe", 422, "not JSON"),
        (b"[" * 100_000, 422, "not JSON"),
        ([], 422, "the request must be an object, got []; send {"),
        ({"queries": "one"}, 422, "request.queries must be a list, got 'one'"),
        ({"queries": [1]}, 422, "request.queries[0] must be a string, got 1"),
        ({"queries": ["a"], "topk": 0}, 422, "topk must be a whole number, at least 1 and at most 100"),
        ({"queries": ["a"], "topk": 101}, 422, "got 101"),
        ({"queries": ["a"], "topk": True}, 422, "got True"),
        ({"queries": ["a"], "return_scores": "yes"}, 422, "return_scores must be true or false"),
        ({"queries": ["a"] * 1_024, "topk": 100}, 422, "102400 queries times topk, the limit is 10240"),
        (b" " * 16_000_001, 413, "a body of more than 16000000 bytes"),
        ({"queries": ["boom"]}, 500, "the search failed; the server's log says why"),
    ],
    ids=lambda value: None if isinstance(value, bytes | list | dict) else str(value)[:20],
)
def test_a_bad_request_is_refused_with_its_reason_as_json(server, body, status, reason):
    answered, answer = server.post(body)
    assert answered == status
    assert reason in answer["detail"]


def test_an_unknown_path_is_a_json_error(server):
    assert server.post({}, "/nowhere") == (404, {"detail": "Not Found"})


def test_surrogates_in_a_query_are_answered(server):
    assert server.post(b'{"queries": ["word1 \\ud800"]}')[0] == 200


def ask(server: Process, headers: dict[str, str]) -> tuple[int, str]:
    """Status and body of a search with these headers."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    connection.request("POST", "/retrieve", b'{"queries": ["word1"]}', headers)
    response = connection.getresponse()
    answer = response.status, response.read().decode()
    connection.close()
    return answer


def test_a_web_page_is_refused(server):
    assert ask(server, {"Origin": "http://rebound.example:8000"}) == (
        403,
        '{"detail":"this server answers no web pages"}',
    )


def test_a_server_with_a_token_answers_only_those_who_send_it(index, local, tmp_path, monkeypatch):
    file = tmp_path / "token"
    file.write_text("secret\n")
    server = Process(index, "--token-file", str(file))
    try:
        for headers in ({}, {"Authorization": "Bearer secret2"}, {"Authorization": "secret"}):
            status, reason = ask(server, headers)
            assert status == 401
            assert "set MEMENVS_TOKEN_FILE to a file that has it" in reason
        assert ask(server, {"Authorization": "Bearer secret"})[0] == 200
        with pytest.raises(ServerError, match="HTTP 401: this server wants its token"):
            HTTPRetriever(f"http://{server.host}:{server.port}").search(["word1"], 3)
        monkeypatch.setenv("MEMENVS_TOKEN_FILE", str(file))
        retriever = HTTPRetriever(f"http://{server.host}:{server.port}")
        assert retriever.search(["word1"], 3) == local.search(["word1"], 3)
    finally:
        server.stop()


def test_an_empty_token_file_is_an_error_at_the_door(index, tmp_path, capsys):
    (tmp_path / "token").touch()
    assert main(["serve", "retriever", "--index", str(index), "--token-file", str(tmp_path / "token")]) == 2
    assert "token is empty; write a token into it" in capsys.readouterr().err


def test_health_says_what_is_served(server, local):
    health = server.health()
    assert (health["status"], health["passages"], health["corpus_sha256"]) == ("ok", 300, local.corpus.sha256)


def test_it_listens_on_loopback_only(server):
    assert server.host == "127.0.0.1"
    with pytest.raises(OSError, match=r"refused|unreachable|assign|timed out"):
        socket.create_connection(("127.0.0.2", server.port), timeout=1).close()  # 0.0.0.0 would take it


def test_concurrent_requests_share_calls_and_get_their_own_answers(server, local):
    before = server.health()
    queries = [f"word{i % 11} {i}" for i in range(64)]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda query: server.post({"queries": [query], "topk": 3}), queries))
    found = [[document["id"] for document in answer["result"][0]] for _, answer in answers]
    assert found == local.search(queries, 3).ids
    after = server.health()
    assert after["requests"] - before["requests"] == 64
    assert after["batches"] - before["batches"] < 32


def test_clients_that_hang_up_do_not_affect_others(server):
    body = json.dumps({"queries": ["word1"]}).encode()
    whole = b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    for sent in (whole + body, whole + body[:5], b"POST /retr", b"nonsense\r\n\r\n"):
        for _ in range(5):
            with socket.create_connection((server.host, server.port), timeout=5) as client:
                client.sendall(sent)
    assert server.post({"queries": ["word1"]})[0] == 200


def wait_for(server: Process, count: int) -> None:
    """Return when so many queries wait for an answer."""
    while server.health()["waiting"] < count:
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly_after_it_has_answered(index, number):
    server = Process(index, program=program("time.sleep(0.4)"))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.post, {"queries": ["word1"]})
        wait_for(server, 1)
        assert server.stop(number) == 0
    assert answer.result()[0] == 200
    assert "Application shutdown complete" in server.log
    assert "Traceback" not in server.log


def test_requests_that_are_not_answered_in_time_get_503_and_an_endless_search_is_abandoned(index):
    slow = program("time.sleep(1 if queries == ['word0'] else 600)")
    server = Process(index, "--max-batch", "1", "--cache", "0", "--drain", "2", program=slow)
    with ThreadPoolExecutor(4) as pool:
        answers = []
        for number in range(4):
            answers.append(pool.submit(server.post, {"queries": [f"word{number}"]}))
            wait_for(server, number + 1)
        assert server.stop() == 0
    assert answers[0].result()[0] == 200
    late = [answer.result() for answer in answers[1:]]
    assert late == [(503, {"detail": "the server is stopping; ask again, or another one"})] * 3


@pytest.mark.parametrize("begin", [b"POST /retrieve HTTP/1.1\r\nHost: x\r\nX-Long: ", b"GET / HTTP/1.1\r\n"])
def test_endless_headers_are_refused_at_their_bound(server, begin):
    bound = server_module.MAX_HEADERS
    filler = b"X: y\r\n" if begin.endswith(b"\n") else b"x"
    head = (begin + filler * bound)[: bound + 1]
    with socket.create_connection((server.host, server.port), timeout=10) as client:
        client.sendall(head[:-1])
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):  # not refused yet
            client.recv(1)
        client.settimeout(10)
        client.sendall(head[-1:])
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"the headers of a request have more than 65536 bytes" in answer


@pytest.mark.parametrize("sent", [b"", b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"])
def test_a_client_that_does_not_send_its_request_in_time_is_cut_off_and_a_slow_search_is_not(index, sent):
    server = Process(index, program=program("time.sleep(1)", "server.PATIENCE = 0.5"))
    try:
        with socket.create_connection((server.host, server.port), timeout=10) as client:
            client.sendall(sent)
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""
        assert server.post({"queries": ["word1"]})[0] == 200
    finally:
        server.stop()


def test_long_bodies_on_one_connection_do_not_count_as_headers(server):
    body = json.dumps({"queries": ["word1 " * 1_600] * 20}).encode()
    one = b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    answer = b""
    with socket.create_connection((server.host, server.port), timeout=10) as client:
        client.sendall(one * 3)  # a head arrives with the end of the body before it
        while answer.count(b"HTTP/1.1 200 ") < 3:
            more = client.recv(65_536)
            assert more, answer
            answer += more


def test_a_missing_index_is_an_error_at_the_door(tmp_path, capsys):
    assert main(["serve", "retriever", "--index", str(tmp_path)]) == 2
    assert "no index in" in capsys.readouterr().err


def test_an_answer_of_too_many_bytes_is_refused_before_it_is_made(monkeypatch):
    answers = [[(b'"' + b"x" * 998 + b'"', b"0.5")]] * 10
    monkeypatch.setattr(server_module, "MAX_ANSWER", 10_400)
    assert len(server_module.write_answers(answers, True)) <= 10_400
    monkeypatch.setattr(server_module, "MAX_ANSWER", 10_000)
    with pytest.raises(Exception, match="the answer would be 10350 bytes, the limit is 10000") as refused:
        server_module.write_answers(answers, True)
    assert refused.value.status == 422


class OnePassage:
    """Finds one passage for every query, and counts what it gives out."""

    def __init__(self):
        self.asked: list[str] = []
        self.threads: list[str] = []

    def search(self, queries, k):
        return Hits([["a"] for _ in queries], [[0.5] for _ in queries])

    def passages(self, ids):
        self.asked += ids
        self.threads.append(threading.current_thread().name)
        return [Passage(id, '"A"\nÄ \ud800') for id in ids]


def test_a_passage_that_many_queries_find_is_written_once_in_the_thread_that_searches():
    retriever = OnePassage()

    async def main():
        batcher = Batcher(partial(server_module.look_up, retriever))
        answers = await batcher.submit(["x", "y", "z"], 1)
        await batcher.close()
        return answers

    document = '{"id":"a","contents":"\\"A\\"\\nÄ \ufffd"}'.encode()
    assert asyncio.run(main()) == [[(document, b"0.5")]] * 3
    assert (retriever.asked, retriever.threads) == (["a"], ["retriever"])


def test_importing_retrieval_loads_no_heavy_library():
    code = (
        "import sys, memenvs, memenvs.retrieval, memenvs.build.index, memenvs.retrieval.server\n"
        "print({'torch', 'faiss', 'bm25s', 'uvicorn', 'transformers'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "set()"
