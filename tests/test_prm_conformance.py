"""The contract of every text environment also holds with a process reward model."""

import tempfile
from pathlib import Path

import gymnasium as gym
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from gymnasium.envs.registration import WrapperSpec
from prm_model import save_prm
from test_wrapped_conformance import (
    INSIDE,
    test_the_credits_of_a_turn_are_what_the_turn_was_paid,  # noqa: F401
)
from test_wrapped_conformance import (
    test_rewards_are_the_sums_of_their_components_and_turn_rewards_their_list as sums_in_hindsight,
)
from tiny_model import save_tiny_model

from memenvs.testing import *  # noqa: F403  # every test of the contract runs for each id here

for name in INSIDE:
    globals().pop(name, None)
test_rewards_are_the_sums_of_their_components_and_turn_rewards_their_list = sums_in_hindsight

_FOLDER = tempfile.TemporaryDirectory()
_MODEL = save_prm(Path(_FOLDER.name) / "prm", save_tiny_model(Path(_FOLDER.name) / "tiny"))
_METHODS = [["PRM", {"model": _MODEL, "device": "cpu"}]]
_PAYS = WrapperSpec("RewardWrapper", "memenvs.wrappers:RewardWrapper", {"methods": _METHODS})
gym.register(
    "PRMSokoban-v0",
    "memenvs.envs.sokoban:SokobanEnv",
    kwargs={"max_turns": 3},
    additional_wrappers=(_PAYS,),
)

pytestmark = pytest.mark.parametrize("env_id", ["PRMSokoban-v0"])
