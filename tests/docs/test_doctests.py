"""Every example of a docstring prints what it says."""

import doctest
import importlib

import pytest
from pages import ROOT

FOLDERS = ("memenvs", "memenvs/wrappers", "memenvs/baselines")  # two are links, which rglob leaves out
FILES = [path.relative_to(ROOT) for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
FILES = [path for path in FILES if ">>> " in (ROOT / path).read_text(encoding="utf-8")]


@pytest.mark.parametrize("name", sorted({".".join(path.with_suffix("").parts) for path in FILES}))
def test_the_examples_of_a_module_print_what_they_say(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        if ".adapters." not in name:
            raise
        pytest.skip(str(error))  # a trainer that is not installed
    assert doctest.testmod(module).failed == 0
