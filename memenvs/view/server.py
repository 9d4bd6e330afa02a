"""Servers on this machine: of a report (`view --serve`), and of a run as it goes (`view --follow`)."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from memenvs.view.follow import follow_page, progress
from memenvs.view.report import find_files, folder_files, make_report

_LOCAL = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")

Page = tuple[str, str]
"""A content type and a text."""


def report_server(paths: Sequence[str | Path], port: int = 0) -> ThreadingHTTPServer:
    """A server of the report at `/` on the loopback interface; requests by another host name are refused.

    Args:
        paths: see `memenvs.view.write_report`.
        port: 0 takes one that is free.

    Raises:
        OSError: the port is taken.
        ValueError: see `memenvs.view.write_report`.
    """
    files = _Report(paths)
    files.refresh()
    return _server(lambda path, query: files.page("/report.html" if path == "/" else path), port)


def follow_server(run: str | Path, port: int = 0) -> ThreadingHTTPServer:
    """A server of a page at `/` that follows a training run, and of the report of its episodes at `/report`.

    Args:
        run: the folder that a learner writes, which may not exist yet.
        port: 0 takes one that is free.

    Raises:
        OSError: the port is taken.
    """
    files, page = _Report([run]), follow_page()

    def answer(path: str, query: Mapping[str, str]) -> Page | None:
        if path == "/":
            return "text/html", page
        if path == "/data":
            known = [int(query.get(name, "0")) for name in ("log", "episodes")]
            return "application/json", json.dumps(progress(Path(run), *known))
        return files.page("/report.html" if path == "/report" else path)

    return _server(answer, port)


class _Report:
    """The files of a report, made again when an episode was added."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self._paths, self._stamps, self._lock = paths, list[Any](), threading.Lock()
        self._texts: dict[str, str] = {}

    def refresh(self) -> None:
        with self._lock:
            now = [(file, file.stat().st_mtime_ns, file.stat().st_size) for file in find_files(self._paths)]
            if now != self._stamps:
                made = folder_files(make_report(self._paths))
                self._texts = {f"/{name}": text for name, text in made.items()}
                self._stamps = now

    def page(self, path: str) -> Page | None:
        if path == "/report.html":
            self.refresh()
        text = self._texts.get(path)
        return None if text is None else ("text/html" if path.endswith(".html") else "text/javascript", text)


def _server(answer: Callable[[str, Mapping[str, str]], Page | None], port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET."""

        def do_GET(self) -> None:
            """A page, or 404; 403 for a request that names another host (DNS rebinding)."""
            if not _LOCAL.fullmatch(self.headers.get("Host", "")):
                return self._send(403, "text/plain", "ask for 127.0.0.1")
            place = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(place.query).items()}
            try:
                page = answer(place.path, query)
            except (ValueError, OSError) as error:
                return self._send(500, "text/plain", str(error))
            if page is None:
                return self._send(404, "text/plain", "there is no such page; the first one is at /")
            return self._send(200, *page)

        def _send(self, status: int, kind: str, text: str) -> None:
            body = text.encode("utf-8")
            self.send_response(status)
            for name, value in (
                ("Content-Type", f"{kind}; charset=utf-8"),
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

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)
