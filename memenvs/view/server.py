"""A server of the report on this machine: `memenvs view PATH… --serve`."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from memenvs.view.report import find_files, folder_files, make_report

_LOCAL = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")


def report_server(paths: Sequence[str | Path], port: int = 0) -> ThreadingHTTPServer:
    """A server of the report at `/` on the loopback interface; requests by another host name are refused.

    Args:
        paths: see `memenvs.view.write_report`.
        port: 0 takes one that is free.

    Raises:
        OSError: the port is taken.
        ValueError: see `memenvs.view.write_report`.
    """
    made: dict[str, bytes] = {}
    stamps: list[Any] = []
    lock = threading.Lock()

    def refresh() -> None:
        nonlocal made, stamps
        with lock:
            now = [(file, file.stat().st_mtime_ns, file.stat().st_size) for file in find_files(paths)]
            if now != stamps:
                texts = folder_files(make_report(paths))
                made = {f"/{name}": text.encode("utf-8") for name, text in texts.items()}
                stamps = now

    class PageHandler(BaseHTTPRequestHandler):
        """Answers `GET /` and `GET /episodes/N.js`, and nothing else."""

        def do_GET(self) -> None:
            """The report, or 404; 403 for a request that names another host (DNS rebinding)."""
            if not _LOCAL.fullmatch(self.headers.get("Host", "")):
                return self._answer(403, b"ask for 127.0.0.1", "text/plain")
            try:
                if self.path == "/":
                    refresh()
            except (ValueError, OSError) as error:
                return self._answer(500, str(error).encode("utf-8"), "text/plain; charset=utf-8")
            name = "/report.html" if self.path == "/" else self.path
            if (found := made.get(name)) is None:
                return self._answer(404, b"the report is at /", "text/plain")
            kind = "text/html" if self.path == "/" else "text/javascript"
            return self._answer(200, found, f"{kind}; charset=utf-8")

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(body))),
                ("X-Content-Type-Options", "nosniff"),
                ("X-Frame-Options", "DENY"),
                ("Cross-Origin-Resource-Policy", "same-origin"),
                ("Cache-Control", "no-store"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    refresh()
    return ThreadingHTTPServer(("127.0.0.1", port), PageHandler)
