"""A server of a report on this machine: `memenvs view --serve`."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from memenvs.view.report import find_files, folder_files, make_report

_LOCAL = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")


class ReportServer(ThreadingHTTPServer):
    """A server of a report at `/` on the loopback interface; requests by another host name are refused.

    The report is made again when `/` is asked for and an episode was added.

    Args:
        paths: files of episodes, and folders, in which all `episodes.jsonl` are read.
        port: 0 takes one that is free.

    Raises:
        OSError: the port is taken.
        ValueError: as `memenvs.view.write_report`.
    """

    def __init__(self, paths: Sequence[str | Path], port: int = 0) -> None:
        self._paths, self._stamps, self._lock = paths, list[Any](), threading.Lock()
        self._texts: dict[str, str] = {}
        self._refresh()
        super().__init__(("127.0.0.1", port), _Handler)

    def text(self, path: str) -> str | None:
        """The text of a file of the report."""
        if path == "/report.html":
            self._refresh()
        return self._texts.get(path)

    def _refresh(self) -> None:
        with self._lock:
            now = [(file, file.stat().st_mtime_ns, file.stat().st_size) for file in find_files(self._paths)]
            if now != self._stamps:
                made = folder_files(make_report(self._paths))
                self._texts = {f"/{name}": text for name, text in made.items()}
                self._stamps = now


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer

    def do_GET(self) -> None:
        """A file of the report, or 404; 403 for a request that names another host (DNS rebinding)."""
        if not _LOCAL.fullmatch(self.headers.get("Host", "")):
            return self._send(403, "plain", "ask for 127.0.0.1")
        path = urlsplit(self.path).path
        path = "/report.html" if path == "/" else path
        try:
            text = self.server.text(path)
        except (ValueError, OSError) as error:
            return self._send(500, "plain", str(error))
        if text is None:
            return self._send(404, "plain", "there is no such page; the first one is at /")
        return self._send(200, "html" if path.endswith(".html") else "javascript", text)

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode("utf-8")
        self.send_response(status)
        for name, value in (
            ("Content-Type", f"text/{kind}; charset=utf-8"),
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
