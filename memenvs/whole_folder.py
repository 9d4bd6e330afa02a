"""A folder's path comes in; a new folder, filled whole, takes its place, or the old one stays."""

from __future__ import annotations

import contextlib
import glob
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

_STALE = 86_400.0  # seconds after which what a killed process left is removed


@contextlib.contextmanager
def whole_folder(out: str | Path) -> Iterator[Path]:
    """A folder to fill, put in the place of `out` when the block ends well and removed when it does not.

    Where `out` is a link, the folder that it leads to is replaced. The old folder, whatever it holds, is
    deleted only when the new one is in its place, and put back when anything stops that, a signal too.
    """
    out = Path(out).expanduser().resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{out.name}.partial-"
    _remove_stale(out, prefix)
    work = out.parent / f"{prefix}{secrets.token_hex(8)}"
    new, old = work / "new", work / "old"
    try:  # the name is known before the folder is there, so that a signal at any time leaves neither
        new.mkdir(parents=True)
        yield new
        _swap(out, new, old)
    finally:
        if out.exists() or not old.exists():  # never the last copy
            shutil.rmtree(work, ignore_errors=True)


def _swap(out: Path, new: Path, old: Path) -> None:
    try:
        if out.exists():
            out.rename(old)
        new.rename(out)
    except BaseException:
        if old.exists() and not out.exists():
            old.rename(out)
        raise


def _remove_stale(out: Path, prefix: str) -> None:
    """Clear up after writers of `out` that were killed a day ago or more; their old folder goes back."""
    for work in out.parent.glob(f"{glob.escape(prefix)}*"):
        with contextlib.suppress(OSError):  # another writer may be clearing up too
            if time.time() - work.stat().st_mtime < _STALE:
                continue
            if (work / "old").exists() and not out.exists():
                (work / "old").rename(out)
            shutil.rmtree(work, ignore_errors=True)
