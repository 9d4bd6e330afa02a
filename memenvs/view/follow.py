"""A page that shows a training run as it goes: its curves, its newest episodes, the time left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memenvs.view.report import make_page

NEWEST = 20  # episodes


def follow_page() -> str:
    """The HTML of the page; it asks `data?log=N&episodes=M` of the server that it came from."""
    return make_page("follow.html", ["follow.js"], connect="'self'")


def progress(run: Path, log_at: int = 0, episodes_at: int = 0) -> dict[str, Any]:
    """What a run has written since two places in its files.

    Args:
        run: its folder.
        log_at: bytes of `log.jsonl` that are known.
        episodes_at: bytes of `episodes.jsonl` that are known.

    Returns:
        `name`; `steps`, how many there will be, or None; `log`, its new rows, and `log_at`, the place behind
        them; `episodes`, the newest of the new ones (at most `NEWEST`), and `episodes_at`.
    """
    log, log_at = _new_lines(run / "log.jsonl", log_at)
    episodes, episodes_at = _new_lines(run / "episodes.jsonl", episodes_at)
    args = json.loads((run / "args.json").read_text("utf-8")) if (run / "args.json").exists() else {}
    return {
        "name": run.name,
        "steps": args.get("steps"),
        "log": [json.loads(line) for line in log],
        "log_at": log_at,
        "episodes": [_shown_episode(json.loads(line)) for line in episodes[-NEWEST:]],
        "episodes_at": episodes_at,
    }


def _new_lines(file: Path, at: int) -> tuple[list[bytes], int]:
    """The whole lines of a file behind a place, and the place behind them; from its start if it shrank."""
    if not file.exists():
        return [], 0
    with file.open("rb") as lines:
        lines.seek(at if at <= file.stat().st_size else 0)
        start, text = lines.tell(), lines.read()
    whole = text[: text.rfind(b"\n") + 1]
    return whole.splitlines(), start + len(whole)


def _shown_episode(record: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of an episode."""
    replies = record.get("replies") or [""]
    return {
        "step": record.get("step"),
        "phase": record.get("phase"),
        "question": (record.get("question") or record.get("task") or "").partition("\n\n#")[0][:300],
        "reply": replies[-1][-300:],
        "success": (record.get("metrics") or {}).get("success"),
        "return": sum(value or 0.0 for value in record.get("turn_rewards") or []),
    }
