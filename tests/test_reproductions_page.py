"""Tables and pictures of docs/reproductions.md are those of the records in docs/results."""

import json
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from benchmarks.figures import draw_all
from benchmarks.reproduce.runs import shown

DOCS = Path(__file__).parents[1] / "docs"
SECTIONS = {  # the record of each section's first table, and the metrics in its columns
    "Sokoban: MT-PPO Table 5": ("sokoban_mt_ppo", ["eval_success", "eval_effective_box"]),
    "Two-turn tool use: MT-GRPO Table 6": ("tool_use", ["eval_called", "eval_retrieved", "eval_em"]),
    "Chunked reading: TAMTRL and InfoMem": ("reading_methods", ["eval_success"]),
    "Two objectives with a memory: MemPO": (
        "mempo",
        ["eval_em", "eval_f1", "eval_prompt_tokens", "eval_prompt_tokens_peak"],
    ),
}


def rows(section):
    """The first table of a section, by its first column."""
    text = (DOCS / "reproductions.md").read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    table = text[text.index("| method |") :].partition("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]
    return {name: values for name, *values in cells[2:]}


@pytest.mark.parametrize("section", SECTIONS)
def test_a_table_has_the_numbers_of_its_record(section):
    file, metrics = SECTIONS[section]
    record = json.loads((DOCS / "results" / f"{file}.json").read_text())
    table = rows(section)
    assert set(table) == set(record["last"])
    for method, found in record["last"].items():
        wanted = [shown(found[name], 0 if "tokens" in name else 3) for name in metrics]
        assert table[method][: len(wanted)] == wanted


def test_every_picture_of_the_page_is_drawn_from_a_record(tmp_path):
    made = {path.name for path in draw_all(DOCS / "results", tmp_path)}
    page = (DOCS / "reproductions.md").read_text()
    assert made == {
        part.partition(")")[0] for part in page.split("](results/") if part.partition(")")[0].endswith(".png")
    }
