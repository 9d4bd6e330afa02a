"""The contract of every text environment also holds with reward methods."""

import importlib.util
import itertools
import math
import tempfile
import warnings
from pathlib import Path

import gymnasium as gym
import pytest
from gymnasium.envs.registration import WrapperSpec
from gymnasium.utils.env_checker import check_env
from prm_model import save_prm
from tiny_model import save_tiny_model

from memenvs.rollout.collect import collect
from memenvs.testing import *  # noqa: F403  # every test of the contract runs here again
from memenvs.testing import play

STACKS = {
    "ChunkTAMTRL": ("envs.chunk_qa:ChunkQAEnv", {}, [["TAMTRL"]]),
    "ChunkStack": (
        "envs.chunk_qa:ChunkQAEnv",
        {"tasks": "world-test"},
        [[["InfoMem", {"side": "both"}]], ["TAMTRL"], ["MemPO"]],
    ),
    "SearchStack": (
        "envs.search_qa:SearchQAEnv",
        {"memory_mode": "rewrite"},
        [["MemPO"], ["SearchRewards"], ["InfoMem"]],
    ),
    "ChunkGains": ("envs.chunk_qa:ChunkQAEnv", {}, [["IGPO", "ReMemR1", "GiGPO"]]),
    "SokobanGains": ("sokoban.environments:SokobanEnv", {}, [["GiGPO"], ["IGPO"]]),
    "Search": ("envs.search_qa:SearchQAEnv", {}, [["SearchRewards"]]),
    "SearchCalls": ("envs.search_qa:SearchQAEnv", {}, [["StepSearch", "OTC", "GiGPO"]]),
    "SearchMerged": ("envs.search_qa:SearchQAEnv", {}, [["SearchR1"]]),
    "ResearchForm": ("envs.search_qa:SearchQAEnv", {"form": "research"}, [["FormatGate"]]),
    "Tool": ("envs.tool_qa:ToolQAEnv", {}, [["ToolRewards"]]),
    "ToolCalls": ("envs.tool_qa:ToolQAEnv", {}, [["OTC", "StepSearch"]]),
    "OneWrapper": ("envs.chunk_qa:ChunkQAEnv", {}, [[["TAMTRL", {"combine": "plus"}], "InfoMem", "MemPO"]]),
}
"""Environments, and the methods of the wrappers around them, the innermost first."""
if importlib.util.find_spec("transformers"):
    _FOLDER = tempfile.TemporaryDirectory()
    _MODEL = save_prm(Path(_FOLDER.name) / "prm", save_tiny_model(Path(_FOLDER.name) / "tiny"))
    STACKS["PRM"] = (
        "sokoban.environments:SokobanEnv",
        {"max_turns": 3},
        [[["PRM", {"model": _MODEL, "device": "cpu"}]]],
    )
IDS = [f"Wrapped{name}-v0" for name in STACKS]
INSIDE = (
    "test_methods_that_ask_for_log_probabilities_run",
    "test_a_state_of_another_environment_is_refused_in_one_line",
    "test_an_action_that_is_no_text_is_refused",
)
for name in INSIDE:  # they ask the environment under the methods, which test_conformance.py does
    globals().pop(name, None)
# The format reward of MT-GRPO never falls under it; a random model gives any turn a score between 0 and 1.
PAYS_SILENCE = {"WrappedTool-v0": 0.04, "WrappedPRM-v0": 3.0}

WHOLE = ("WrappedSearchStack-v0", "WrappedSokobanGains-v0", "WrappedOneWrapper-v0", "WrappedPRM-v0")
"""The stacks that the whole contract runs for; the tests below run for all."""


def pytest_generate_tests(metafunc):
    if "env_id" in metafunc.fixturenames:
        metafunc.parametrize("env_id", IDS if metafunc.function.__module__ == __name__ else WHOLE)


for name, (entry_point, kwargs, stack) in STACKS.items():
    gym.register(
        f"Wrapped{name}-v0",
        f"memenvs.{entry_point}",
        kwargs=kwargs,
        additional_wrappers=tuple(
            WrapperSpec(
                "RewardWrapper",
                "memenvs.wrappers:RewardWrapper",
                {"methods": methods, "scorer": "lexical"},
            )
            for methods in stack
        ),
    )


def test_check_env_finds_nothing_to_warn_of(env):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        check_env(env)


def test_silence_scores_nothing(env, env_id):
    episodes = collect(env, "silent", range(10), tasks=range(10), errors="raise")
    assert not any(episode.success for episode in episodes)
    assert max(sum(episode.turn_rewards) for episode in episodes) <= PAYS_SILENCE.get(env_id, 0.0) + 1e-12


def test_rewards_are_the_sums_of_their_components_and_turn_rewards_their_list(env):
    """In hindsight the list is another, but its sum is the same; until then it is what was paid."""
    _, *steps = play(env, ["x", "<mem>m</mem><answer>y</answer>", "\\boxed{z}"] * 70, seed=0)
    assert [step[1] for step in steps] == [pytest.approx(sum(step[4]["rewards"].values())) for step in steps]
    told = steps[-1][4]["turn_rewards"]
    assert len(told) == len(steps)
    assert math.fsum(told) == pytest.approx(math.fsum(step[1] for step in steps))
    paid = [step[1] for step in steps]
    assert [step[4]["turn_rewards"] for step in steps[:-1]] == [paid[: k + 1] for k in range(len(steps) - 1)]


def test_the_credits_of_a_turn_are_what_the_turn_was_paid(env):
    replies = itertools.chain(["<mem>a</mem><think></think><search>b</search>"], ["\\boxed{z}"] * 200)
    info = play(env, replies, seed=0)[-1][4]
    credits = [credit for some in info["credits"].values() for credit in some]
    paid = math.fsum(credit.value for credit in credits) + info["rewards"]["outcome"]
    assert math.fsum(info["turn_rewards"]) == pytest.approx(paid)
