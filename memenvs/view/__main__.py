"""The command that shows episodes: `python -m memenvs view PATH…`."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from memenvs.cli import Parser, show
from memenvs.core.checks import Range, check_whole
from memenvs.rollout.records import read_episodes
from memenvs.view.curves import write_curves
from memenvs.view.report import find_files, folder_files, make_report, write_report
from memenvs.view.terminal import listing, transcript

EPILOG = """\
examples:
  python -m memenvs view runs/lexical
  python -m memenvs view runs/lexical --out report.html
  python -m memenvs view runs/grpo runs/mt_ppo --out report
  python -m memenvs view runs/grpo --serve
  python -m memenvs view runs/lexical --terminal --episode 3
  python -m memenvs view --curves runs/grpo-0 runs/grpo-1 runs/mt_ppo-0 --out curves.png
  python -m memenvs view --curves runs --metrics return eval_success --smooth 0.8

PATH is a file of episodes, or a folder in which every episodes.jsonl is read: `evaluate run --out` writes
one, learners do with --save-episodes, `play` with --save. With --curves it is the folder of a training run,
or one in which every log.jsonl is read. docs/view.md says what is shown, and the keys.
"""

_LOCAL = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")


def main(argv: Sequence[str] | None = None) -> int:
    """Show episodes; 2 and one line on standard error where there are none to be shown."""
    parser = Parser(
        prog="python -m memenvs view",
        description="Show episodes turn by turn: what was read, kept, replied, and what it was paid.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("paths", nargs="+", metavar="PATH", help="files of episodes, and folders of runs")
    add(
        "--out",
        metavar="REPORT",
        help="a file ….html, or a folder (default: a temporary one, opened in the browser)",
    )
    add("--serve", action="store_true", help="serve the report to this machine alone, new at every reload")
    add("--port", type=int, default=8765, help="of --serve, 0 for any that is free (default 8765)")
    add("--terminal", action="store_true", help="list the episodes here, or show the one of --episode")
    add("--episode", type=int, metavar="N", help="--terminal: its number in the list")
    add("--limit", type=int, default=800, help="--terminal: characters of a text (default 800)")
    add("--curves", action="store_true", help="draw the logs of training runs to --out (default curves)")
    add(
        "--metrics",
        nargs="+",
        metavar="NAME",
        help="--curves: of the logs (default return, success, losses, …)",
    )
    add("--smooth", type=float, metavar="W", help="--curves: moving average of weight W below 1 (default 0)")
    return parser.run(_run, argv)


def _run(args: argparse.Namespace) -> None:
    check_whole(limit=args.limit)
    check_whole(Range(0, below=65536), port=args.port)
    if not args.curves and (args.metrics is not None or args.smooth is not None):
        raise ValueError("--metrics and --smooth are of --curves; give it too")
    if args.curves:
        return _curves(args)
    if sum(map(bool, (args.out, args.serve, args.terminal))) > 1:
        raise ValueError("--out, --serve and --terminal exclude each other; give one")
    if args.episode is not None and not args.terminal:
        raise ValueError("--episode is of --terminal; give both")
    if args.terminal:
        _show(args.paths, args.episode, args.limit)
    elif args.serve:
        _serve(args.paths, args.port)
    else:
        find_files(args.paths)  # so that a wrong path leaves no temporary folder
        out = Path(args.out) if args.out else Path(tempfile.mkdtemp(prefix="memenvs-view-")) / "report"
        count = write_report(args.paths, out)
        page = out if out.is_file() else out / "report.html"
        sys.stdout.write(f"{page}: {count} episode{'s' * (count != 1)}\n")
        if not args.out:
            _open(page)


def _curves(args: argparse.Namespace) -> None:
    if args.serve or args.terminal or args.episode is not None:
        raise ValueError(
            "--curves draws a picture to --out; give it without --serve, --terminal and --episode"
        )
    made = write_curves(args.paths, args.out or "curves", args.metrics, args.smooth or 0.0)
    text = f"{', '.join(map(str, made.files))}: {', '.join(made.metrics)}\n"
    for label, runs in made.lines.items():
        text += f"  {label}: {', '.join(runs)}\n"
        if label in made.cut:
            text += f"    drawn to step {made.cut[label]}, which all of them have reached\n"
    show(text)


def _show(paths: Sequence[str], number: int | None, limit: int) -> None:
    episodes = [episode for path in find_files(paths) for episode in read_episodes(path)]
    if number is not None and not 0 <= number < len(episodes):
        raise ValueError(f"there are {len(episodes)} episodes, from 0; got --episode {number}")
    text = listing(episodes) if number is None else transcript(episodes[number], limit)
    show(text)


def _open(page: Path) -> None:
    """Open a page in the browser, if there is a display to show it on."""
    if sys.platform in ("darwin", "win32") or os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"}:
        webbrowser.open(page.as_uri())


def _serve(paths: Sequence[str], port: int) -> None:
    """Serve until Ctrl-C; the report is made anew when a file has changed."""
    server = report_server(paths, port)
    sys.stdout.write(f"http://127.0.0.1:{server.server_address[1]}/ shows them; Ctrl-C ends\n")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.stdout.write("\n")
    finally:
        server.server_close()


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


if __name__ == "__main__":
    raise SystemExit(main())
