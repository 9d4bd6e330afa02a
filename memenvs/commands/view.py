"""`memenvs view PATH…`."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from memenvs.core.data import Count, checked
from memenvs.core.episode_file import read_episodes
from memenvs.core.errors import counted
from memenvs.core.terminal import show
from memenvs.view.curves import write_curves
from memenvs.view.report import find_files, write_report
from memenvs.view.server import ReportServer
from memenvs.view.terminal import listing, transcript


@checked
def view(
    paths: Sequence[str],
    /,
    *,
    out: str | None = None,
    serve: bool = False,
    port: Annotated[int, Meta(ge=0, lt=65536)] = 8765,
    terminal: bool = False,
    failures: bool = False,
    episode: int | None = None,
    limit: Count = 800,
    curves: bool = False,
    metrics: tuple[str, ...] | None = None,
    smooth: float | None = None,
) -> None:
    """Show episodes turn by turn: what was read, remembered and replied, and the reward.

    PATHS are files of episodes, or folders, in which every episodes.jsonl is read. `evaluate run --out`,
    learners with --save-episodes and `play --save` write such files. With --curves PATHS are folders of
    training runs, in which every log.jsonl is read. docs/view.md explains the pages and their keys.

    Examples:
      memenvs view runs/lexical
      memenvs view runs/lexical --out report.html
      memenvs view runs/grpo runs/mt_ppo --out report
      memenvs view runs/grpo --serve
      memenvs view runs/lexical --terminal --failures
      memenvs view runs/lexical --terminal --episode 3
      memenvs view runs/grpo-0 runs/grpo-1 runs/mt_ppo-0 --curves --out curves.png
      memenvs view runs --curves --metrics return eval_success --smooth 0.8

    Args:
        paths: files of episodes, or folders of runs.
        out: file ….html, or a folder; by default a temporary folder that is opened in the browser.
        serve: serve the report on this machine only, and read the files again at every reload.
        port: port for --serve; 0 picks a free one.
        terminal: list the episodes in the terminal.
        failures: list only the episodes that failed or did not succeed, in the terminal.
        episode: show this episode of the list in the terminal.
        limit: characters of a text that --terminal shows.
        curves: draw the logs of training runs to --out, by default curves.png and curves.svg.
        metrics: draw the curves of these metrics; by default return, success, losses, …
        smooth: smooth the curves by a moving average; weight of the earlier values, below 1.
    """
    terminal, curves = terminal or failures or episode is not None, curves or bool(metrics or smooth)
    ways = {"--serve": serve, "--terminal": terminal, "--curves": curves}
    chosen = [name for name, way in ways.items() if way]
    if len(chosen) > 1 or (out and chosen and not curves):
        raise ValueError(f"{', '.join([*chosen, *(['--out'] if out else [])])} cannot be combined; give one")
    if not paths:
        raise ValueError("no PATH is given; name a file of episodes or the folder of a run")
    if curves:
        _write_curves(paths, out or "curves", metrics, smooth or 0.0)
    elif terminal:
        _show_in_terminal(paths, episode, limit, failures)
    elif serve:
        _serve(ReportServer(paths, port))
    else:
        find_files(paths)  # so that a wrong path leaves no temporary folder
        to = Path(out) if out else Path(tempfile.mkdtemp(prefix="memenvs-view-")) / "report"
        count = write_report(paths, to)
        page = to if to.is_file() else to / "report.html"
        show(f"{page}: {counted(count, 'episode')}\n", wrap=False)
        displays = {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"}
        if not out and (sys.platform in ("darwin", "win32") or os.environ.keys() & displays):
            webbrowser.open(page.as_uri())


def _write_curves(paths: Sequence[str], out: str, metrics: Sequence[str] | None, smooth: float) -> None:
    curves = write_curves(paths, out, metrics, smooth)
    text = f"{', '.join(map(str, curves.files))}: {', '.join(curves.metrics)}\n"
    for label, runs in curves.lines.items():
        text += f"  {label}: {', '.join(runs)}\n"
        if label in curves.cut:
            text += f"    plotted up to step {curves.cut[label]}, which all of them have reached\n"
    show(text)


def _show_in_terminal(paths: Sequence[str], number: int | None, limit: int, failures: bool) -> None:
    files = {path: list(read_episodes(path)) for path in find_files(paths)}
    episodes = [episode for in_file in files.values() for episode in in_file]
    if number is None:
        numbers = itertools.count()
        for path, in_file in files.items():
            listed = [
                (number, episode)
                for episode, number in zip(in_file, numbers, strict=False)
                if not failures or episode.error or episode.metrics.get("success", 1.0) < 1.0
            ]
            show((f"{path}\n" if len(files) > 1 else "") + listing(listed))
    elif 0 <= number < len(episodes):
        show(transcript(episodes[number], limit))
    else:
        raise ValueError(f"there are {len(episodes)} episodes, from 0; got --episode {number}")


def _serve(server: ThreadingHTTPServer) -> None:
    """Serve until Ctrl-C."""
    sys.stdout.write(f"open http://127.0.0.1:{server.server_address[1]}/ in a browser; Ctrl-C ends\n")
    sys.stdout.flush()
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.stdout.write("\n")
    finally:
        server.server_close()
