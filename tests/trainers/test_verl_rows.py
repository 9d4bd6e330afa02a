"""The rows of the papers' tables that train in verl, which composes each with the paper's numbers."""

import pytest
from table_rows import ADDRESSES, commands, each_script

from memenvs.commands import main

LARGE = ("mempo", "mt_grpo", "mt_ppo")  # tables whose models one GPU cannot train
pytest.importorskip("verl", reason="verl is not installed; `make test-trainers` installs it")


@each_script
def test_a_row_composes_in_verl(script, tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in commands(script, **ADDRESSES):
        # The episodes that sft learns from, another command plays; a merge needs a checkpoint.
        if words[1] not in ("grpo", "mt_ppo") or "--merge" in words:
            continue
        assert "verl" in words or script.parent.name not in LARGE
        if "verl" in words:
            words = [word for word in words if not word.startswith(("tasks=", "retriever="))]
            words[words.index("--model") + 1] = str(tiny_model)
            assert main([*words, "--dry-run"]) == 0
