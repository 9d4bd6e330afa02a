"""docs/papers.md: every pointer leads to code, and it covers every flag, recipe and environment."""

import ast
import functools
import re
from dataclasses import fields
from pathlib import Path

import gymnasium as gym
import pytest

pytest.importorskip("tyro")

import memenvs  # noqa: F401
from memenvs.baselines import distill, grpo, mt_ppo, prm, sft
from memenvs.baselines.flags import recipe_names

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "papers.md").read_text()
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"([\w.]+(?:/[\w.-]+)+)(?::([\w.]+))?(?:\(([\w, ]+)\))?")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def pointers():
    found = (FILE.fullmatch(code) for code in CODE.findall(PAGE))
    return sorted({match.groups() for match in found if match}, key=str)


@functools.cache
def module(path):
    return ast.parse((ROOT / path).read_text())


def names(body):
    """Name to node of what a module, class or function defines."""
    found = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            found[node.target.id] = node
        elif isinstance(node, ast.Assign):
            found |= {
                t.id: node for target in node.targets for t in ast.walk(target) if isinstance(t, ast.Name)
            }
    return found


def arguments(node):
    """What a function or class is called with: parameters of `__init__`, or a dataclass's fields."""
    if isinstance(node, ast.ClassDef):
        inside = names(node.body)
        if "__init__" not in inside:
            return {name for name, field in inside.items() if isinstance(field, ast.AnnAssign)}
        node = inside["__init__"]
    return {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}


@pytest.mark.parametrize(("path", "name", "given"), pointers())
def test_a_pointer_leads_to_what_it_names(path, name, given):
    assert (ROOT / path).is_file()
    if name is None:
        return
    body = module(path).body
    for part in name.split("."):
        node = names(body)[part]
        body = getattr(node, "body", [])
    if given:
        assert set(given.split(", ")) <= arguments(node)


def test_every_flag_is_one_of_a_learner():
    learners = (grpo.GRPOArgs, mt_ppo.MTPPOArgs, sft.SFTArgs, distill.DistillArgs, prm.PRMArgs)
    known = {f"--{field.name}".replace("_", "-") for args in learners for field in fields(args)}
    codes = [code for code in CODE.findall(PAGE) if not code.startswith(("memenvs ", "python -m "))]
    assert {flag for code in codes for flag in FLAG.findall(code)} <= known


def test_every_recipe_is_on_the_page_and_no_other():
    assert set(re.findall(r"--recipe ([a-z_]+)", PAGE)) == set(recipe_names())


def test_every_environment_is_registered():
    assert set(re.findall(r"`(Mem\w+-v\d)`", PAGE)) <= set(gym.registry)
