"""A folder's path comes in; a new folder, filled whole, takes its place, or the old one stays."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from memenvs.card import CARD


@contextlib.contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A folder to fill, put in the place of `out` when the block ends well and removed when it does not."""
    if out.exists() and not (out / CARD).is_file():
        raise ValueError(f"{out} is there and is not a task set; choose another --out or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = out.parent / f".{out.name}.partial-{os.getpid()}"
    old = out.parent / f".{out.name}.old-{os.getpid()}"
    partial.mkdir()
    try:
        yield partial
        if out.exists():
            out.rename(old)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
