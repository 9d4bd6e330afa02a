"""Every snippet of the README and the docs runs as written, and prints what its page says."""

import re
import subprocess
import sys

import pytest
from page_command import parse
from pages import FILE, PAGES, ROOT, WHOLE, blocks, check_links, imports_of, run_console, run_python


def snippets(language):
    return [
        pytest.param(block, id=block.id)
        for page in PAGES
        if page not in WHOLE  # test_tutorials.py runs these
        for block in blocks(page)
        if (block.language, block.needs) == (language, "")  # test_recipes.py runs the others
    ]


@pytest.mark.parametrize("block", snippets("python"))
def test_a_python_snippet_runs_and_prints_what_the_page_shows(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_python(block, {"__name__": "__main__"})


def python_of(page):
    """The Python of a page that runs from top to bottom, by file name."""
    found = [block.body for block in blocks(page) if block.language == "python"]
    files = {f"{file[1]}.py": code for code in found if (file := FILE.match(code))}
    return files | {f"whole_{page.stem}.py": "\n".join(code for code in found if not FILE.match(code))}


def check_types(codes, folder):
    """By mypy with the cache that `make types` has filled, which other flags would not use."""
    for name, code in codes.items():
        (folder / name).write_text(f"# mypy: allow-untyped-defs, check-untyped-defs\n{code}")
    files = [str(folder / name) for name in codes]
    done = subprocess.run([sys.executable, "-m", "mypy", *files], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_types_of_the_readme_are_sound(tmp_path):
    check_types(python_of(ROOT / "README.md"), tmp_path)


@pytest.mark.slow
def test_the_types_of_the_snippets_are_sound(tmp_path):
    """Those that train are left out."""
    codes = {f"snippet_{i}.py": snippet.values[0].body for i, snippet in enumerate(snippets("python"))}
    assert len(codes) > 6
    for page in WHOLE:
        codes |= python_of(page)
    check_types({name: code for name, code in codes.items() if "memenvs.baselines" not in code}, tmp_path)


@pytest.mark.parametrize("block", snippets("console"))
def test_the_commands_of_a_console_snippet_succeed(block, tmp_path):
    run_console(block, tmp_path)


def commands():
    """The commands of the code blocks that no test runs: they want a model, a server or a file."""
    for page in PAGES:
        for block in blocks(page):
            if block.language not in ("", "sh"):
                continue
            for line in block.body.replace("\\\n", " ").splitlines():
                if re.match(r"memenvs (?!train --)\w", line):  # `train --merge` reads the folder of a run
                    yield pytest.param(page, line, id=f"{page.name}-{' '.join(line.split()[2:6])}")


@pytest.mark.parametrize(("page", "command"), list(commands()))
def test_the_command_of_a_page_has_options_that_there_are(page, command, tmp_path, monkeypatch):
    for block in blocks(page):
        if file := FILE.match(block.body):  # a command may name what is in it
            (tmp_path / f"{file[1]}.py").write_text(block.body)
    with imports_of(tmp_path):
        parse(command, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_files_lead_somewhere(page):
    check_links(page)


def test_a_page_that_shows_another_output_fails_and_is_rewritten_on_demand(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(6 * 7)\n```\n\nIt prints:\n\n```output\n41\n```\n")
    with pytest.raises(AssertionError):
        run_python(*blocks(page), {})
    monkeypatch.setenv("WRITE_OUTPUTS", "1")
    run_python(*blocks(page), {})
    monkeypatch.delenv("WRITE_OUTPUTS")
    run_python(*blocks(page), {})
    assert page.read_text().endswith("```output\n42\n```\n")
