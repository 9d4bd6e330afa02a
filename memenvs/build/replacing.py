"""A folder's path comes in; a new folder, filled whole, takes its place, or the old one stays."""

from __future__ import annotations

import contextlib
import glob
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from memenvs.build.export import FORMS
from memenvs.card import CARD, DOCUMENTS, TASKS

_OURS = {CARD, DOCUMENTS, TASKS, *(f"{form}.{suffix}" for form, (suffix, *_) in FORMS.items())}
_STALE = 86_400.0  # seconds after which what a killed build left is removed


def check_replaceable(out: Path) -> None:
    """Raise a one-line `ValueError` if `out` is there and is anything but a task set and its exports."""
    out = out.expanduser().resolve()
    if out.exists() and not (out / CARD).is_file():
        raise ValueError(f"{out} is there and is not a task set; choose another --out or remove it")
    foreign = sorted({path.name for path in out.iterdir()} - _OURS) if out.exists() else []
    if foreign:
        raise ValueError(
            f"{out} holds {foreign[0]!r} beside its task set, which a new one would delete; "
            "move that away or choose another --out"
        )


@contextlib.contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A folder to fill, put in the place of `out` when the block ends well and removed when it does not.

    Where `out` is a link, the folder that it leads to is replaced. The old folder is deleted only when the
    new one is in its place, and put back when anything stops that, a signal too.
    """
    out = out.expanduser().resolve()
    check_replaceable(out)
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
    """Clear up after builds of `out` that were killed a day ago or more; their old set goes back."""
    for work in out.parent.glob(f"{glob.escape(prefix)}*"):
        with contextlib.suppress(OSError):  # another build may be clearing up too
            if time.time() - work.stat().st_mtime < _STALE:
                continue
            if (work / "old").exists() and not out.exists():
                (work / "old").rename(out)
            shutil.rmtree(work, ignore_errors=True)
