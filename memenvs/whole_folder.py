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
    deleted only when the new one is in its place, and put back when anything stops that, a signal too. After
    a kill between the two renames it is where `left_behind` says, and the next writer of `out` puts it back.

    Raises:
        ValueError: `out` is a link that leads to itself.
    """
    out = resolved(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    if old := left_behind(out):
        old.rename(out)
    _remove_stale(out)
    work = out.parent / f"{_prefix(out)}{secrets.token_hex(8)}"
    new, old = work / "new", work / "old"
    try:  # the name is known before the folder is there, so that a signal at any time leaves neither
        new.mkdir(parents=True)
        yield new
        _swap(out, new, old)
    finally:
        if out.exists() or not old.exists():  # never the last copy
            shutil.rmtree(work, ignore_errors=True)


def left_behind(out: Path) -> Path | None:
    """Where the old folder is after a kill that left nothing at `out`; None where nothing was left."""
    if out.exists():
        return None
    found = out.parent.glob(f"{glob.escape(_prefix(out))}*/old")
    return max(found, key=lambda old: old.parent.stat().st_mtime, default=None)


def resolved(path: str | Path) -> Path:
    """An absolute path without links; `ValueError` of one line for a link that leads to itself."""
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError until Python 3.12
        raise ValueError(f"{path} leads nowhere: {error}; give another path") from error


def named(error: Exception, path: str | Path | None) -> str:
    """What an error says, and `path` where the system left out which one ("No space left on device")."""
    nameless = isinstance(error, OSError) and error.errno and not error.filename and path
    return f"{error}: {path}" if nameless else str(error)


def _prefix(out: Path) -> str:
    return f".{out.name}.partial-"


def _swap(out: Path, new: Path, old: Path) -> None:
    try:
        if out.exists():
            out.rename(old)
        new.rename(out)
    except BaseException:
        if old.exists() and not out.exists():
            old.rename(out)
        raise


def _remove_stale(out: Path) -> None:
    """Clear up after writers of `out` that were killed a day ago or more."""
    for work in out.parent.glob(f"{glob.escape(_prefix(out))}*"):
        with contextlib.suppress(OSError):  # another writer may be clearing up too
            if time.time() - work.stat().st_mtime >= _STALE:
                shutil.rmtree(work, ignore_errors=True)
