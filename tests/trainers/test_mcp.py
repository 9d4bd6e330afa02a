"""The MCP server, called by the real MCP client: in this process, as a command, and over HTTP."""

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

MISSING = 'mcp 2 is not installed: pip install -e ".[mcp]"'
pytest.importorskip("memenvs.adapters.mcp", reason=MISSING, exc_type=ImportError)

import anyio  # noqa: E402
from mcp.client import Client  # noqa: E402
from mcp.client.stdio import StdioServerParameters  # noqa: E402

from memenvs.adapters.mcp import make_server  # noqa: E402
from memenvs.commands import main  # noqa: E402

TASKS = f"lexical:{Path(__file__).parents[2] / 'data' / 'world-test'}"


def call(server, *calls):
    """The texts that calls of one client return: pairs of a tool and its arguments."""

    async def all_of_them():
        async with Client(server) as client:
            results = [await client.call_tool(tool, arguments) for tool, arguments in calls]
        return [(result.is_error, "".join(part.text for part in result.content)) for result in results]

    return anyio.run(all_of_them)


def texts(server, *calls):
    results = call(server, *calls)
    assert not any(is_error for is_error, _ in results), results
    return [text for _, text in results]


def test_a_search_returns_passages():
    server = make_server(TASKS)
    two, three = texts(
        server, ("search", {"query": "yellow brick", "k": 2}), ("search", {"query": "yellow brick"})
    )
    assert two.startswith("Doc 1(Title: ")
    assert "yellow brick" in two
    assert (two.count("Doc "), three.count("Doc ")) == (2, 3)


def test_a_search_without_a_hit_says_so():
    assert texts(make_server(TASKS), ("search", {"query": "zzz"})) == ["Nothing was found."]


@pytest.mark.parametrize("k", [0, 101, "many"])
def test_a_wrong_number_of_passages_is_an_error_of_the_call(k):
    ((is_error, text),) = call(make_server(TASKS), ("search", {"query": "brick", "k": k}))
    assert is_error
    assert "k" in text


def test_a_memory_stays_from_call_to_call():
    written, read = texts(
        make_server(memory_mode="rewrite"), ("write_memory", {"text": "Ann built it."}), ("read_memory", {})
    )
    assert (written, read) == ("Ann built it.", "Ann built it.")


def test_memories_of_different_names_are_different():
    one, other = ({"text": name, "memory": name} for name in ("one", "other"))
    calls = [("write_memory", one), ("write_memory", other), ("read_memory", {"memory": "one"})]
    assert texts(make_server(memory_mode="rewrite"), *calls)[-1] == "one"
    assert texts(make_server(memory_mode="rewrite"), ("read_memory", {})) == ["The memory is empty."]


def test_operations_change_entries_and_a_wrong_one_is_reported():
    calls = [{"text": "ADD: a\nADD: b"}, {"text": "DELETE 1\nUPDATE 9: c"}]
    _, changed = texts(make_server(memory_mode="structured"), *(("write_memory", one) for one in calls))
    assert "line 2: there is no entry with this number" in changed
    assert changed.endswith("[2] b")


def test_an_earlier_memory_can_be_called_back():
    calls = [{"text": "Ann built the dam."}, {"text": "Bem is a town."}, {"text": "<recall>dam</recall>"}]
    *_, recalled = texts(make_server(memory_mode="callback"), *(("write_memory", one) for one in calls))
    assert recalled == "Bem is a town.\n<recalled>\nAnn built the dam.\n</recalled>"


def test_a_query_picks_the_notes_that_fit():
    notes = "\n".join(["The dam is old.", *(f"Note {number} about towns." for number in range(9))])
    calls = [("write_memory", {"text": notes}), ("read_memory", {"query": "dam"})]
    assert "The dam is old." in texts(make_server(memory_mode="a_mem"), *calls)[-1]


def test_a_text_beyond_the_limit_is_cut_and_the_answer_says_so():
    server = make_server(memory_mode="rewrite", max_memory=3)
    (written,) = texts(server, ("write_memory", {"text": "one two three four five"}))
    assert written.startswith("one two three\n")
    assert "up to 3 tokens" in written


def test_the_description_of_a_tool_has_the_rule_of_the_memory():
    async def listed():
        async with Client(make_server(memory_mode="structured", max_memory=50)) as client:
            return {tool.name: tool.description for tool in (await client.list_tools()).tools}

    tools = anyio.run(listed)
    assert tools.keys() == {"write_memory", "read_memory"}
    assert "`DELETE number` removes one" in tools["write_memory"]
    assert "50 tokens" in tools["write_memory"]


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("", "give a retriever, a memory_mode, or both"),
        ("--memory-mode react", "memory_mode must be one of rewrite, callback, structured, a_mem"),
        ("--retriever lexical:none", "none"),
    ],
)
def test_a_server_that_cannot_be_made_is_one_line(words, wrong, capsys):
    assert main(["serve", "mcp", *words.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert wrong in line


def test_a_client_can_start_the_command():
    words = ["-m", "memenvs", "serve", "mcp", "--retriever", TASKS, "--memory-mode", "rewrite"]
    command = StdioServerParameters(command=sys.executable, args=words, cwd=Path(__file__).parents[2])
    found, _ = texts(command, ("search", {"query": "brick"}), ("write_memory", {"text": "brick"}))
    assert found.startswith("Doc 1(Title: ")


def test_it_serves_http_on_loopback():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["-m", "memenvs", "serve", "mcp", "--memory-mode", "rewrite", "--port", str(port)]
    with subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL) as server:
        try:
            while server.poll() is None:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.2)
            address = f"http://127.0.0.1:{port}/mcp"
            assert texts(address, ("write_memory", {"text": "kept"})) == ["kept"]
            assert texts(address, ("read_memory", {})) == ["kept"]  # by another client
        finally:
            server.terminate()


def test_a_text_of_any_length_is_answered():
    calls = [("write_memory", {"text": "ADD: a\n" * 200_000}), ("read_memory", {"query": "a" * 10_001})]
    written, read = texts(make_server(memory_mode="structured"), *calls)
    assert written == read
    assert read.endswith("[1] a")
