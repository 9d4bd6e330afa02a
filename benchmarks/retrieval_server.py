"""The server under load, one by one and in batches, by 32 clients.

    python -m benchmarks.retrieval_server --index DIR --questions nq_open_gold_1000.jsonl.gz --requests 2000
    python -m benchmarks.retrieval_server --index DIR --questions nq_open_gold_1000.jsonl.gz --rough 1000000
    python -m benchmarks.retrieval_server --index DIR --questions nq_open_gold_1000.jsonl.gz --shared

`--shared` compares one server with two and with four behind HAProxy, all on this machine. With few or busy
cores the requests a second say little; the processor time of the busiest server says how much more they could
answer on cores of their own. `--rough` has 64 clients, some of which misbehave. `--waiting` compares, for one
client, torch's threads that spin with threads that sleep while they wait; it needs other work on the machine,
which `--busy 4` makes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

from benchmarks.harness import read_gzip, run

CLIENTS, ROUGH_CLIENTS = 32, 64
MALFORMED = [b"not json", b'{"queries": 3}', b'{"queries": ["a"], "topk": -1}', b"[]", b"\xff"]


HAPROXY = Path(__file__).parents[1] / "examples" / "clusters" / "haproxy.cfg"


class Way(NamedTuple):
    """A way to serve an index."""

    name: str
    first: str = ""  # Python that the server runs first
    env: Mapping[str, str] = {}  # threads spin if OMP_WAIT_POLICY says nothing
    servers: int = 1  # behind HAProxy, if there are several


BATCHING = [Way("one by one", "server.MAX_BATCH = 1"), Way("batched")]
WAITING = [Way("threads spin", env={"OMP_WAIT_POLICY": ""}), Way("threads sleep")]
SHARED = [Way("one server"), *(Way(f"{count} behind HAProxy", servers=count) for count in (2, 4))]


class Load(NamedTuple):
    """Results of a run of the load."""

    seconds: float
    latencies: list[float]
    lost: int


class Server(NamedTuple):
    """A running server process."""

    url: str
    pid: int

    @property
    def port(self) -> int:
        """Port of the address."""
        return int(self.url.rsplit(":", 1)[1])

    def processor_seconds(self) -> float:
        """Of the process so far (Linux)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self) -> str:
        """Resident memory now and at its peak (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        now, peak = (int(re.findall(rf"{name}:\s+(\d+)", status)[0]) // 1024 for name in ("VmRSS", "VmHWM"))
        return f"{now} MB, peak {peak}"


@contextlib.contextmanager
def running(index: str, *arguments: str, first: str = "", **env: str) -> Iterator[Server]:
    """A server process on a free port, stopped cleanly at the end.

    It runs a line of Python first, and has variables of its own in its environment.
    """
    program = f"from memenvs.commands import main\nfrom memenvs.retrieval import server\n{first}\nmain()"
    options = ["serve", "retriever", "--index", index, "--port", "0"]
    command = [sys.executable, "-c", program, *options, *arguments]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stderr=log, env=os.environ | env) as process,
    ):
        try:
            yield Server(address(log, process), process.pid)
        finally:
            process.send_signal(signal.SIGTERM)


def address(log: IO[str], process: subprocess.Popen[bytes]) -> str:
    """The server's address, once it listens."""
    while process.poll() is None:
        log.seek(0)
        if found := re.search(r"running on (http://\S+)", log.read()):
            return found[1]
        time.sleep(0.1)
    log.seek(0)
    raise RuntimeError(f"the server ended: {log.read()}")


def request(body: bytes) -> bytes:
    """The bytes of a POST."""
    head = (
        b"POST /retrieve HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n"
    )
    return head % len(body) + body


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes
) -> tuple[int, bytes]:
    """Status and body of a reply."""
    writer.write(request(body))
    return await answer(reader)


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of the next reply."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
    return int(head[9:12]), await reader.readexactly(length)


async def client(port: int, queries: list[str], bad: float, rng: random.Random, load: list[float]) -> int:
    """Send queries in turn, some badly: a share `bad` malformed, as many cut off, a tenth as many slowly.

    Returns:
        how many did not get the answer that they should.
    """
    lost = 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for query in queries:
        body = json.dumps({"queries": [query], "topk": 3, "return_scores": True}).encode()
        chance = rng.random()
        if chance < bad:
            status, reply = await exchange(reader, writer, rng.choice(MALFORMED))
            lost += not (400 <= status < 500 and "detail" in json.loads(reply))
        elif chance < 2 * bad:  # disconnect, half of them before the body is sent
            sent = request(body)
            writer.write(sent if rng.random() < 0.5 else sent[:-5])
            await writer.drain()
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        elif chance < 2.1 * bad:  # head and body in 20 pieces over two seconds
            sent = request(body)
            for start in range(0, len(sent), step := len(sent) // 20 + 1):
                writer.write(sent[start : start + step])
                await asyncio.sleep(0.1)
            status, _ = await answer(reader)
            lost += status != 200
        else:
            began = time.perf_counter()
            status, reply = await exchange(reader, writer, body)
            load.append(time.perf_counter() - began)
            lost += status != 200 or len(json.loads(reply)["result"]) != 1
    writer.close()
    return lost


async def drive(port: int, queries: list[str], clients: int = CLIENTS, bad: float = 0.0) -> Load:
    """Send all queries from a number of clients at once."""
    load: list[float] = []
    began = time.perf_counter()
    lost = await asyncio.gather(
        *(client(port, queries[i::clients], bad, random.Random(i), load) for i in range(clients))
    )
    return Load(time.perf_counter() - began, sorted(load), sum(lost))


def main(
    *,
    index: str,
    questions: str,
    shared: bool = False,
    requests: int = 2_000,
    rounds: int = 1,
    clients: int = CLIENTS,
    rough: int = 0,
    waiting: bool = False,
    busy: int = 0,
) -> None:
    """Print the rates, their ratios to the first way's in each round, and what the rough run lost."""
    texts = [record["question"] for record in read_gzip(questions)]
    if rough:
        ask_roughly(index, texts, rough)
        return
    queries = list(itertools.islice(itertools.cycle(texts), requests))
    ways = SHARED if shared else WAITING if waiting else BATCHING
    clients = 1 if waiting else clients
    with computing(busy):
        for _ in range(rounds):
            rates, busiest = zip(*(measure(way, index, queries, clients) for way in ways), strict=True)
            print("ratios of requests/s", *(f"{rate / rates[0]:.2f}" for rate in rates[1:]), flush=True)
            if shared:
                print("ratios of processor time", *(f"{busiest[0] / time:.2f}" for time in busiest[1:]))


def measure(way: Way, index: str, queries: list[str], clients: int) -> tuple[float, float]:
    """Requests a second, and the processor seconds of the busiest process."""
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(running(index, "--cache", "0", first=way.first, **way.env))
            for _ in range(way.servers)
        ]
        port = servers[0].port if way.servers == 1 else stack.enter_context(balanced(servers))
        asyncio.run(drive(port, queries[: len(queries) // 10], clients))
        before = [server.processor_seconds() for server in servers]
        load = asyncio.run(drive(port, queries, clients))
        used = [server.processor_seconds() - earlier for server, earlier in zip(servers, before, strict=True)]
        told(way.name, load, servers[0])
    return len(queries) / load.seconds, max(used)


@contextlib.contextmanager
def balanced(servers: list[Server]) -> Iterator[int]:
    """The port of HAProxy in front of servers, by the example's settings."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    text = HAPROXY.read_text().replace("bind :8000", f"bind 127.0.0.1:{port}")
    lines = [line for line in text.splitlines() if not line.startswith("    server ")]
    lines += [f"    server on-{server.port} 127.0.0.1:{server.port} check" for server in servers]
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write("\n".join([*lines, ""]))
        file.flush()
        process = subprocess.Popen(["haproxy", "-f", file.name])
        time.sleep(1.0)
        yield port
        process.terminate()
        process.wait()


@contextlib.contextmanager
def computing(count: int) -> Iterator[None]:
    """Processes that compute all the time."""
    processes = [multiprocessing.Process(target=sum, args=(itertools.count(),)) for _ in range(count)]
    for process in processes:
        process.start()
    yield
    for process in processes:
        process.kill()


def ask_roughly(index: str, questions: list[str], requests: int) -> None:
    """Print p50, p99 and memory ten times over the requests, then of a flood, then what SIGTERM leaves."""
    questions = [f"{question} {number}" for number in range(20) for question in questions]  # few repeat
    with running(index) as server:
        for part in range(10):
            queries = list(itertools.islice(itertools.cycle(questions), requests // 10))
            load = asyncio.run(drive(server.port, queries, ROUGH_CLIENTS, 0.01))
            told(f"{(part + 1) * len(queries)} requests", load, server)
        told("flood of 200 requests of 15 MB", asyncio.run(flood(server.port, questions)), server)
        print("SIGTERM under full queues:", asyncio.run(ended(server, questions)), flush=True)


def told(what: str, load: Load, server: Server) -> None:
    """Print a line about a load."""
    p50, p99 = (load.latencies[int(len(load.latencies) * q)] * 1000 for q in (0.5, 0.99))
    rate = len(load.latencies) / load.seconds
    print(
        f"{what}: {rate:.0f} requests/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms, lost {load.lost}, "
        f"server {server.megabytes()}",
        flush=True,
    )


async def flood(port: int, questions: list[str]) -> Load:
    """What one polite client feels while 20 send the largest body that is allowed ten times."""
    body = json.dumps({"queries": ["x" * 2_000] * 7_450}).encode()  # 15 MB, too many for topk 3

    async def large() -> int:
        lost = 0
        for _ in range(10):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            status, reply = await exchange(reader, writer, body)
            lost += not (status == 422 and "the limit is" in json.loads(reply)["detail"])
            writer.close()
        return lost

    async def polite(load: list[float]) -> int:
        new = [f"{question} in a flood" for question in questions[:2_000]]
        return await client(port, new, 0.0, random.Random(0), load)

    load: list[float] = []
    began = time.perf_counter()
    lost = await asyncio.gather(polite(load), *(large() for _ in range(20)))
    return Load(time.perf_counter() - began, sorted(load), sum(lost))


async def ended(server: Server, questions: list[str]) -> dict[str, float]:
    """Answers by status to 100 requests of 200 queries, 20,000 in all, after SIGTERM; and its seconds."""
    rng = random.Random(0)
    bodies = [json.dumps({"queries": rng.sample(questions, 200), "topk": 50}).encode() for _ in range(100)]
    connections = [await asyncio.open_connection("127.0.0.1", server.port) for _ in bodies]
    for (_, writer), body in zip(connections, bodies, strict=True):
        writer.write(request(body))
    await asyncio.sleep(1.0)  # so that all are read
    os.kill(server.pid, signal.SIGTERM)
    began = time.perf_counter()
    answers = await asyncio.gather(*(answer(reader) for reader, _ in connections), return_exceptions=True)
    counts = Counter("no answer" if isinstance(one, BaseException) else str(one[0]) for one in answers)
    return {**counts, "seconds": round(time.perf_counter() - began, 2)}


if __name__ == "__main__":
    run(main)
