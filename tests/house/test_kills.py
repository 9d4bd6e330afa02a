"""A slice of `make kills`."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = ["world over another", "lexical index", "sft", "judge"]


def test_what_was_killed_or_found_a_full_disk_ends_with_the_same_files_when_started_again():
    for library in ("bm25s", "faiss", "sentence_transformers", "tyro"):
        pytest.importorskip(library)
    flags = ["--kills", "2", "--fault", "kill", "full", "--case", *CASES]
    command = [sys.executable, "-m", "benchmarks.stress.kills", *flags]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr[-2000:]
