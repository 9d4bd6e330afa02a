"""The chat client: what a completion holds, what is tried again, what is refused."""

import json

import pytest
from chat_stub import ChatStub

from memenvs import json_http
from memenvs.chat import ChatClient, EndpointError, read_completion


@pytest.fixture
def stub():
    with ChatStub(lambda fields: (200, "yes")) as stub:
        yield stub


def client(stub, **settings):
    return ChatClient(stub.url, **{"timeout": 10.0, "tries": 3, "pause": 0.001, **settings})


def ask(stub, **settings):
    return client(stub, **settings).complete({"model": "m", "messages": [{"role": "user", "content": "a b"}]})


def body(**choice):
    return json.dumps({"choices": [{"message": {"content": "x"}, **choice}]}).encode()


def test_a_completion_has_text_end_and_counts(stub):
    found = ask(stub)
    assert (found.text, found.finish, found.prompt_tokens, found.reply_tokens) == ("yes", "stop", 2, 1)


def test_a_server_that_counts_nothing_leaves_the_counts_out(stub):
    stub.usage = False
    assert ask(stub)[-2:] == (None, None)


def test_a_message_without_content_is_empty():
    assert read_completion(b'{"choices": [{"message": {"content": null}}]}', "u").text == ""


@pytest.mark.parametrize(
    ("choice", "stop", "tells"),
    [
        ({}, "", False),
        ({"stop_reason": None}, "", True),
        ({"stop_reason": 7}, "", True),
        ({"stop_reason": "</a>"}, "</a>", True),
        ({"matched_stop": "</a>"}, "</a>", True),
    ],
)
def test_the_stop_string_is_known_where_the_server_tells(choice, stop, tells):
    found = read_completion(body(**choice), "u")
    assert (found.stop, found.tells_stop) == (stop, tells)


@pytest.mark.parametrize("reply", [b"<html>", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{}]}'])
def test_what_is_no_completion_is_refused(reply):
    with pytest.raises(EndpointError, match="http://host does not speak the protocol"):
        read_completion(reply, "http://host")


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_what_may_pass_is_tried_again(stub, status):
    left = [status, status]
    stub.reply = lambda fields: (left.pop(), "busy") if left else (200, "yes")
    assert ask(stub).text == "yes"
    assert len(stub.bodies) == 3


def test_a_refusal_is_not_tried_again_and_says_why(stub):
    stub.reply = lambda fields: (400, "too long")
    with pytest.raises(EndpointError, match="refused the request, HTTP 400: too long"):
        ask(stub)
    assert len(stub.bodies) == 1


@pytest.mark.parametrize(
    ("asked", "slept"), [(None, [0.5, 1.0]), ("3", [3.0, 3.0]), ("900", [30.0, 30.0]), ("soon", [0.5, 1.0])]
)
def test_a_busy_server_is_left_alone_as_long_as_it_asks(stub, monkeypatch, asked, slept):
    pauses = []
    monkeypatch.setattr(json_http.time, "sleep", pauses.append)
    stub.reply, stub.wait = lambda fields: (429, "busy"), asked
    with pytest.raises(EndpointError, match="in 3 tries"):
        ask(stub, pause=0.5)
    assert [pause for pause in pauses if pause >= 0.1] == slept  # the stub naps too


def test_a_key_is_sent_and_stands_in_no_message(stub):
    stub.reply = lambda fields: (401, "no")
    with pytest.raises(EndpointError) as error:
        ask(stub, key="k-1")
    assert stub.headers[0]["Authorization"] == "Bearer k-1"
    assert "k-1" not in str(error.value)


def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(stub):
    with pytest.raises(ValueError, match="odd character") as error:
        ask(stub, key="k-1\nx")
    assert "k-1" not in str(error.value)


def test_the_models_of_an_endpoint_are_listed(stub):
    stub.models = ["a", "b"]
    assert client(stub).models() == ["a", "b"]
