"""docs/tables.md: every row of the papers' main tables is there, and every command of it is one."""

import re
from pathlib import Path

import pytest
from page_command import parse
from page_tables import rows, sections
from test_papers_page import CODE

import memenvs.wrappers.prm

PAGE = (Path(__file__).parents[1] / "docs" / "tables.md").read_text()
TABLES = sections(PAGE, 2)
# Written from the papers' text, not from the page: the rows of each table (of MT-PPO's Table 5 the columns).
ROWS = {
    "MT-GRPO, Table 2": [
        *("Qwen2.5-7B-Base", "Qwen2.5-7B-Instruct", "Qwen2.5-7B-Base + GRPO-OR"),
        *("Qwen2.5-7B-Base + GRPO-MR", "Qwen2.5-7B-Base + MT-GRPO"),
    ],
    "MT-PPO, Table 2": [
        *("Qwen2.5-7B-Base", "Qwen2.5-7B-Instruct", "GRPO-OR (Search-R1)", "GRPO-MR (Search-R1)"),
        *("PPO-OR (Search-R1)", "PPO-MR (Search-R1)", "GRPO (OTC)", "PPO (OTC)", "PPO (StepSearch)"),
        "MT-PPO (ours)",
    ],
    "MT-PPO, Table 5": ["GRPO-OR", "GRPO-MR", "PPO-OR", "PPO-MR", "MT-PPO"],
    "TAMTRL, Table 1": [
        *("Base", "SFT", "STaR", "Vanilla-KD", "MemAgent", "LLM-judge", "PRM", "TAMTRL (ours)"),
    ],
    "InfoMem, Table 2": [
        *("Qwen2.5-1.5B-Instruct", "with Outcome-only GRPO", "with InfoMem", "with ReMemR1"),
    ],
    "MemPO, the table of 4.4": [
        *("Qwen2.5 (ReAct)", "ReSearch", "DeepResearcher", "A-MEM", "MEM1", "GRPO (w/o <mem>)"),
        "MemPO (Ours)",
    ],
}
STATUSES = ("runs here", "with GPUs", "authors' checkpoint", "not here")
COMMANDS = [
    code
    for table in TABLES.values()
    for row in rows(table)
    for code in CODE.findall(row[1])
    if code.startswith("python -m memenvs")
]


def test_every_row_of_every_table_is_there_in_its_order():
    assert {table: [row[0].replace("`", "") for row in rows(TABLES[table])] for table in TABLES} == ROWS


@pytest.mark.parametrize("table", ROWS)
def test_a_row_has_a_known_status_and_a_command_unless_it_is_not_here(table):
    for name, command, status in rows(TABLES[table]):
        assert status.startswith(STATUSES), name
        assert command.startswith("`python -m memenvs") == (not status.startswith("not here")), name
        if status.startswith("not here"):
            assert re.search(r": \S", status), f"{name} has no reason"
        if "authors' checkpoint" in status:
            assert "--policy hf:" in command, name


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_every_command_of_a_row_is_one(command, monkeypatch):
    monkeypatch.setattr(memenvs.wrappers.prm, "check_checkpoint", lambda folder: None)  # of a run of the page
    args = parse(command, monkeypatch)
    if command.startswith("python -m memenvs.baselines"):
        args.check()


def test_a_command_with_a_flag_that_there_is_not_is_found(monkeypatch):
    with pytest.raises(SystemExit):
        parse("python -m memenvs.baselines.grpo --recipe tamtrl_reading --rewards outcome", monkeypatch)
    with pytest.raises(ValueError, match=r"MemChunkQA-v0 .*chunk"):
        parse(
            "python -m memenvs.baselines.grpo --recipe tamtrl_reading --env-args chunks=3 --model M",
            monkeypatch,
        )
