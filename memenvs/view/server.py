"""A server of a report on this machine: `memenvs view --serve`."""

from __future__ import annotations

import functools
import re
import sys
import tempfile
import threading
from collections.abc import Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from memenvs.evaluation.log import COST
from memenvs.view.report import find_files, write_report

_LOCAL = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",  # so that no page of another site loads the episodes
    "X-Content-Type-Options": "nosniff",
}


class ReportServer(ThreadingHTTPServer):
    """A server of a report at `/` on the loopback interface; requests by another host name are refused.

    The report is written to a temporary folder, and again when `/` is asked for and an episode was added.

    Args:
        paths: files of episodes, and folders, in which all `episodes.jsonl` are read.
        port: 0 takes a free one.

    Raises:
        OSError: the port is taken.
        ValueError: as `memenvs.view.write_report`.
    """

    request_queue_size = 128  # a browser with many tabs opens more connections at once than Python's 5

    def __init__(self, paths: Sequence[str | Path], port: int = 0) -> None:
        self._paths, self._stamps, self._lock = paths, list[Any](), threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="memenvs-view-")
        self.refresh()
        super().__init__(("127.0.0.1", port), functools.partial(_Handler, directory=self._folder.name))

    def refresh(self) -> None:
        """Write the report again if its files have changed."""
        with self._lock:
            files = find_files(self._paths)
            costs = [file.with_name(COST) for file in files]
            read = [*files, *(cost for cost in costs if cost.exists())]
            stamps = [(file, file.stat().st_mtime_ns, file.stat().st_size) for file in read]
            if stamps != self._stamps:
                write_report(self._paths, Path(self._folder.name, "report"))
                self._stamps = stamps

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless it is that a tab was closed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """Close the socket, and remove the report."""
        super().server_close()
        self._folder.cleanup()


class _Handler(SimpleHTTPRequestHandler):
    server: ReportServer
    timeout = 60.0  # seconds

    def send_head(self) -> Any:
        """A file of the report; 403 for a request that names another host (DNS rebinding)."""
        if not _LOCAL.fullmatch(self.headers.get("Host", "")):
            return self.send_error(403, "ask for 127.0.0.1")
        if self.path == "/":
            try:
                self.server.refresh()
            except (ValueError, OSError) as error:
                return self.send_error(500, explain=str(error))
        self.path = f"/report{'/report.html' if self.path == '/' else self.path}"
        try:
            return super().send_head()
        except ValueError:  # a name that no file can have, as of `/%00`
            return self.send_error(404)

    def end_headers(self) -> None:
        """Add what keeps the report on this machine."""
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
