"""Imports that import-linter does not see: modules named in strings."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORTERS = ("import_module", "__import__", "run_module", "run_path")
# import-linter reads import statements alone, so that everything else must be one.
BY_TEXT = {
    "memenvs": "the package's own names, when they are first read",
    "memenvs.core.optional": "libraries of an extra; what users name, `module:Name`",
    "memenvs.commands": "the commands",
}


@functools.cache
def product():
    """The syntax tree of each module of the product by its name; links inside memenvs are not followed."""
    trees = {}
    for top in ("memenvs", "wrappers", "baselines", "data"):
        for path in sorted(path for path in (ROOT / top).rglob("*.py") if path.resolve() == path):
            parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
            name = ".".join(parts if top == "memenvs" else ["memenvs", *parts])
            trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def test_only_places_that_users_name_are_imported_by_their_text():
    calls = {
        (name, getattr(node.func, "attr", getattr(node.func, "id", "")))
        for name, tree in product().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    assert {name for name, called in calls if called in IMPORTERS} == BY_TEXT.keys()


def layers():
    """The layers of pyproject.toml, top first; those of one line do not import each other."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r'^containers = \["memenvs"\].*?^layers = (\[.*?^\])', text, re.DOTALL | re.MULTILINE)
    return [line.split(" | ") for line in ast.literal_eval(listed[1])]


def test_modules_named_in_strings_obey_the_layers():
    for_verl = {"memenvs.adapters.verl", "memenvs.adapters.verl_sft"}  # which verl's own processes load
    known = product().keys() - for_verl - {"memenvs"}
    rank = {f"memenvs.{name}": place for place, line in enumerate(layers()) for name in line}
    texts = {
        (name, node.value.partition(":")[0])
        for name, tree in product().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    wrong = []
    for name, text in texts:
        above, below = (".".join(one.split(".")[:2]) for one in (name, text))
        if text in known and above in rank and above != below and rank[above] >= rank[below]:
            wrong.append(f"{name} names {text}")
    assert not wrong
