"""docs/tables.md: every command of the papers' tables is valid."""

import re
from pathlib import Path

import pytest
from command_line import evaluate
from page_command import parse

PAGE = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
ROWS = "\n".join(re.findall(r"^\|.*", PAGE, re.MULTILINE))
COMMANDS = re.findall(r"`(memenvs (?:train|evaluate|build)[^`]+)`", ROWS)


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_every_command_of_a_row_is_one(command, monkeypatch):
    parse(command, monkeypatch)


BLOCKS = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
PLAYED = [line for line in BLOCKS.splitlines() if "evaluate run" in line and "=data/" not in line]


@pytest.mark.parametrize("command", re.findall(r"memenvs .*", BLOCKS))
def test_every_command_above_a_table_is_one(command, monkeypatch):
    parse(command, monkeypatch)


@pytest.mark.parametrize("command", PLAYED)
def test_an_evaluation_on_bundled_tasks_plays_without_a_model(command, tmp_path):
    words = re.sub(r"--(?:policy|out|max-new-tokens|temperature) \S+", "", command).split()[3:]
    words += [] if "--task" in words else ["--task", "0"]
    assert evaluate([*words, "--policy", "silent", "--out", str(tmp_path / "run")]) == 0


def test_a_command_with_an_unknown_flag_is_found(monkeypatch):
    with pytest.raises(SystemExit):
        parse("memenvs train grpo --recipe tamtrl_reading --rewards outcome", monkeypatch)
    with pytest.raises(ValueError, match=r"MemChunkQA-v0 .*chunk"):
        parse(
            "memenvs train grpo --recipe tamtrl_reading --env-args chunks=3 --model M",
            monkeypatch,
        )
