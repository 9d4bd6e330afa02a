"""Every registered environment keeps the contract of text environments."""

import gymnasium as gym
import pytest

import memenvs
from memenvs.testing import *  # noqa: F403
from memenvs.testing import play
from memenvs.wrappers import RewardWrapper

pytestmark = pytest.mark.parametrize("env_id", memenvs.ENV_IDS)


def test_mempo_pays_one_for_a_right_answer_in_proper_form(env):
    host = RewardWrapper(env.unwrapped, ["MemPO"], "lexical")
    _, *steps = play(host, iter(env.unwrapped.gold_reply, None), options={"task": 0})
    assert steps[-1][4]["metrics"]["format"] == 1.0
    assert steps[-1][4]["credits"]["mempo"][-1].value == 1.0


def test_the_module_prefix_makes_it_without_an_import(env_id):
    assert gym.make(f"memenvs:{env_id}").spec.id == env_id
