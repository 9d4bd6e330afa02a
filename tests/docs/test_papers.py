"""docs/papers.md: every pointer leads to code, and it covers every flag, recipe and environment."""

import functools
import inspect
import re
from dataclasses import fields
from pathlib import Path

import gymnasium as gym
import pytest

pytest.importorskip("tyro")

import memenvs  # noqa: F401
from memenvs.baselines import distill, grpo, mt_ppo, prm, sft
from memenvs.baselines.flags import recipe_names

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text()
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"([\w.]+(?:/[\w.-]+)+)(?::([\w.]+))?(?:\(([\w, ]+)\))?")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def pointers():
    found = (FILE.fullmatch(code) for code in CODE.findall(PAGE))
    return sorted({match.groups() for match in found if match}, key=str)


@pytest.mark.parametrize(("path", "name", "given"), pointers())
def test_a_pointer_leads_to_what_it_names(path, name, given):
    assert (ROOT / path).is_file()
    if name is None:
        return
    module = path.removesuffix(".py").replace("/", ".")
    module = module if module.startswith(("memenvs", "research")) else f"memenvs.{module}"
    found = functools.reduce(getattr, name.split("."), pytest.importorskip(module, exc_type=ImportError))
    if given:
        assert set(given.split(", ")) <= {*inspect.signature(found).parameters}


def test_every_flag_is_one_of_a_learner():
    learners = (grpo.GRPOArgs, mt_ppo.MTPPOArgs, sft.SFTArgs, distill.DistillArgs, prm.PRMArgs)
    known = {f"--{field.name}".replace("_", "-") for args in learners for field in fields(args)}
    codes = [code for code in CODE.findall(PAGE) if not code.startswith(("memenvs ", "python -m "))]
    assert {flag for code in codes for flag in FLAG.findall(code)} <= known


def test_every_recipe_is_on_the_page_and_no_other():
    assert set(re.findall(r"--recipe ([a-z_]+)", PAGE)) == set(recipe_names())


def test_every_environment_is_registered():
    assert set(re.findall(r"`(Mem\w+-v\d)`", PAGE)) <= set(gym.registry)
