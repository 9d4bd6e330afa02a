"""Run benchmarks and write their ratios into docs/benchmarks.md.

python -m benchmarks.ratios [reading search "sokoban_peers --levels FILE" …]

Without names all run; `search_r1_server` has no defaults, and ends with its usage.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import processor
from memenvs import __version__

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
HEAD = "| work, against | ratio | before | version | date | machine | `python -m benchmarks.` |"
RATIOS = {
    "reading": {
        "build tasks of 200 documents, tokenising each whole": r"build, tokens/s.* ([\d,]+)x",
        "reset and all chunks of one, tokenising it": r"reset and all chunks.* ([\d,]+)x",
    },
    "niah": {"build needles `single_1`, tokenising each whole": r"single_1 .* (\d+) \|"},
    "sokoban": {"one board stepped, a NumPy board": r"step, one board .* ([\d.]+) \|"},
    "sokoban_peers": {
        "text Sokoban without resets, GEM": r"GEM, resets left out .* ([\d.]+) \|",
        "1,024 boards of 6x6, Jumanji": r"6x6, Jumanji.* ([\d.]+) \|",
        "1,024 boards of 10x10, Jumanji": r"10x10, Jumanji.* ([\d.]+) \|",
    },
    "sb3": {"1,024 boards in Stable-Baselines3, its DummyVecEnv": r"^\| 1,024 .* ([\d.]+) \|"},
    "search": {"BM25 query by query, bm25s": r"query by query.* ([\d.]+)x"},
    "scorers": {"score after each of 8 turns in one call, turn by turn": r"^turn by turn .*: ([\d.]+)$"},
    "search_r1_server": {
        "retrieval server, one client, Search-R1's": r"^1 clients, least ratio ([\d.]+)",
        "retrieval server, 32 clients, Search-R1's": r"^32 clients, least ratio ([\d.]+)",
    },
    "asynchronous": {"1,000 waiting episodes, `asyncio.to_thread`": r"^ratio ([\d.]+)"},
}


def main() -> None:
    """Measure, and rewrite the rows of what was measured."""
    rows = read_rows()
    facts = [__version__, f"{datetime.date.today()}", processor()]
    for command in sys.argv[1:] or RATIOS:
        name, *arguments = command.split()
        done = subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *arguments], stdout=-1, text=True)
        print(done.stdout, flush=True)
        for work, pattern in RATIOS[name].items():
            if found := re.search(pattern, done.stdout, re.MULTILINE):
                ratio, before, version, *_ = rows.get(work, ["", "", __version__])
                before = before if version == __version__ else ratio
                shown = " ".join([name, *(Path(one).name for one in arguments)])
                rows[work] = [found[1], before, *facts, f"`{shown}`"]
        write_rows(rows)


def read_rows() -> dict[str, list[str]]:
    """The rows of the table, by their first cell."""
    _, _, table = PAGE.read_text(encoding="utf-8").partition(HEAD)
    lines = [line.strip("| ").split(" | ") for line in table.split("\n\n")[0].splitlines()[2:]]
    return {work: cells for work, *cells in lines}


def write_rows(rows: dict[str, list[str]]) -> None:
    """Put the rows in place of those on the page."""
    before, _, after = PAGE.read_text(encoding="utf-8").partition(HEAD)
    lines = [HEAD, "| --- " * 7 + "|", *(f"| {' | '.join([work, *cells])} |" for work, cells in rows.items())]
    PAGE.write_text(before + "\n".join(lines) + "\n\n" + after.partition("\n\n")[2], encoding="utf-8")


if __name__ == "__main__":
    main()
