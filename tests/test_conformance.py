"""Every registered environment keeps the contract of text environments."""

import gymnasium as gym
import pytest

import memenvs
from memenvs.testing import *  # noqa: F403

pytestmark = pytest.mark.parametrize("env_id", memenvs.ENV_IDS)


def test_the_module_prefix_makes_it_without_an_import(env_id):
    assert gym.make(f"memenvs:{env_id}").spec.id == env_id
