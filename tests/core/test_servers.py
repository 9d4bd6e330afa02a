"""The client of the OpenAI protocol: addresses, keys, what is repeated, what an error inside an answer is."""

import pickle
import socket
import time
from email.utils import formatdate

import pytest
from json_stub import JSONStub

from memenvs.core.errors import RequestRefused, ServerError
from memenvs.core.servers import OpenAIClient, direct_mounts


def ask(server, suffix="", **settings):
    client = OpenAIClient(server.url + suffix, **{"timeout": 10.0, "tries": 2, **settings})
    return client.post("/chat/completions", {"model": "m"}, lambda found: found["text"])


def serve(*answers):
    """A server that gives these answers in turn, and then a good one."""
    left = list(answers)
    return JSONStub(lambda path, fields: left.pop(0) if left else (200, {"text": "yes"}))


@pytest.mark.parametrize(
    ("suffix", "path"),
    [
        ("", "/v1/chat/completions"),
        ("/", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions"),
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/embeddings/", "/v1/chat/completions"),
        ("/v1/completions", "/v1/chat/completions"),
        ("/chat/completions", "/chat/completions"),
        ("/v1/chat/completions/?x=1", "/v1/chat/completions?x=1"),
        ("/api/v1", "/api/v1/chat/completions"),
        ("/v1beta/openai", "/v1beta/openai/chat/completions"),
        ("/v1?team=a&v=2", "/v1/chat/completions?team=a&v=2"),
    ],
)
def test_one_rule_for_all_addresses(suffix, path):
    with serve() as server:
        assert ask(server, suffix) == "yes"
    assert server.paths == [path]


def test_a_key_is_a_bearer_token_and_in_azure_an_api_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "of the environment")
    azure = "/openai/deployments/gpt/chat/completions?api-version=2024-06-01"
    with serve() as server:
        for suffix, key in (("", "k"), ("", None), (azure, "k"), (azure, None)):
            ask(server, suffix, key=key)
    sent = [(headers["Authorization"], headers["api-key"]) for headers in server.headers]
    assert sent == [("Bearer k", None), (None, None), (None, "k"), (None, None)]


@pytest.mark.parametrize("url", ["ftp://host", "host:8000", "http://", "http://user:secret@host/v1"])
def test_an_address_that_is_not_one_of_a_server_is_refused(url):
    with pytest.raises(ValueError) as error:
        OpenAIClient(url, timeout=1.0, tries=1)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 501, 502, 503, 504, 507, 520, 524, 529])
def test_what_may_pass_is_asked_again(status):
    with serve((status, {"error": {"message": "busy"}})) as server:
        assert ask(server) == "yes"


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_a_refusal_is_not_repeated_and_has_its_status_address_and_reason(status):
    with serve((status, {"error": {"message": "no such thing"}})) as server:
        with pytest.raises(RequestRefused, match="no such thing") as refused:
            ask(server, key="k-1")
    assert refused.value.status == status
    assert f"{server.url}/v1/chat/completions" in str(refused.value)
    assert "k-1" not in str(refused.value)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "Provider returned error", "code": 502}},
        {"choices": [], "error": {"message": "overloaded", "code": "429"}},
        {"choices": [{"error": {"message": "died", "code": 503}, "message": {"content": ""}}]},
        {"error": {"message": "Overloaded", "type": "overloaded_error"}},
        [{"error": {"message": "later", "code": 503, "status": "UNAVAILABLE"}}],
    ],
)
def test_an_error_inside_an_answer_of_200_is_repeated_if_its_code_is(body):
    with serve((200, body)) as server:
        assert ask(server) == "yes"
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "no such model", "code": "model_not_found"}},
        {"error": "no such model"},
        {"object": "error", "message": "no such model", "code": 404},
    ],
)
def test_another_error_inside_an_answer_of_200_is_a_refusal(body):
    with serve((200, body)) as server, pytest.raises(RequestRefused, match="no such model"):
        ask(server)


def test_an_empty_error_beside_an_answer_is_none():
    with serve((200, {"text": "fine", "error": None})) as server:
        assert ask(server) == "fine"


@pytest.mark.parametrize(("wait", "least"), [("3", 3.0), ("3.5", 3.5), ("date", 2.0)])
def test_a_busy_server_is_asked_again_when_it_says(monkeypatch, wait, least):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)  # the stub's naps are here, too
    with serve((429, {"error": {"message": "busy"}})) as server:
        server.wait = formatdate(time.time() + 4, usegmt=True) if wait == "date" else wait
        ask(server)
    assert least <= max(pauses) <= 4.0


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_request_follows_a_server_that_has_moved(status):
    with serve() as server, JSONStub(lambda path, fields: (status, b"")) as old:
        old.location = server.url + "/v1/chat/completions"
        assert ask(old) == "yes"
    assert server.bodies == [{"model": "m"}]


def test_a_key_that_a_server_repeats_is_not_shown():
    with serve((401, {"detail": "k-1 is wrong"})) as server, pytest.raises(RequestRefused) as refused:
        ask(server, key="k-1")
    assert "k-1" not in str(refused.value)


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b'data: {"text": "yes"}\n\n', b"", b"null"])
def test_an_answer_of_another_kind_is_an_error_that_names_the_address(body):
    with serve((200, body)) as server, pytest.raises(ServerError, match=f"{server.url}/v1/chat/completions"):
        ask(server)
    assert len(server.bodies) == 1


def test_an_unreachable_server_is_an_error():
    with pytest.raises(ServerError, match="is it on"):
        OpenAIClient("http://127.0.0.1:9", timeout=1.0, tries=1, fix="is it on?").get("/models", dict)


def test_a_client_can_be_pickled():
    with serve() as server:
        client = pickle.loads(pickle.dumps(OpenAIClient(server.url, timeout=10.0, tries=1)))
        assert client.post("/embeddings", {}, lambda found: found["text"]) == "yes"


@pytest.mark.parametrize(
    ("no_proxy", "url", "direct"),
    [
        ("10.0.0.0/8", "http://10.1.2.3:8000", True),
        ("10.0.0.0/8", "http://11.1.2.3:8000", False),
        ("fd00::/8", "http://[fd00::1]:8000", True),
        ("node1 node2", "http://node2:8000", True),
        ("node1, node2", "http://node2:8000", True),
        ("node1:8000", "http://node1:8000", True),
        ("node1:8000", "http://node1:9000", False),
        (".corp", "https://a.corp", True),
        ("*", "https://a.corp", True),
        ("*.corp", "https://a.corp", True),
        ("corp", "https://acorp", False),
        ("", "http://0.0.0.0:8000", True),
        ("", "http://127.0.0.2", True),
        ("", "http://[::1]:8000", True),
        ("", "http://localhost:8000", True),
        ("", f"http://{socket.gethostname()}:8000", True),
        ("", "http://node1:8000", False),
    ],
)
def test_which_servers_are_asked_without_a_proxy(monkeypatch, no_proxy, url, direct):
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", no_proxy)
    assert bool(direct_mounts(url)) == direct


def test_a_server_elsewhere_is_asked_through_the_proxy_of_the_environment(monkeypatch):
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serve() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        client = OpenAIClient("http://models.example:8000", timeout=10.0, tries=1)
        assert client.post("/chat/completions", {}, lambda found: found["text"]) == "yes"
    assert proxy.paths == ["http://models.example:8000/v1/chat/completions"]
