"""The chat client: what a completion holds, what is retried, what is refused."""

import json
import math
import socket
import threading

import gymnasium as gym
import pytest
from chat_stub import ChatStub

from memenvs.core.episode import Episode
from memenvs.core.errors import ServerError
from memenvs.core.servers import OpenAIClient
from memenvs.models.endpoint import (
    Completion,
    Prompts,
    TextConversation,
    ToolConversation,
    Watch,
    complete,
    read_completion,
    served_models,
)


@pytest.fixture
def stub():
    with ChatStub(lambda fields: (200, "yes")) as stub:
        yield stub


def client(stub, **settings):
    return OpenAIClient(stub.url, **{"timeout": 10.0, "tries": 3, **settings})


def ask(stub, **settings):
    fields = {"model": "m", "messages": [{"role": "user", "content": "a b"}]}
    return complete(client(stub, **settings), fields)


def completion(**choice):
    return {"choices": [{"message": {"content": "x"}, **choice}]}


def test_a_completion_has_text_end_and_counts(stub):
    found = ask(stub)
    assert (found.text, found.finish, found.prompt_tokens, found.reply_tokens) == ("yes", "stop", 2, 1)


def test_a_server_that_counts_nothing_leaves_the_counts_out(stub):
    stub.usage = False
    assert ask(stub)[-2:] == (None, None)


def test_a_message_whose_content_is_no_text_is_no_reply(stub):
    stub.reply = lambda fields: (200, 7)
    stub.usage = False
    with pytest.raises(ServerError, match=r"the content of the message is 7, no text"):
        ask(stub)


TEXT, THOUGHT = {"type": "text", "text": "x"}, {"type": "text", "text": "hmm"}


@pytest.mark.parametrize(
    ("message", "text", "thought"),
    [
        ({"content": "x"}, "x", ""),
        ({"content": None}, "", ""),
        ({}, "", ""),
        ({"content": None, "refusal": "I must not."}, "I must not.", ""),
        ({"content": "x", "reasoning_content": "hmm"}, "x", "hmm"),
        ({"content": "x", "reasoning": "hmm", "reasoning_content": None}, "x", "hmm"),
        ({"content": "x", "reasoning": "hmm", "reasoning_details": [THOUGHT]}, "x", "hmm"),
        (
            {"content": "x", "reasoning_details": [{"type": "reasoning.summary", "summary": "hmm"}]},
            "x",
            "hmm",
        ),
        ({"content": "x", "reasoning_details": [{"type": "reasoning.encrypted", "data": "Zm9v"}]}, "x", ""),
        ({"content": "x", "thinking_blocks": [{"type": "thinking", "thinking": "hmm"}]}, "x", "hmm"),
        ({"content": [TEXT, TEXT]}, "xx", ""),
        (
            {"content": [{"type": "thinking", "thinking": [THOUGHT]}, {"type": "text", "text": "x"}]},
            "x",
            "hmm",
        ),
        ({"content": [{"type": "reasoning", "reasoning": "hmm"}, {"type": "text", "text": "x"}]}, "x", "hmm"),
        ({"content": [{"type": "refusal", "refusal": "No."}]}, "No.", ""),
        ({"content": "", "reasoning": "\ud800"}, "", "\ufffd"),
    ],
)
def test_text_and_thought_are_read_wherever_servers_put_them(message, text, thought):
    found = read_completion(completion(message=message))
    assert (found.text, found.thought) == (text, thought)


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
    found = read_completion(completion(**choice))
    assert (found.stop, found.tells_stop) == (stop, tells)


class RawServer:
    """Answers each connection with the next of some bytes and hangs up; `asked` counts them."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.thread = threading.Thread(target=self.serve)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}/v1"

    def serve(self):
        while self.answers:
            connection, _ = self.socket.accept()
            with connection, connection.makefile("rb") as lines:
                size = 0
                while (line := lines.readline()).strip():
                    if line.lower().startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                lines.read(size)
                self.asked += 1
                connection.sendall(self.answers.pop(0))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.thread.join()
        self.socket.close()


GOOD = json.dumps(completion()).encode()


def sized(body, size=None):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (size or len(GOOD)) + body


@pytest.mark.parametrize("cut", [sized(GOOD[:9]), b"HTTP/1.1 200 OK\r\nCon", b""])
def test_a_truncated_answer_is_requested_again(cut):
    with RawServer(cut, sized(GOOD)) as server:
        assert ask(server).text == "x"
    assert server.asked == 2


def test_an_answer_that_is_always_truncated_is_one_error():
    with (
        RawServer(*[sized(GOOD[:9])] * 3) as server,
        pytest.raises(ServerError, match=r"in 3 tries"),
    ):
        ask(server)


@pytest.mark.parametrize("reply", [b"<html>", b"[]", b'{"choices": [{}]}', b"[" * 100_000])
def test_an_answer_that_is_not_a_completion_is_refused(reply):
    with (
        RawServer(sized(reply, len(reply))) as server,
        pytest.raises(ServerError, match="does not speak the protocol"),
    ):
        ask(server)


def test_a_key_that_does_not_fit_in_a_header_is_refused_without_showing_it(stub):
    with pytest.raises(ValueError, match="unprintable character") as error:
        ask(stub, key="k-1\nx")
    assert "k-1" not in str(error.value)


def test_the_models_of_an_endpoint_are_listed(stub):
    stub.models = ["a", "b"]
    assert served_models(client(stub)) == ["a", "b"]


SEARCH = "<search>dam</search>"


@pytest.mark.parametrize(
    ("env_id", "message", "finish", "reply"),
    [
        ("MemSearchQA-v0", {"content": SEARCH, "reasoning": "hm"}, "stop", f"<think>hm</think>{SEARCH}"),
        ("MemSearchQA-v0", {"content": f"<think>a</think>{SEARCH}", "reasoning": "hm"}, "stop", None),
        ("MemSearchQA-v0", {"content": SEARCH}, "stop", None),
        ("MemChunkQA-v0", {"content": "", "reasoning": "hm"}, "stop", "<think>hm</think>"),
        ("MemChunkQA-v0", {"content": "", "reasoning": "hm"}, "length", "<think>hm"),
        (
            "MemToolQA-v0",
            {"content": "<tool>x</tool>", "reasoning": "hm"},
            "stop",
            "<reasoning>hm</reasoning><tool>x</tool>",
        ),
        ("MemToolQA-v0", {"content": "<reasoning>a</reasoning>", "reasoning": "hm"}, "stop", None),
    ],
)
@pytest.mark.parametrize("kind", [Prompts, TextConversation])
def test_a_separated_thought_goes_back_where_the_environment_reads_it(kind, env_id, message, finish, reply):
    prompts = kind(gym.make(f"memenvs:{env_id}"))
    read = prompts.read(read_completion(completion(message=message, finish_reason=finish)))
    assert read == (message["content"] if reply is None else reply)


def test_a_conversation_sends_a_thought_back_as_the_server_gave_it():
    chat = TextConversation(gym.make("memenvs:MemSearchQA-v0"))
    chat.read(read_completion(completion(message={"content": SEARCH, "reasoning_content": "hm"})))
    assert chat.messages == [{"role": "assistant", "content": SEARCH, "reasoning_content": "hm"}]


@pytest.mark.parametrize("tools", [False, True])
@pytest.mark.parametrize(
    ("thought", "sent"),
    [
        (math.nan, None),
        ([{"text": "hm", "score": math.inf}], None),
        ("a\ud800", "a\ufffd"),
        ([{"text": "a\ud800"}], [{"text": "a\ufffd"}]),
    ],
)
def test_a_thought_that_json_cannot_hold_is_not_sent_back(tools, thought, sent):
    chat = (ToolConversation if tools else TextConversation)(gym.make("memenvs:MemSearchQA-v0"))
    chat.read(read_completion(completion(message={"content": SEARCH, "reasoning": thought})))
    assert chat.messages[0].get("reasoning") == sent


def test_a_number_that_json_cannot_hold_is_no_argument():
    chat = ToolConversation(gym.make("memenvs:MemSearchQA-v0"))
    call = {"id": "a", "function": {"name": "search", "arguments": '{"query": "x", "top_k": 1e999}'}}
    chat.read(read_completion(completion(message={"content": "", "tool_calls": [call]})))
    assert chat.messages[0]["tool_calls"][0]["function"]["arguments"] == '{"query": "x"}'


def warned(caplog, *replies, fields=None):
    """How often a server is warned of that gave these replies."""
    caplog.clear()
    watch = Watch("http://server")
    for reply in replies:
        watch.see({"messages": [{"role": "user", "content": "word " * 4_000}], **(fields or {})}, reply)
    return len(caplog.records)


CUT = Completion("", "length", message={"reasoning": "hm"})
OPEN = Completion("<think>\nOkay, let's see", "length")
THOUGHT = Completion("", "stop", message={"reasoning": "<think>a</think><answer>b</answer>"})
FINE = Completion("x", "stop")


@pytest.mark.parametrize(
    ("replies", "words"),
    [
        ([CUT] * 8, ["4 of 4 replies", "4 were cut", "--max-new-tokens"]),
        ([OPEN] * 8, ["4 of 4 replies", "4 were cut"]),
        ([Completion("half of an ans", "length")] * 8, ["4 were cut"]),
        ([THOUGHT] * 8, ["4 of 4 replies", "4 hold a thought", "'stop'", "--reasoning-parser"]),
        ([Completion(" \n", "stop", message={"thinking": "hm"})] * 8, ["4 hold a thought"]),
        ([Completion("<think>hm</think>", "stop")] * 8, ["4 hold a thought"]),
        ([Completion("", "content_filter")] * 8, ["4 are empty", "'content_filter'"]),
        ([FINE, FINE, CUT, THOUGHT, CUT, THOUGHT], ["3 of 5 replies", "2 were cut", "1 hold a thought"]),
        ([CUT, *[FINE] * 7], None),
        ([Completion("", "tool_calls", message={"tool_calls": [{}]})] * 8, None),
    ],
)
def test_replies_of_no_use_are_warned_of_once_with_what_to_change(caplog, replies, words):
    assert warned(caplog, *replies) == (words is not None)
    assert all(word in caplog.text for word in words or ())


def test_few_replies_are_warned_of_at_the_end_of_their_run(caplog):
    watch = Watch("http://server")
    watch.see({}, THOUGHT)
    assert not caplog.records
    watch.end()
    assert "1 of 1 replies" in caplog.text


def test_episodes_without_the_form_are_warned_of_unless_their_replies_say_why(caplog):
    watch = Watch("http://server")
    for reply in [FINE] * 5:
        watch.see({}, reply)
        watch.see_episode(Episode(metrics={"format": 0.0}))
    watch.end()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "0 of 4 episodes" in caplog.text
    caplog.clear()
    for format in (0.0, 0.5):
        watch = Watch("http://server")
        watch.see_episode(Episode(metrics={"format": format}))
        watch.see_episode(Episode(error="gone", metrics={"format": 0.0}))
        watch.end()
        assert ("0 of 1 episodes" in caplog.text) == (not format)
        caplog.clear()


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>',
        "<tool_call>\n<function=search>\n<parameter=query>\nx\n</parameter>\n</function>\n</tool_call>",
        '{"name": "search", "parameters": {"query": "x"}}',
        '<|python_tag|>{"name": "search", "parameters": {"query": "x"}}',
        '[TOOL_CALLS][{"name": "search", "arguments": {"query": "x"}}]',
        '[TOOL_CALLS]search[ARGS]{"query": "x"}',
        '[search(query="x")]',
    ],
)
def test_a_tool_call_that_is_left_in_the_text_is_warned_of_once(caplog, text):
    reply = Completion(text, "stop")
    assert warned(caplog, reply, reply, fields={"tools": [{}]}) == 1
    assert warned(caplog, reply) == 0  # no tools were sent
    assert warned(caplog, Completion("I search [1] for {x}.", "stop"), fields={"tools": [{}]}) == 0


@pytest.mark.parametrize(("read", "warnings"), [(2_048, 1), (3_900, 0), (4_100, 0), (None, 0)])
def test_a_prompt_that_the_server_cuts_is_warned_of_once(caplog, read, warnings):
    reply = Completion("x", "stop", prompt_tokens=read)  # of 4,000 words
    assert warned(caplog, reply, reply) == warnings
