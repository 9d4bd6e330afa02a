"""The scripts of docs/tables.md, and the commands that they run."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(file for file in (ROOT / "examples" / "tables").glob("*/*.sh") if file.name != "table.sh")
each_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: f"{file.parent.name}-{file.stem}")
ADDRESSES = {name: "http://127.0.0.1:8000/v1" for name in ("RETRIEVER", "JUDGE", "TEACHER")}
"""The variables that some scripts require."""


def commands(script, *flags, **variables):
    """The commands of a script with flags, each in its words."""
    environment = {**os.environ, "PRINT": "1", **{name: str(value) for name, value in variables.items()}}
    shown = subprocess.run(
        ["bash", script, *flags], env=environment, capture_output=True, text=True, check=True
    )
    return [shlex.split(line)[1:] for line in shown.stdout.splitlines()]
