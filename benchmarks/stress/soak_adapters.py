"""Hostile requests to every server, hostile answers to every client and trainer, hostile texts to the viewer.

It covers what its environment has the libraries for, and says what it left out: `make soak` runs it in .venv
(the retrieval server, the client of chat endpoints, the viewer), `make test-trainers` in those of the
other trainers. It fails if a server dies, hangs, or answers 500 where the code is ours; if a client raises
anything but its own error; if a hostile reply ends an episode with an error, or gives a number that is not
finite; or if a report is broken or runs what it shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import logging
import math
import socket
import sys
import tempfile
import threading
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gymnasium as gym
from browser import chromium
from chat_stub import ChatStub
from tiny_model import save_tiny_model
from viewer_runs import write

from benchmarks.harness import run
from benchmarks.stress.hostile import Grammar
from memenvs.adapters.endpoint import EpisodeAgent
from memenvs.commands import main as main_command
from memenvs.core.episode import Credit, Episode, Reply, Turn
from memenvs.core.episode_file import RecordEpisodes
from memenvs.core.errors import ServerError
from memenvs.rollout.collect import collect
from memenvs.view import write_report

ROOT = Path(__file__).parents[2]
TASKS = f"lexical:{ROOT / 'data' / 'world-test'}"
SEARCH = {"env": "MemSearchQA-v0", "env_args": {"tasks": "world-test"}, "methods": ["SearchRewards"]}
JUNK = [b"", b"null", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"1e999", b"-1", b'"\\ud800"']
JUNK += [b"9" * 10_000]
HEADERS = ["Content-Length: -1", f"Content-Length: {'9' * 20}", "Content-Length: 10\r\nContent-Length: 20"]
HEADERS += ["Transfer-Encoding: chunked", "Host: \0", "Expect: 100-continue", "X: " + "x" * 70_000, ": "]
HEADERS += ["Content-Type: text/plain", "Upgrade: websocket\r\nConnection: Upgrade", "Content-Encoding: gzip"]
HEADERS += ["a\nb: c"]

Round = Callable[[], None]


class Requests(Grammar):
    """Makes requests and answers of JSON and broken HTTP, sends them, and counts."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.counts: Counter[str] = Counter()

    def text(self) -> str:
        """A reply of whole characters, for servers of others that take nothing else."""
        self.counts["replies"] += 1
        return self.reply().encode(errors="replace").decode()

    def seed(self) -> int:
        """A seed of an episode."""
        return int(self.rng.integers(2**31))

    def markup(self) -> str:
        """See `Grammar.markup`; counted."""
        self.counts["replies"] += 1
        return super().markup()

    def value(self, depth: int = 0) -> Any:
        """A value of JSON."""
        plain = [None, True, -1, 0, 3, 10**30, 1e308, math.nan, "", self.reply()]
        if depth > 2 or self.rng.random() < 0.6:
            return self.pick(plain)
        inner = [self.value(depth + 1) for _ in range(self.rng.integers(0, 4))]
        return (
            inner if self.rng.random() < 0.5 else {self.pick(["id", "a", self.reply()]): one for one in inner}
        )

    def spoilt(self, good: Any) -> Any:
        """A value of JSON with one part replaced or gone."""
        if isinstance(good, (dict, list)) and good and self.rng.random() < 0.8:
            copy = dict(good) if isinstance(good, dict) else list(good)
            place = self.pick(list(copy) if isinstance(copy, dict) else range(len(copy)))
            if self.rng.random() < 0.15:
                del copy[place]
            else:
                copy[place] = self.spoilt(copy[place])
            return copy
        return self.value()

    def body(self, good: Any) -> bytes:
        """A body: a good one, one spoilt in its JSON or in its bytes, or none of JSON."""
        kind = self.rng.random()
        if kind < 0.15:
            return self.pick(JUNK)
        text = json.dumps(good if kind < 0.35 else self.spoilt(good)).encode()
        if kind > 0.85:
            place = int(self.rng.integers(len(text) + 1))
            text = text[:place] + self.rng.bytes(3) + text[place + int(self.rng.integers(3)) :]
        return text

    def send(self, port: int, method: str, path: str, good: Any) -> int:
        """The status of an answer to a request; 0 if the server hung up, or waits for the rest of it."""
        body, kind = self.body(good), self.rng.random()
        head = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close"]
        head += ["Accept: application/json", f"Content-Length: {len(body)}", "Content-Type: application/json"]
        if kind < 0.2:
            head.insert(int(self.rng.integers(1, len(head))), self.pick(HEADERS))
        elif kind < 0.25:
            lines = ["", "GET", "\0", f"{self.reply()} / HTTP/1.1", "GET / HTTP/9.9", f"GET {path}"]
            head[0] = self.pick(lines)
        self.counts["requests"] += 1
        data = b""
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.settimeout(0.3 if kind < 0.25 else 30)  # a server waits for the rest of a broken head
            with contextlib.suppress(ConnectionError, *([TimeoutError] if kind < 0.25 else [])):
                connection.sendall("\r\n".join([*head, "", ""]).encode(errors="replace") + body)
                while len(data) < 12 and (part := connection.recv(65536)):
                    data += part
        return int(data[9:12]) if data[9:12].isdigit() else 0


@contextlib.contextmanager
def served(app: Any, **settings: Any) -> Iterator[int]:
    """The port of an ASGI application that is served from a thread."""
    import uvicorn

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", **settings))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join(30)


@contextlib.contextmanager
def retrieval_server(fuzz: Requests) -> Iterator[Round]:
    """`memenvs serve retriever`."""
    from memenvs.retrieval import load_retriever
    from memenvs.retrieval.client import HTTPRetriever
    from memenvs.retrieval.server import MAX_HEADERS, create_app

    settings = {"http": "h11", "h11_max_incomplete_event_size": MAX_HEADERS, "ws": "none"}
    with served(create_app(load_retriever(TASKS)), **settings) as port:
        client = HTTPRetriever(f"http://127.0.0.1:{port}", tries=1)
        expected = client.search(["yellow brick"], 3)

        def play() -> None:
            good = {"queries": [fuzz.reply(), "brick"], "topk": 3, "return_scores": True}
            path = fuzz.pick(["/retrieve", "/retrieve", "/health", "/", "/%00"])
            status = fuzz.send(port, fuzz.pick(["POST", "POST", "GET", "PUT"]), path, good)
            assert status < 500, ("retrieval", status)
            query = fuzz.reply() * 20
            client.search([query], 3)
            assert client.search(["yellow brick"], 3) == expected

        yield play


@contextlib.contextmanager
def openenv_server(fuzz: Requests) -> Iterator[Round]:
    """`memenvs serve openenv`; what it answers to a wrong request is OpenEnv's own."""
    from websockets.sync.client import connect

    from memenvs.adapters.openenv import make_app

    app = make_app(**SEARCH)
    paths = [route.path.replace("{env_name}", SEARCH["env"]) for route in app.routes]
    with served(app) as port, connect(f"ws://127.0.0.1:{port}/ws", max_size=None) as session:

        def ask(kind: str, data: Any) -> Any:
            session.send(json.dumps({"type": kind, "data": data}))
            return json.loads(session.recv(20))

        def play() -> None:
            good = fuzz.pick(
                [{"action": {"reply": fuzz.reply()}}, {"seed": 1, "index": 2}, {"split": "world-test"}]
            )
            fuzz.send(port, fuzz.pick(["POST", "GET"]), fuzz.pick(paths), good)
            with contextlib.suppress(Exception), connect(f"ws://127.0.0.1:{port}/ws") as other:
                for _ in range(3):  # broken messages may end a session, but no other one
                    other.send(
                        fuzz.body({"type": "step", "data": {"reply": fuzz.reply()}}).decode(errors="replace")
                    )
                    other.recv(20)
            assert ask("reset", {"seed": 7})["type"] == "observation"
            done = False
            while not done:
                fuzz.counts["replies"] += 1
                answer = ask("step", {"reply": fuzz.reply()})
                assert answer["type"] == "observation", answer
                done = answer["data"]["done"]

        yield play


@contextlib.contextmanager
def mcp_server(fuzz: Requests) -> Iterator[Round]:
    """`memenvs serve mcp`, its tools called by the real client and its HTTP by a broken one."""
    from typing import get_args

    from mcp.client import Client

    from memenvs.adapters.mcp import StoreMode, make_server

    servers = [make_server(TASKS, mode) for mode in get_args(StoreMode)]

    async def calls(server: Any) -> None:
        async with Client(server) as client:
            for _ in range(10):
                text = fuzz.text()
                for tool, arguments in (
                    ("write_memory", {"text": text, "memory": fuzz.pick(["main", "other"])}),
                    ("read_memory", {"query": text}),
                    ("search", {"query": text}),
                ):
                    result = await client.call_tool(tool, arguments)
                    assert not result.is_error, (tool, text[:300], result)
                    wrong = fuzz.spoilt(arguments)
                    with contextlib.suppress(Exception):  # refused by the client, or answered as an error
                        await client.call_tool(tool, wrong)

    asked = {"name": "search", "arguments": {"query": "a"}}
    good = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
    with served(make_server(TASKS, "rewrite").streamable_http_app()) as port:

        def play() -> None:
            asyncio.run(calls(fuzz.pick(servers)))
            for _ in range(10):
                fuzz.send(port, fuzz.pick(["POST", "POST", "GET", "DELETE"]), fuzz.pick(["/mcp", "/"]), good)
            asyncio.run(alive(f"http://127.0.0.1:{port}/mcp"))

        async def alive(address: str) -> None:
            async with Client(address) as client:
                assert not (await client.call_tool("search", {"query": "brick"})).is_error

        yield play


@contextlib.contextmanager
def chat_endpoint(fuzz: Requests) -> Iterator[Round]:
    """`EpisodeAgent` at a server that answers anything, as text and by native tools."""
    import openai  # noqa: F401 - the agent's client, which not every trainer's venv has

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            fuzz.counts["answers"] += 1
            function = {"name": "search", "arguments": json.dumps({"query": fuzz.reply()})}
            call = {"id": "a", "function": function}
            message = {"role": "assistant", "content": fuzz.reply(), "reasoning": "", "tool_calls": [call]}
            if fuzz.rng.random() < 0.5:
                del message["tool_calls"]
            choices = [{"message": message, "finish_reason": "stop"}]
            answer = {"id": "x", "choices": choices, "usage": {"prompt_tokens": 1}}
            body = json.dumps(answer).encode() if fuzz.rng.random() < 0.7 else fuzz.body(answer)
            self.send_response(
                200 if fuzz.rng.random() < 0.95 else int(fuzz.pick([204, 301, 400, 404, 429, 500]))
            )
            if fuzz.rng.random() < 0.95:
                length = len(body) + int(fuzz.rng.random() < 0.03)
                self.send_header("Content-Length", str(length))
            else:
                self.close_connection = True
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)
            self.close_connection = True

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    agents = [EpisodeAgent(**SEARCH, tools=tools, timeout=20) for tools in (False, True)]

    def play() -> None:
        try:
            earned = asyncio.run(fuzz.pick(agents).run({"seed": fuzz.seed()}, base_url=url))
        except ServerError as error:
            earned = {str(error): math.nan if "\n" in str(error) else 0.0}
        assert all(map(math.isfinite, earned.values())), earned

    yield play
    server.shutdown()
    thread.join()
    server.server_close()


@contextlib.contextmanager
def verifiers_environment(fuzz: Requests) -> Iterator[Round]:
    """An episode by verifiers, whose model says anything."""
    import verifiers.v1 as vf
    from verifiers.v1.utils.loaders import load_environment, resolve_env_config

    env = load_environment(resolve_env_config({"taskset": {"id": "memenvs_v1", **SEARCH}}))
    tasks = list(env.taskset.include(idx=["0:20"]))

    async def episode(url: str) -> None:
        context = vf.ModelContext(model="tiny", client=vf.EvalClientConfig(base_url=url, api_key_var="NONE"))
        async with env.serving():
            slots = [slot for task in tasks for slot in env.slots(task, 1)]
            for ended in await asyncio.gather(*(env.run_slot(slot, context) for slot in slots)):
                assert ended.ok, ended.errors

    with ChatStub(lambda fields: (200, fuzz.text())) as stub:

        def play() -> None:
            stub.bodies.clear()
            asyncio.run(episode(stub.url))

        yield play


@contextlib.contextmanager
def inspect_task(fuzz: Requests) -> Iterator[Round]:
    """Episodes by inspect-ai, whose model says anything."""
    import inspect_ai
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    from memenvs.adapters.inspect_ai import environment

    def answer(*_: Any) -> Any:
        text = fuzz.text()
        return ModelOutput.from_content("mockllm", text).model_copy(update={"usage": ModelUsage()})

    task = environment(SEARCH["env"], SEARCH["methods"], **SEARCH["env_args"])
    model = get_model("mockllm/model", custom_outputs=answer, memoize=False)

    def play() -> None:
        with tempfile.TemporaryDirectory() as folder:
            (log,) = inspect_ai.eval(task, model=model, log_dir=folder, display="none", limit=20)
            assert log.status == "success", log.error

    yield play


READING = {"tasks": "world-test", "chunk_size": 300, "n_documents": 4}
SEARCHING = {"tasks": "world-test", "k": 1, "max_turns": 3}
TURN = {"reward": "turn"}
TRAINED = [
    {"env": "MemChunkQA-v0", "settings": READING, "methods": ["TAMTRL"], "comparison": {"reward": "tamtrl"}},
    {"env": "MemSearchQA-v0", "settings": SEARCHING, "methods": ["SearchRewards"], "comparison": TURN},
    {"env": "MemSearchQA-v0", "settings": {**SEARCHING, "memory_mode": "rewrite"}, "comparison": {}},
    {"env": "MemSokoban-v0", "settings": {"max_turns": 3}, "comparison": TURN},
]
"""What the trainers play that compare a group."""


@contextlib.contextmanager
def tiny(window: int = 1024) -> Iterator[Path]:
    """The folder of a tiny model; needs torch and transformers."""
    with tempfile.TemporaryDirectory() as folder:
        yield save_tiny_model(Path(folder) / "tiny", window)


@contextlib.contextmanager
def verl_loop(fuzz: Requests) -> Iterator[Round]:
    """A worker of verl plays the rollouts of two prompts."""
    import pytest
    from transformers import AutoTokenizer
    from verl_stub import Servers, Worker

    with tiny() as model:
        tokenizer = AutoTokenizer.from_pretrained(model)

        def play() -> None:
            servers, entry = Servers(tokenizer, lambda turn, prompt: fuzz.text()), fuzz.pick(TRAINED)
            with pytest.MonkeyPatch.context() as patch:
                worker = Worker(patch, tokenizer, servers, {**entry, "scorer": "policy"})
                worker.play(seeds={"one": fuzz.seed(), "two": fuzz.seed()})
            rows = [row for own in worker.rows.values() for _, row in own]
            assert worker.statuses == ["finished"] * 2
            assert not any(row["extra_fields"]["reward_extra_info"]["failed"] for row in rows)
            assert all(row["rm_scores"].isfinite().all() for row in rows), entry

        yield play


@contextlib.contextmanager
def trl_trainer(fuzz: Requests) -> Iterator[Round]:
    """TRL's trainer learns from rollouts, and from environments whose tools it calls."""
    from scripted_trl import ByTurn, make_trainer, tool_call

    from memenvs.adapters.trl import EpisodeRollout, SearchTools, SokobanTools, episode_return, seed_rows

    def called() -> str:
        moves = [("search", "query"), ("answer", "answer"), ("move", "moves"), (fuzz.text(), fuzz.text())]
        tool, argument = fuzz.pick(moves)
        call = tool_call(tool, **{argument: fuzz.pick([fuzz.text(), fuzz.value()])})
        return fuzz.pick([fuzz.text(), call, call + fuzz.text(), call])

    def rolling(entry: dict[str, Any]) -> dict[str, Any]:
        rollout = EpisodeRollout(entry["env"], entry.get("methods", ()), "lexical", **entry["settings"])
        parts = {"rollout_func": rollout, "reward_funcs": episode_return}
        return {"script": fuzz.text, "comparison": entry["comparison"], **parts}

    tools = [
        {"script": called, "tools": True, "environment_factory": kind} for kind in (SearchTools, SokobanTools)
    ]
    shared = {"rows": seed_rows([0]), "options": {"max_completion_length": 1000}}
    with tiny(2048) as model:
        trainers = [
            make_trainer(ByTurn, model, model / "out", **shared, **own)
            for own in (*map(rolling, TRAINED), *tools)
        ]

        def play() -> None:
            trainer, seed = fuzz.pick(trainers), fuzz.seed()
            row = {"prompt": [{"role": "user", "content": ""}], "seed": seed}  # of the tools
            rows = seed_rows([seed]) if trainer.rollout_func else [row]
            batch = trainer._generate_and_score_completions(rows * 2)
            assert batch["advantages"].isfinite().all()
            assert trainer.rewards[-1].isfinite().all()
            trainer.batches, trainer.rewards = [], []

        yield play


@contextlib.contextmanager
def trl_tools(fuzz: Requests) -> Iterator[Round]:
    """The tools alone, called with any JSON: TRL hides what a tool raises."""
    from memenvs.adapters.trl import SearchTools, SokobanTools

    search, sokoban = SearchTools(methods=["SearchRewards"]), SokobanTools()
    tools = [(search, search.search), (search, search.answer), (sokoban, sokoban.move)]

    def play() -> None:
        for env in (search, sokoban):
            env.reset(seed=fuzz.seed())
        for _ in range(10):
            env, tool = fuzz.pick(tools)
            fuzz.counts["replies"] += 1
            assert isinstance(tool(fuzz.value()), str)
        assert all(math.isfinite(env.get_reward()) for env in (search, sokoban))

    yield play


@contextlib.contextmanager
def skyrl_environment(fuzz: Requests) -> Iterator[Round]:
    """SkyRL-gym's environments, stepped as its generator steps them."""
    from memenvs.adapters.skyrl import SkyRLEnv

    def play() -> None:
        entry = fuzz.pick(TRAINED)
        config = {"env": entry["env"], "env_args": entry["settings"], "methods": entry.get("methods", [])}
        env = SkyRLEnv({**config, "scorer": "lexical", "step_wise": True}, {"seed": fuzz.seed()})
        history, _ = env.init([{"role": "user", "content": ""}])
        done = False
        while not done:
            fuzz.counts["replies"] += 1
            reply = fuzz.reply()
            output = env.step(reply)
            history += [{"role": "assistant", "content": reply}, *output["observations"]]
            json.dumps([output, history], allow_nan=False)
            done = output["done"]
        assert all(map(math.isfinite, env.get_metrics().values())), env.get_metrics()

    yield play


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the texts inside those that hold JSON."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[Any] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Keep a tag with its attributes."""
        self.found.append((tag, *attrs))
        if self._json:
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        """Keep the text of scripts that hold JSON."""
        if self._json:
            self.texts[-1] += data

    @property
    def _json(self) -> bool:
        return any(("type", "application/json") in element for element in self.found[-1:])


def write_pages(fuzz: Requests, folder: Path, text: Callable[[], str]) -> list[Path]:
    """A report of two episodes in both its forms, whose texts are made so; the pages."""
    path, numbers = folder / "episodes.jsonl", [0.5, math.nan, math.inf, -1e308]
    entry, (name, other) = fuzz.pick(TRAINED), (text(), text())
    env = RecordEpisodes(gym.make(entry["env"], **entry["settings"]), path)
    collect(env, lambda *_: text(), [fuzz.seed()], errors="raise")
    info = {"context": "append", "feedback": text(), "task": text(), "rewards": {other: fuzz.pick(numbers)}}
    first, second, third = ({**info, "turn": number} for number in range(3))
    turns = [
        Turn(text(), before, Reply(reply), after, signals={name: signal}, credits={name: [credit], other: []})
        for before, after, reply, signal, credit in (
            (first, second, text(), fuzz.pick(numbers), Credit(0, 1.0, (0, 9), text())),
            (second, third, f"<think>{text()}</think>{text()}", 1.0, Credit(1, math.nan, None, text())),
        )
    ]
    metrics = {name: fuzz.pick(numbers), "__proto__": 1.0}
    made = Episode(task=text(), env=text(), error=text(), end="failed", turns=turns, metrics=metrics)
    write(path, [made])
    pages = [folder / "report.html", folder / "folder" / "report.html"]
    for page in (pages[0], pages[1].parent):
        write_report([path], page)
    return pages


@contextlib.contextmanager
def viewer(fuzz: Requests) -> Iterator[Round]:
    """`memenvs view`: a text adds no element, breaks no JSON, and writes nothing but itself to a terminal."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    def read(text: Callable[[], str]) -> list[list[str]]:
        with tempfile.TemporaryDirectory() as folder:
            pages = [
                Elements(page.read_text(encoding="utf-8")) for page in write_pages(fuzz, Path(folder), text)
            ]
            block = (Path(folder) / "folder" / "episodes" / "0.js").read_text(encoding="utf-8")
            assert not {"\u2028", "\u2029"} & set(block)
            texts = [json.loads(block.removeprefix("memenvsBlock(0,").removesuffix(");\n"))]
            for one in itertools.chain(texts, *(page.texts for page in pages)):
                for line in filter(None, one.split("\n")):
                    json.loads(line, parse_constant=refuse)
            for more in ([], ["--episode", "0"], ["--episode", "1"]):
                with contextlib.redirect_stdout(io.StringIO()) as shown:
                    assert main_command(["view", folder, "--terminal", *more]) == 0
                raw = {c for c in shown.getvalue() if unicodedata.category(c) in ("Cc", "Cf")} - {"\n"}
                assert not raw, (raw, more, [line for line in shown.getvalue().split("\n") if raw & {*line}])
        return [[tag for tag, *_ in page.found] for page in pages]

    plain = read(lambda: "a")

    def play() -> None:
        assert read(fuzz.markup) == plain

    yield play


@contextlib.contextmanager
def viewer_in_chromium(fuzz: Requests) -> Iterator[Round]:
    """The same pages in a browser: nothing in them runs."""
    with tempfile.TemporaryDirectory() as profile:
        driver = chromium(profile)

        def play() -> None:
            with tempfile.TemporaryDirectory() as folder:
                page = fuzz.pick(write_pages(fuzz, Path(folder), fuzz.markup))
                for view in ("", "#e0", "#e1"):
                    driver.get("about:blank")
                    driver.get(f"file://{page}{view}")
                    ran = "return [window.evil, document.images.length, document.forms.length]"
                    assert driver.execute_script(ran) == [None, 0, 0], view
                    assert driver.find_elements("css selector", "main .turn" if view else "tr.row"), view
                assert not [one for one in driver.get_log("browser") if one["level"] == "SEVERE"]

        yield play
        driver.quit()


PARTS = {part.__name__: part for part in (
    retrieval_server, openenv_server, mcp_server, chat_endpoint, verifiers_environment, inspect_task,
    verl_loop, trl_trainer, trl_tools, skyrl_environment, viewer, viewer_in_chromium,
)}  # fmt: skip


def main(parts: tuple[str, ...] = tuple(PARTS), /, seconds: float = 60, seed: int = 0) -> None:
    """Soak every part that can be made here, each for an equal time."""
    logging.disable(logging.INFO)
    fuzz, left_out = Requests(seed), []
    with contextlib.ExitStack() as stack:
        rounds: dict[str, Round] = {}
        for name in parts:
            try:
                rounds[name] = stack.enter_context(PARTS[name](fuzz))
            except ImportError as error:
                left_out.append(f"{name} ({error})")
        spent = dict.fromkeys(rounds, 0.0)
        while sum(spent.values()) < seconds or not all(spent.values()):
            name, began = min(spent, key=lambda one: spent[one]), time.monotonic()
            rounds[name]()
            spent[name] += time.monotonic() - began
            fuzz.counts[f"rounds of {name}"] += 1
    missing = "; ".join(left_out) or "nothing"
    sys.stdout.write(f"{dict(fuzz.counts)}, seed {seed}: nothing failed\nleft out: {missing}\n")


if __name__ == "__main__":
    run(main)
