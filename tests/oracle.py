"""Reference cases that were recorded from other systems: a file's name in, its cases out."""

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "shared" / "oracle"

needs_oracle = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no reference values at {FOLDER}")


def cases(name: str) -> list[dict[str, Any]]:
    """The cases of `name`.json, each with "input" and "output"; none where the folder is missing."""
    path = FOLDER / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["cases"] if path.is_file() else []
