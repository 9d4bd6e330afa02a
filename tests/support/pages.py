"""The pages of the documentation: their code blocks, what these print, and how a reader runs the commands."""

import contextlib
import importlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import gymnasium as gym
import pytest

from memenvs.commands import main
from memenvs.core.terminal import in_columns

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*_*.md"))
WHOLE = [
    ROOT / "README.md",
    *(DOCS / name for name in ("quickstart.md", "rewards.md", "logs.md", "environments.md", "endpoint.md")),
    *TUTORIALS,
]
"""Pages that run from top to bottom: a block may use the names of those before it."""
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
        page: its page.
        line: the number of its first line.
        output: the `output` block that follows, which shows what it prints; None if there is none.
    """

    language: str
    needs: str
    body: str
    page: Path
    line: int
    output: str | None = None

    @property
    def id(self):
        """The page and the line."""
        return f"{self.page.name}-{self.line}"


def blocks(page):
    """The fenced blocks of a page, in order; an `output` block is part of the one before it."""
    text, found = page.read_text(encoding="utf-8"), []
    for match in FENCE.finditer(text):
        language, needs, body = match.groups()
        if language == "output":
            assert found[-1].language in ("python", "console"), f"{found[-1].id} does not run"
            found[-1] = found[-1]._replace(output=body)
        else:
            found.append(Block(language, needs, body, page, text[: match.start()].count("\n") + 1))
    return found


def run_python(block, names):
    """Execute a block in the namespace `names`; it must print what its page says."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.body, block.id, "exec"), names)
    _check_output(block, printed.getvalue())


def _check_output(block, printed):
    """Compare with the page, or with WRITE_OUTPUTS in the environment (`make outputs`) write it there."""
    if block.output is None:
        return
    output = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
    if "WRITE_OUTPUTS" in os.environ and output != block.output:
        text = block.page.read_text(encoding="utf-8")
        before, code, after = text.partition(f"{block.body}```\n")
        after = after.replace(f"```output\n{block.output}```", f"```output\n{output}```", 1)
        block.page.write_text(before + code + after, encoding="utf-8")
    else:
        assert output == block.output, f"{block.id} prints something else; `make outputs` writes it"


def run_console(block, folder):
    """Run the commands of a block in a folder; they must print what their page says."""
    _check_output(block, run_commands(block.body, folder))


def run_commands(text, folder, *, in_process=True):
    """Run the lines that begin with "$ " in a folder, each as in a process of its own, or in one.

    What they print is returned as a terminal shows it.
    """
    printed = ""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            run = run_here if in_process else run_script
            status, output, errors = run(shlex.split(line[2:]), folder)
            assert status == 0, f"{line}\n{errors}"
            printed += in_columns(output)
    return printed


@contextlib.contextmanager
def imports_of(folder):
    """Import from a folder, in which this process then is; neither modules nor environments of it stay."""
    modules, registered = set(sys.modules), set(gym.registry)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        importlib.invalidate_caches()  # the folder may have new modules
        try:
            yield
        finally:
            for name in set(sys.modules) - modules:
                if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(folder):
                    del sys.modules[name]
            for name in set(gym.registry) - registered:
                del gym.registry[name]


def run_here(words, folder):
    """The exit status, output and errors of `memenvs …`, run in this process."""
    program, *arguments = words
    assert program == "memenvs", f"{program} is not run in this process"
    output, errors = io.StringIO(), io.StringIO()
    with imports_of(folder), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = main(arguments)
    return status, output.getvalue(), errors.getvalue()


def run_script(words, folder):
    """The exit status, output and errors of a script that the installation made."""
    program, *arguments = words
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [Path(sys.executable).with_name(program), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def check_links(page):
    """Links to files and headings of the repository lead somewhere."""
    for place, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text()):
        target = page.parent / place if place else page
        assert target.exists(), place
        assert not anchor or anchor in headings(target), f"{place}#{anchor}"


def headings(page):
    """The anchors of a page, as GitHub makes them of its headings."""
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}
