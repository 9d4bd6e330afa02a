"""Imports that import-linter does not see: modules named in strings."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
IMPORTERS = ("import_module", "__import__", "run_module", "run_path")


class Module:
    """One file of the product: its name as it is imported, its place and its syntax tree."""

    def __init__(self, path):
        self.path = str(path.relative_to(ROOT))
        parts = path.relative_to(ROOT).with_suffix("").parts
        parts = parts if parts[0] == "memenvs" else ("memenvs", *parts)
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        self.tree = ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def product():
    """The modules of memenvs, wrappers, baselines and data; links inside memenvs are not followed."""
    found = []
    for top in ("memenvs", "wrappers", "baselines", "data"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if path.resolve() == path:
                found.append(Module(path))
    return found


def names():
    return {module.name for module in product()}


def named_as_text(module):
    """The product's modules that a file names in a string: "memenvs.a.b" or "memenvs.a.b:Name"."""
    known = names()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            place = node.value.partition(":")[0]
            if place in known and place != "memenvs":
                yield place


def test_only_places_that_users_name_are_imported_by_their_text():
    """Everything else is an import statement, which import-linter sees."""
    allowed = {
        "memenvs/core/optional.py",  # libraries of an extra; a method, scorer or teacher "module:Name"
        "memenvs/commands/__init__.py",  # the commands
        "memenvs/core/arguments.py",  # gym.make's "module:Id"
        "baselines/flags.py",  # the learner that a run's file names
    }
    users = {
        module.path
        for module in product()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in IMPORTERS
    }
    assert users == allowed, users ^ allowed


def layers():
    """The layers of pyproject.toml, top first; those of one line do not import each other."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r'^containers = \["memenvs"\].*?^layers = (\[.*?^\])', text, re.DOTALL | re.MULTILINE)
    return [line.split(" | ") for line in ast.literal_eval(listed[1])]


def test_modules_named_in_strings_obey_the_layers():
    """import-linter reads import statements alone."""
    for_verl = {"memenvs.adapters.verl", "memenvs.adapters.verl_sft"}  # which verl's own processes load
    rank = {f"memenvs.{name}": place for place, line in enumerate(layers()) for name in line}
    wrong = []
    for module in product():
        for name in {*named_as_text(module)} - for_verl:
            above, below = (".".join(one.split(".")[:2]) for one in (module.name, name))
            if above in rank and above != below and rank[above] >= rank[below]:
                wrong.append(f"{module.path} names {name}")
    assert not wrong, wrong
