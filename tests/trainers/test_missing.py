"""If a trainer is not installed, its adapter says in one line what to install."""

import importlib
from importlib.util import find_spec

import pytest


@pytest.mark.parametrize(
    ("adapter", "trainer", "extra"),
    [
        ("inspect_ai", "inspect_ai", "inspect"),
        ("mcp", "mcp", "mcp"),
        ("openenv", "openenv", "openenv"),
        ("sb3", "stable_baselines3", "sb3"),
        ("skyrl", "skyrl_gym", "skyrl"),
        ("trl", "trl", "trl"),
        ("verifiers", "verifiers", "verifiers"),
        ("verl", "verl", "verl"),
    ],
)
def test_an_adapter_names_the_extra_of_a_missing_trainer(adapter, trainer, extra):
    if find_spec(trainer):
        pytest.skip(f"{trainer} is installed")
    with pytest.raises(ImportError, match=rf'^\S+ is not installed; .*\[{extra}\]"`$'):
        importlib.import_module(f"memenvs.adapters.{adapter}")
