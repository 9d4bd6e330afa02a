"""Constraints for pip: the lowest versions that pyproject.toml allows of what the core and most extras need.

torch is left out: its oldest releases bring CUDA.
"""

import re
from pathlib import Path

import tomllib

EXTRAS = ("endpoint", "lm", "plots", "search", "testing", "train")

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
needed = project["dependencies"] + [one for name in EXTRAS for one in project["optional-dependencies"][name]]
for requirement in needed:
    lowest = re.match(r"([\w-]+)>=([\d.]+)", requirement)
    if lowest and lowest[1] != "torch":
        print(f"{lowest[1]}=={lowest[2]}")
