"""A tutorial runs from top to bottom: its files, its Python and its commands, in one folder.

So do the README and the pages that a newcomer reads first.
"""

import sys

import pytest
from pages import DOCS, FILE, TUTORIALS, WHOLE, blocks, imports_of, run_console, run_python

TRAINING = DOCS / "tutorials" / "read_with_tamtrl.md"
SMALLER = {
    '("births", 2000), ("unseen", 128)': '("births", 60), ("unseen", 16)',
    "range(2500)": "range(40)",
    '"--episodes", "2500", "--epochs", "2"': '"--episodes", "40", "--epochs", "1"',
    '"--steps", "25", "--groups", "16"': '"--steps", "2", "--groups", "2"',
    '"--eval-every", "5"': '"--eval-every", "1"',
}
"""What makes the tutorial that trains for minutes run in seconds; it learns nothing then."""


def pages():
    """The pages, of which the one that trains is slow."""
    return [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page == TRAINING else [])
        for page in WHOLE
    ]


@pytest.mark.parametrize("page", pages())
def test_a_tutorial_runs_from_top_to_bottom(page, tmp_path):
    if not any(block.language == "python" for block in blocks(page)):
        pytest.skip("its code runs in `make test-trainers`")
    run_page(blocks(page), tmp_path)


def test_the_tutorial_that_trains_runs_from_top_to_bottom_with_few_tasks_and_steps(tmp_path):
    text = "\n".join(block.body for block in blocks(TRAINING))
    assert [part for part in SMALLER if part not in text] == []
    smaller = []
    for block in blocks(TRAINING):
        body = block.body
        for long, short in SMALLER.items():
            body = body.replace(long, short)
        if "assert success" not in body:
            smaller.append(block._replace(body=body, output=None))
    run_page(smaller, tmp_path)
    assert (tmp_path / "report.html").exists()


def run_page(parts, folder):
    """Run a page's blocks in a folder, as a reader would."""
    names = {"__name__": "__main__"}
    with imports_of(folder):
        sys.path.insert(0, str(folder))
        for block in parts:
            if block.language == "console":
                run_console(block, folder)
            elif block.language == "python" and (file := FILE.match(block.body)):
                (folder / f"{file[1]}.py").write_text(block.body, encoding="utf-8")
                sys.modules.pop(file[1], None)
            elif block.language == "python":
                run_python(block, names)


def test_every_tutorial_is_on_their_page():
    index = (DOCS / "tutorials" / "index.md").read_text(encoding="utf-8")
    assert [page.stem for page in TUTORIALS if f"({page.name})" not in index] == []
