"""The server under load, one by one and in batches; `--rough`: malformed requests and clients that hang up.

    python benchmarks/retrieval_server.py --index DIR --questions nq_open_gold_1000.jsonl.gz --requests 2000

`--waiting` compares, for one client, torch's threads that spin with threads that sleep while they wait. It
needs other work on the machine, which `--busy 4` makes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import itertools
import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

CLIENTS = 32
MALFORMED = [b"not json", b'{"queries": 3}', b'{"queries": ["a"], "topk": -1}', b"[]", b"\xff"]


# By name: flags of the server, and variables of its environment. Threads spin if the variable says nothing.
BATCHING = [("one by one", ["--max-batch", "1", "--wait-ms", "0"], {}), ("batched", [], {})]
WAITING = [("threads spin", [], {"OMP_WAIT_POLICY": ""}), ("threads sleep", [], {})]


class Load(NamedTuple):
    """What a run of the load gave."""

    seconds: float
    latencies: list[float]
    lost: int


class Server(NamedTuple):
    """A running server process."""

    url: str
    pid: int

    @property
    def port(self) -> int:
        """Of the address."""
        return int(self.url.rsplit(":", 1)[1])

    def resident(self) -> int:
        """Megabytes (Linux)."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) // 1024


@contextlib.contextmanager
def running(index: str, *arguments: str, **env: str) -> Iterator[Server]:
    """A server process on a free port, with variables of its environment, stopped cleanly at the end."""
    command = [
        sys.executable,
        "-m",
        "memenvs",
        "serve",
        "retriever",
        "--index",
        index,
        "--port",
        "0",
        *arguments,
    ]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stderr=log, env=os.environ | env) as process,
    ):
        try:
            yield Server(address(log, process), process.pid)
        finally:
            process.send_signal(signal.SIGTERM)


def address(log: IO[str], process: subprocess.Popen[bytes]) -> str:
    """Where the server listens, once it does."""
    while process.poll() is None:
        log.seek(0)
        if found := re.search(r"running on (http://\S+)", log.read()):
            return found[1]
        time.sleep(0.1)
    log.seek(0)
    raise RuntimeError(f"the server ended: {log.read()}")


def request(body: bytes) -> bytes:
    """The bytes of a POST."""
    return b"POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes
) -> tuple[int, bytes]:
    """Status and body of a reply."""
    writer.write(request(body))
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
    return int(head[9:12]), await reader.readexactly(length)


async def client(port: int, queries: list[str], bad: float, rng: random.Random, load: list[float]) -> int:
    """Send queries in turn, a share of them malformed and as many cut off; how many were lost."""
    lost = 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for query in queries:
        body = json.dumps({"queries": [query], "topk": 3, "return_scores": True}).encode()
        chance = rng.random()
        if chance < bad:
            status, reply = await exchange(reader, writer, rng.choice(MALFORMED))
            lost += not (400 <= status < 500 and "detail" in json.loads(reply))
        elif chance < 2 * bad:  # hang up, half of them before the body is out
            sent = request(body)
            writer.write(sent if rng.random() < 0.5 else sent[:-5])
            await writer.drain()
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        else:
            began = time.perf_counter()
            status, reply = await exchange(reader, writer, body)
            load.append(time.perf_counter() - began)
            lost += status != 200 or len(json.loads(reply)["result"]) != 1
    writer.close()
    return lost


async def drive(port: int, queries: list[str], bad: float = 0.0, clients: int = CLIENTS) -> Load:
    """All queries, over some clients at once."""
    load: list[float] = []
    began = time.perf_counter()
    lost = await asyncio.gather(
        *(client(port, queries[i::clients], bad, random.Random(i), load) for i in range(clients))
    )
    return Load(time.perf_counter() - began, sorted(load), sum(lost))


def main() -> None:
    """Print the rates, their ratio, and what the rough run lost."""
    parser = argparse.ArgumentParser(description="The retrieval server under load")
    parser.add_argument("--index", required=True)
    parser.add_argument("--questions", required=True)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument(
        "--rough", type=int, default=0, help="requests of the run with malformed ones and hang-ups"
    )
    parser.add_argument(
        "--waiting", action="store_true", help="one client, and torch's threads sleep or spin while they wait"
    )
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside the server")
    args = parser.parse_args()
    with gzip.open(args.questions, "rt", encoding="utf-8") as lines:
        questions = [json.loads(line)["question"] for line in lines]
    queries = (questions * (1 + max(args.requests, args.rough) // len(questions)))[: args.requests]
    rates = []
    with computing(args.busy):
        for name, flags, env in WAITING if args.waiting else BATCHING:
            with running(args.index, "--cache", "0", *flags, **env) as server:
                clients = 1 if args.waiting else CLIENTS
                asyncio.run(drive(server.port, queries[: len(queries) // 10], clients=clients))
                load = asyncio.run(drive(server.port, queries, clients=clients))
            rates.append(len(queries) / load.seconds)
            p50, p99 = (load.latencies[int(len(load.latencies) * q)] * 1000 for q in (0.5, 0.99))
            print(
                f"{name}: {rates[-1]:.0f} requests/s, p50 {p50:.0f} ms, p99 {p99:.0f} ms, lost {load.lost}",
                flush=True,
            )
    print(f"ratio {rates[1] / rates[0]:.2f}", flush=True)
    if args.rough:
        rough(args.index, (questions * (1 + args.rough // len(questions)))[: args.rough])


@contextlib.contextmanager
def computing(count: int) -> Iterator[None]:
    """Processes that compute all the time."""
    processes = [multiprocessing.Process(target=sum, args=(itertools.count(),)) for _ in range(count)]
    for process in processes:
        process.start()
    yield
    for process in processes:
        process.kill()


def rough(index: str, queries: list[str]) -> None:
    """Print what is lost, and the server's memory, over requests of which 1% is malformed and 1% cut off."""
    with running(index, "--cache", "0") as server:
        for part in range(5):
            load = asyncio.run(drive(server.port, queries[part::5], bad=0.01))
            print(
                f"{(part + 1) * len(queries) // 5} requests: lost {load.lost}, server {server.resident()} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
