"""The client of the OpenAI protocol: addresses, keys, what is repeated, what an error inside an answer is."""

import json
import logging
import pickle
import socket
import sys
import time
from email.utils import formatdate
from types import SimpleNamespace

import pytest
from json_stub import JSONStub

from memenvs.core.errors import RequestRefused, ServerError
from memenvs.core.servers import OpenAIClient, direct_mounts
from memenvs.models.endpoint import complete

YES = {"text": "yes", "choices": [{}], "data": [{}]}


def ask(server, suffix="", **settings):
    client = OpenAIClient(server.url + suffix, **{"timeout": 10.0, "tries": 2, **settings})
    return client.post("/chat/completions", {"model": "m"}, lambda found: found["text"])


def serve(*answers):
    """A server that gives these answers in turn, and then a good one."""
    left = list(answers)
    return JSONStub(lambda path, fields: left.pop(0) if left else (200, YES))


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


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://host", "host:8000", "http://", "http://user:sec/ret@host/v1", "htp//user:secret@host"),
        *("host:8000/v1?sig=secret", "user:secret@host:80", "http://host:port?sig=secret#secret"),
        "http://[::1",
    ],
)
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
    with serve((200, YES | {"text": "fine", "error": None})) as server:
        assert ask(server) == "fine"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        {},
        {"choices": [], "usage": {}},
        {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}},
        {"choices": [], "prompt_filter_results": [{"content_filter_results": {}}]},
        {"id": "x", "usage": {"total_tokens": 3}},
        {"detail": "the engine is starting"},
        {"message": "the engine is starting", "code": 20012},
        {"error_code": 18, "error_msg": "Open api qps request limit reached"},
        {"success": False, "errors": [{"code": 7, "message": "the engine is starting"}]},
        b'data: {"error": {"message": "busy", "code": 503}}\n\n',
    ],
)
def test_an_answer_of_200_that_is_none_is_repeated(body):
    with serve((200, body)) as server:
        assert ask(server) == "yes"
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"choices": [], "prompt_filter_results": [{"jailbreak": 1}]}, ["no choice", "jailbreak"]),
        ({"choices": None, "base_resp": {"status_code": 1000, "status_msg": "oops"}}, ["no choice", "oops"]),
        ({"errors": [{"message": "oops"}]}, ["no choice", "oops"]),
        (b"", ["no choice"]),
    ],
)
def test_an_answer_that_never_comes_is_named_with_what_the_server_said(body, words):
    with serve(*[(200, body)] * 2) as server, pytest.raises(ServerError) as failed:
        ask(server)
    assert all(word in str(failed.value) for word in [*words, "2 tries"])
    assert "is it up" not in str(failed.value)


def test_embeddings_without_a_vector_are_repeated():
    with serve((200, {"data": []})) as server:
        client = OpenAIClient(server.url, timeout=10.0, tries=2)
        assert client.post("/embeddings", {}, lambda found: found["text"]) == "yes"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}),
        (429, {"error": {"message": "Check your plan and billing details.", "type": "x"}}),
        (403, {"detail": "Your credit balance is too low"}),
        (402, {"error": {"message": "This request requires more credits"}}),
        (500, {"message": "Insufficient Balance"}),
        (200, {"error": {"message": "no more", "type": "insufficient_quota"}}),
        (200, {"choices": None, "base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}),
    ],
)
def test_a_quota_that_is_used_up_is_named_and_not_repeated(status, body):
    with serve((status, body)) as server, pytest.raises(RequestRefused, match="quota"):
        ask(server)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "message",
    [
        "Rate limit reached. Please try again in 6ms. Visit https://host/account/billing to pay.",
        "You exceeded your current quota, please check your plan and billing details. Please retry in 2s.",
        "Quota exceeded for requests per minute",
    ],
)
def test_a_limit_that_passes_is_repeated_though_it_speaks_of_billing(message):
    with serve((429, {"error": {"message": message}})) as server:
        assert ask(server) == "yes"


CHUNKS = [
    {"choices": [], "prompt_filter_results": []},
    {"id": "1", "choices": [{"index": 0, "delta": {"role": "assistant", "reasoning_content": "h"}}]},
    {"id": "1", "choices": [{"index": 0, "delta": {"reasoning_content": "m"}}]},
    {"id": "1", "choices": [{"index": 0, "delta": {"content": "ye"}}]},
    {"id": "1", "choices": [{"index": 0, "delta": {"content": "s"}, "finish_reason": "stop"}]},
    {"id": "1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
]


def events(chunks, end="\n\n"):
    return (
        b": ping\r\n"
        + "".join(f"data: {json.dumps(chunk)}{end}" for chunk in chunks).encode()
        + b"data: [DONE]"
    )


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n"])
def test_a_stream_is_read_as_the_completion_that_it_adds_up_to(end):
    with serve((200, events(CHUNKS, end))) as server:
        found = complete(OpenAIClient(server.url, timeout=10.0, tries=1), {"model": "m"})
    assert (found.text, found.thought, found.finish) == ("yes", "hm", "stop")
    assert (found.prompt_tokens, found.reply_tokens) == (3, 2)


def test_a_server_that_only_streams_is_asked_to():
    def answer(path, fields):
        if not fields.get("stream"):
            return 400, {"error": {"message": "This model only supports stream mode"}}
        return 200, events(CHUNKS)

    with JSONStub(answer) as server:
        client = OpenAIClient(server.url, timeout=10.0, tries=1)
        assert [complete(client, {"model": "m"}).text for _ in range(2)] == ["yes"] * 2
    assert [bool(fields.get("stream")) for fields in server.bodies] == [False, True] * 2


def test_no_secret_of_an_address_is_in_an_error_or_a_log(caplog):
    caplog.set_level(logging.DEBUG)
    echo = {"error": {"message": "no /v1?sig=hidden-1&x=a+b%2Fcd from me:hidden-2, Basic bWU6aGlkZGVu"}}
    with serve((401, echo), *[(500, echo)] * 2, (200, {"x": "hidden-1 a b/cd"})) as server:
        url = server.url.replace("http://", "http://me:hidden-2@") + "/v1?sig=hidden-1&x=a+b%2Fcd#hidden-3"
        client = OpenAIClient(url, timeout=10.0, tries=2)
        for read in (dict, dict, lambda found: found["y"]):
            with pytest.raises(ServerError) as failed:
                client.get("/models", read)
            assert "hidden" not in str(failed.value)
            assert "b/cd" not in str(failed.value)
        assert server.paths == []
    assert "hidden" not in caplog.text
    assert client.url == f"{server.url}/v1"


def test_a_user_and_a_password_in_an_address_are_sent():
    with serve() as server:
        ask(SimpleNamespace(url=server.url.replace("http://", "http://me:word@")))
    assert server.headers[0]["Authorization"] == "Basic bWU6d29yZA=="


@pytest.mark.parametrize(
    ("wait", "least", "most"),
    [("3", 3.0, 4.0), ("3.5", 3.5, 4.0), ("date", 20.0, 40.0), ("soon", 0.001, 4.0)],
)
def test_a_busy_server_is_asked_again_when_it_says(monkeypatch, wait, least, most):
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)  # the stub's naps are here, too
    with serve((429, {"error": {"message": "busy"}})) as server:
        server.wait = formatdate(time.time() + 40, usegmt=True) if wait == "date" else wait
        ask(server)
    assert least <= max(pauses) <= most


def test_a_refusal_as_a_stream_is_one_without_the_package_that_reads_streams(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with serve((400, b'data: {"error": {"message": "no such thing"}}\n\n')) as server:
        with pytest.raises(RequestRefused, match="no such thing"):
            ask(server)


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


@pytest.mark.parametrize("body", [b"<html>Sign in</html>", b"data: yes\n\n", b"null"])
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
