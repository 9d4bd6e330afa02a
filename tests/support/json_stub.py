"""A JSON server on loopback that answers as a test tells it to."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class JSONStub(ThreadingHTTPServer):
    """`answer(path, fields)` returns (status, body), and None hangs up; `fields` are None for a GET.

    Attributes:
        bodies: the fields of every POST, in the order they came.
        paths: likewise.
        headers: likewise.
        connections: how many were opened.
        closed: how many of them were closed.
        most: requests that were under way at once.
        hangs_up: whether it closes a connection after an answer without saying so.
        wait: seconds that a busy answer asks for.
        location: where it says that it has moved to.
    """

    request_queue_size = 128  # at 5, connections of many threads wait for a second

    def __init__(self, answer=None):
        super().__init__(("127.0.0.1", 0), _Handler)
        if answer:
            self.answer = answer
        self.lock, self.bodies, self.paths, self.headers = threading.Lock(), [], [], []
        self.connections = self.closed = self.under_way = self.most = 0
        self.hangs_up = False
        self.wait = self.location = None
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        self.thread.start()
        return self

    def shutdown_request(self, request):
        super().shutdown_request(request)
        self.closed += 1

    def __exit__(self, *error):
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        self.server.connections += 1

    def do_GET(self):
        self.send(*self.server.answer(self.path, None))

    def do_POST(self):
        stub = self.server
        fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with stub.lock:
            stub.bodies.append(fields)
            stub.paths.append(self.path)
            stub.headers.append(self.headers)
            stub.under_way += 1
            stub.most = max(stub.most, stub.under_way)
        time.sleep(0.002)  # so that requests overlap
        answer = stub.answer(self.path, fields)
        with stub.lock:
            stub.under_way -= 1
        if answer is not None:
            self.send(*answer)
        self.close_connection |= answer is None or stub.hangs_up

    def do_CONNECT(self):
        self.server.paths.append(self.path)
        self.server.headers.append(self.headers)
        self.send_error(403)

    def send(self, status, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if status == 429 and self.server.wait is not None:
            self.send_header("Retry-After", self.server.wait)
        else:
            self.send_header("Retry-After-Ms", "1")  # so that tests of retries take no time
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass
