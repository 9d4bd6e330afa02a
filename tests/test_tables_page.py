"""docs/tables.md: every command of the papers' tables is valid."""

import re
from pathlib import Path

import pytest
from page_command import parse

PAGE = (Path(__file__).parents[1] / "docs" / "tables.md").read_text()
ROWS = "\n".join(re.findall(r"^\|.*", PAGE, re.MULTILINE))
COMMANDS = re.findall(r"`(memenvs (?:train|evaluate|build)[^`]+)`", ROWS)


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_every_command_of_a_row_is_one(command, monkeypatch):
    parse(command, monkeypatch)


def test_a_command_with_an_unknown_flag_is_found(monkeypatch):
    with pytest.raises(ValueError, match="--"):
        parse("memenvs train grpo --recipe tamtrl_reading --rewards outcome", monkeypatch)
    with pytest.raises(ValueError, match=r"MemChunkQA-v0 .*chunk"):
        parse(
            "memenvs train grpo --recipe tamtrl_reading --env-args chunks=3 --model M",
            monkeypatch,
        )
