"""A task set's path comes in; a folder to fill goes out, where nothing but a task set would be replaced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from memenvs.build.export import FORMS
from memenvs.card import CARD, DOCUMENTS, TASKS
from memenvs.files import resolved, whole_folder

_OURS = {CARD, DOCUMENTS, TASKS, *(f"{form}.{suffix}" for form, (suffix, *_) in FORMS.items())}


def check_replaceable(out: Path) -> None:
    """Raise a one-line `ValueError` if `out` is there and is anything but a task set and its exports."""
    out = resolved(out)
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
    """A folder to fill, put in the place of the task set `out` at the end; see `whole_folder`."""
    check_replaceable(out)
    with whole_folder(out) as new:
        yield new
