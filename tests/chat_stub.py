"""A chat endpoint on loopback with replies that the test sets."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ChatStub(ThreadingHTTPServer):
    """`reply` gets a request's fields and returns (status, text), or (status, text, parts of the choice).

    A part that is `...` is left out.

    Attributes:
        bodies: the fields of every request, in the order they came.
        headers: likewise.
        most: requests that were under way at once.
        wait: seconds that a busy answer asks for.
    """

    request_queue_size = 128  # at 5, connections of many threads wait for a second

    def __init__(self, reply):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply, self.lock = reply, threading.Lock()
        self.bodies, self.headers, self.models = [], [], ["tiny"]
        self.under_way = self.most = 0
        self.usage, self.wait = True, None
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.send(200, {"data": [{"id": name} for name in self.server.models]})

    def do_POST(self):
        stub = self.server
        fields = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with stub.lock:
            stub.bodies.append(fields)
            number = len(stub.bodies)
            stub.headers.append(dict(self.headers))
            stub.under_way += 1
            stub.most = max(stub.most, stub.under_way)
        time.sleep(0.002)  # so that requests overlap
        status, text, *parts = stub.reply(fields)
        with stub.lock:
            stub.under_way -= 1
        if status != 200:
            self.send(status, {"error": {"message": text}})
            return
        choice = {"message": {"role": "assistant", "content": text}, "index": 0}
        choice |= {"finish_reason": "stop", "stop_reason": None}
        counted = sum(len(str(message["content"]).split()) for message in fields["messages"])
        usage = {"prompt_tokens": counted, "completion_tokens": len(str(text or "").split())}
        usage["total_tokens"] = sum(usage.values())
        choice |= parts[0] if parts else {}
        body = {"id": f"chat-{number}", "object": "chat.completion", "created": 0}
        body["model"] = fields.get("model", "")
        body["choices"] = [{name: part for name, part in choice.items() if part is not ...}]
        self.send(200, body | ({"usage": usage} if stub.usage else {}))

    def send(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if status == 429 and self.server.wait is not None:
            self.send_header("Retry-After", self.server.wait)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass
