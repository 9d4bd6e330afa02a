"""Tables and pictures of docs/reproductions.md are those of the records in docs/results."""

import json
from pathlib import Path

import pytest
from page_tables import rows, sections

pytest.importorskip("matplotlib")

from benchmarks.figures import draw_all
from benchmarks.reproduce import reader, tool_use
from benchmarks.reproduce.runs import shares_table, shown

DOCS = Path(__file__).parents[1] / "docs"
PAGE = sections((DOCS / "reproductions.md").read_text(), 2)
SECTIONS = {  # the record of each section's first table, and the metrics in its columns
    "Sokoban: MT-PPO Table 5": ("sokoban_mt_ppo", ["eval_success", "eval_effective_box"]),
    "Two-turn tool use: MT-GRPO Table 6": ("tool_use", ["eval_called", "eval_retrieved", "eval_em"]),
    "Chunked reading: TAMTRL and InfoMem": ("reading_methods", ["eval_success"]),
    "Two objectives with a memory: MemPO": (
        "mempo",
        ["eval_em", "eval_f1", "eval_prompt_tokens", "eval_prompt_tokens_peak"],
    ),
}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_table_has_the_numbers_of_its_record(section):
    file, metrics = SECTIONS[section]
    record = json.loads((DOCS / "results" / f"{file}.json").read_text())
    table = {name: cells for name, *cells in rows(PAGE[section])}
    assert set(table) == set(record["last"])
    for method, found in record["last"].items():
        wanted = [shown(found[name], 0 if "tokens" in name else 3) for name in metrics]
        assert table[method][: len(wanted)] == wanted


def recorded(file):
    return json.loads((DOCS / "results" / f"{file}.json").read_text())


def test_further_tables_are_those_of_their_records():
    assert (
        reader.table(recorded("reader")["methods"]) in PAGE["A reader that reads: TAMTRL against the outcome"]
    )
    assert tool_use.by_curve(recorded("tool_use")) in PAGE["Two-turn tool use: MT-GRPO Table 6"]
    assert shares_table(recorded("mempo_memories")) in PAGE["Two objectives with a memory: MemPO"]
    assert shares_table(recorded("reading_memories")["shares"]) in PAGE["Chunked reading: TAMTRL and InfoMem"]


def test_every_picture_of_the_page_is_drawn_from_a_record(tmp_path):
    made = {path.name for path in draw_all(DOCS / "results", tmp_path)}
    page = (DOCS / "reproductions.md").read_text()
    assert made == {
        part.partition(")")[0] for part in page.split("](results/") if part.partition(")")[0].endswith(".png")
    }
