"""Files that are whole or absent: written beside their name, renamed when done."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name to write under; it becomes `path` if the block ends without an error."""
    partial = path.with_name(path.name + ".partial")
    yield partial
    os.replace(partial, path)


def write_json(path: Path, value: Any) -> None:
    """Write indented JSON."""
    with whole(path) as partial:
        partial.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}); build the index again") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(value).__name__}; build the index again")
    return value
