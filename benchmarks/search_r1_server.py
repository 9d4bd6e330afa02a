"""The retrieval server beside Search-R1's own, over HTTP, with the same passages, vectors and encoder.

pip install datasets
python -m benchmarks.search_r1_server --script retrieval_server.py --index DIR --corpus passages.jsonl \
    --questions nq_open_gold_1000.jsonl.gz

The script is search_r1/search/retrieval_server.py of its repository. It asks for a GPU and for float16; here
`.cuda()` and `.half()` leave a model as it is. DIR is a flat index of the corpus.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np

from benchmarks.harness import print_head, print_row, read_gzip, run
from benchmarks.retrieval_server import Load, drive, running

PORT = 8000  # theirs, written in the script
ON_CPU = """
import runpy, sys, torch
torch.nn.Module.cuda = torch.nn.Module.half = torch.Tensor.cuda = lambda it: it
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@contextlib.contextmanager
def theirs(script: str, index: Path, corpus: str, encoder: str) -> Iterator[int]:
    """Their server as a process of its own; its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", PORT))  # raises if something else would be measured
    with tempfile.TemporaryDirectory() as folder:
        vectors = np.load(index / "vectors.npy")
        flat = faiss.IndexFlatIP(vectors.shape[1])
        flat.add(vectors)
        faiss.write_index(flat, f"{folder}/flat.index")
        arguments = ["--index_path", f"{folder}/flat.index", "--corpus_path", corpus, "--topk", "3"]
        arguments += ["--retriever_name", "minilm", "--retriever_model", encoder]
        command = [sys.executable, "-c", ON_CPU, script, *arguments]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                while process.poll() is None:
                    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT)):
                        break
                    time.sleep(0.2)
                else:
                    raise RuntimeError(f"{script} ended with {process.returncode}; run it to see why")
                yield PORT
            finally:
                process.kill()


def loaded(port: int, queries: list[str], clients: int) -> Load:
    """The load of `clients` clients, after a tenth of the requests to warm up."""
    asyncio.run(drive(port, [f"{query} again" for query in queries[: len(queries) // 10]], clients))
    return asyncio.run(drive(port, queries, clients))


def main(
    *, script: str, index: Path, corpus: str, questions: str, requests: int = 500, rounds: int = 3
) -> None:
    """Print requests a second of both and their ratio, for one client and for 32."""
    asked = [record["question"] for record in read_gzip(questions)]
    queries = list(itertools.islice(itertools.cycle(asked), requests))
    encoder = json.loads((index / "index.json").read_text())["encoder"]["model"]
    print_head("clients", "Search-R1, requests/s", "p50, ms", "memenvs, requests/s", "p50, ms", "ratio")
    least = dict[int, float]()
    for _, clients in itertools.product(range(rounds), (1, 32)):
        with theirs(script, index, corpus, encoder) as port:
            other = loaded(port, queries, clients)
        with running(str(index), "--cache", "0") as server:
            own = loaded(server.port, queries, clients)
        if other.lost or own.lost:
            raise RuntimeError(f"{other.lost} of Search-R1's answers are missing, {own.lost} of ours")
        cells = []
        for load in (other, own):
            median = load.latencies[len(queries) // 2]
            cells += [f"{len(queries) / load.seconds:.0f}", f"{1000 * median:.0f}"]
        ratio = other.seconds / own.seconds
        least[clients] = min(ratio, least.get(clients, ratio))
        print_row(clients, *cells, f"{ratio:.1f}")
    for clients, ratio in least.items():
        print(f"{clients} clients, least ratio {ratio:.1f}")


if __name__ == "__main__":
    run(main)
