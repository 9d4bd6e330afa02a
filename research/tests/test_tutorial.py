"""The tutorial's code with other seeds."""

import re
import subprocess
import sys

from research.reproduce.tutorial import PAGE, program


def test_the_blocks_of_a_page_run_in_a_folder_with_a_seed(tmp_path):
    page = "```python\nSEED = 0\n```\n\n```python\nopen('seed', 'w').write(f'{SEED}')\n```\n"
    subprocess.run([sys.executable, "-c", program(page, tmp_path, 3)], check=True)
    assert (tmp_path / "seed").read_text() == "3"


def test_the_tutorial_takes_a_seed(tmp_path):
    assert re.search(r"^SEED = 3\b", program(PAGE.read_text(encoding="utf-8"), tmp_path, 3), re.MULTILINE)
