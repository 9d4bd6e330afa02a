"""The pages of the documentation: their code blocks, and how a reader runs the commands."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TUTORIALS = [DOCS / "quickstart.md", *sorted((DOCS / "tutorials").glob("*_*.md"))]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "data" / "README.md",
    *sorted(DOCS.rglob("*.md")),
]
FILE = re.compile(r"# (\w+)\.py\n")  # the first line of a block that is a file
FENCE = re.compile(r"^```([^\s`]*) *([^\n`]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block.

    Attributes:
        language: `python` and `console` run; `py` and `sh` are shown.
        needs: a module without which the block cannot run (```` ```python MODULE ````), or "".
        body: its text.
        id: the page and the line.
    """

    language: str
    needs: str
    body: str
    id: str


def blocks(page):
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(*match.groups(), f"{page.name}-{text[: match.start()].count(chr(10)) + 1}")
        for match in FENCE.finditer(text)
    ]


def run_commands(block, folder):
    """Run the lines that begin with "$ " in a folder, by the scripts that the installation made."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for line in block.splitlines():
        if line.startswith("$ "):
            program, *words = shlex.split(line[2:])
            command = [Path(sys.executable).with_name(program), *words]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            assert done.returncode == 0, f"{line}\n{done.stderr}"


def headings(page):
    """The anchors of a page, as GitHub makes them of its headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}
