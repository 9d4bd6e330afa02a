"""A slice of `make kills`."""

import subprocess
import sys
from pathlib import Path

import pytest

KILLS = Path(__file__).parents[1] / "support" / "kills.py"
CASES = ["world over another", "lexical index", "sft", "judge"]


def test_what_was_killed_or_found_a_full_disk_ends_with_the_same_files_when_started_again():
    for library in ("bm25s", "faiss", "sentence_transformers", "tyro"):
        pytest.importorskip(library)
    command = [sys.executable, str(KILLS), "--kills", "2", "--fault", "kill", "full", "--case", *CASES]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
