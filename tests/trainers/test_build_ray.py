"""Builds on Ray: the same bytes, even if workers are killed."""

import functools
import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from memenvs.commands.build import main
from memenvs.core.processes import map_jobs
from memenvs.retrieval.build import build_index
from memenvs.retrieval.corpus import Corpus
from memenvs.retrieval.encoder import load_encoder

ray = pytest.importorskip("ray", reason='ray is not installed: pip install -e ".[ray]"')
pytestmark = pytest.mark.filterwarnings("default")  # of ray


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_a_task_set_has_the_same_bytes(tmp_path):
    given = ["niah", "--variant", "single_2", "--tokens", "400", "--num-tasks", "600"]
    assert main([*given, "--out", str(tmp_path / "here")]) == 0
    assert main([*given, "--workers", "ray", "--out", str(tmp_path / "ray")]) == 0
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert len(names) == 3
    for name in names:
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()


def killed_once(folder, job):
    """Kill the worker of the first attempt at job 3."""
    if job == 3 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os._exit(1)
    return job * job


def test_the_job_of_a_killed_worker_is_done_again(tmp_path):
    assert [*map_jobs(functools.partial(killed_once, tmp_path), range(40), "ray")] == [
        n * n for n in range(40)
    ]
    assert (tmp_path / "killed").exists()


class Embeddings(BaseHTTPRequestHandler):
    """The vector of a text is (number of its characters, 2); deadly requests kill their client."""

    def do_POST(self):
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        self.server.asked += 1
        if self.server.asked in self.server.deadly:
            os.kill(pid_of_client(self.client_address[1]), signal.SIGKILL)
            return
        rows = [{"index": i, "embedding": [len(text), 2]} for i, text in enumerate(texts)]
        data = json.dumps({"data": rows}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


def pid_of_client(port):
    """The process that has a connection from a local port."""
    psutil = pytest.importorskip("psutil")
    return next(c.pid for c in psutil.net_connections("tcp") if c.laddr and c.laddr.port == port and c.pid)


@pytest.fixture
def endpoint():
    with ThreadingHTTPServer(("127.0.0.1", 0), Embeddings) as server:
        server.asked, server.deadly = 0, ()
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield server
        server.shutdown()


def test_the_vectors_of_an_index_have_the_same_bytes_also_if_a_worker_is_killed(endpoint, tmp_path):
    corpus = Corpus.from_documents((str(i), "Moth", "b" * (i % 97)) for i in range(2_000))
    encoder = load_encoder(f"openai:tiny@{endpoint.url}", None, None, 256, None)
    build_index(corpus, tmp_path / "here", "flat", encoder)
    here, endpoint.deadly = endpoint.asked, {endpoint.asked + 3}
    build_index(corpus, tmp_path / "ray", "flat", encoder, workers="ray")
    assert endpoint.asked > 2 * here - 1  # and the requests of the killed worker again
    for name in ("vectors.npy", "index.json"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "ray" / name).read_bytes()


def test_a_worker_with_another_model_by_the_same_name_is_refused(endpoint, tmp_path):
    encoder = load_encoder(f"openai:tiny@{endpoint.url}", None, None, 256, None)
    encoder.fingerprint = "0" * 64
    with pytest.raises(ValueError, match="give all machines the same model"):
        build_index(Corpus.from_documents([("1", "Moth", "b")]), tmp_path, "flat", encoder, workers="ray")


def killed_always(job):
    os._exit(1)


def test_a_job_that_always_kills_its_worker_is_one_line():
    with pytest.raises(ValueError, match="Ray workers were killed"):
        list(map_jobs(killed_always, range(2), "ray"))


def failing(job):
    raise KeyError(job)


def test_an_error_of_a_job_is_raised_as_it_is():
    with pytest.raises(KeyError, match="0"):
        list(map_jobs(failing, range(2), "ray"))


def test_a_caller_that_stops_early_leaves_no_jobs():
    made = map_jobs(abs, range(10**9), "ray")
    assert [next(made) for _ in range(3)] == [0, 1, 2]
    made.close()
