"""States of reward wrappers: plain data that JSON can hold, for the same methods only."""

import copy
import json
import math
import pickle
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
import pytest
from test_reward_wrapper import ANSWER, MEMORY, SEARCH, Broken, reading

import memenvs
from memenvs.core.state import to_plain
from memenvs.core.vector import TextVectorEnv
from memenvs.wrappers import TAMTRL, InfoMem, RewardMethod, RewardWrapper, VectorRewardWrapper

MODES = ["Disabled", "NextStep", "SameStep"]


@dataclass
class Seen(RewardMethod):
    """Keeps the observations of the episodes that it assigned credit to last."""

    name = "seen"
    immediate = False

    def assign_credit(self, episodes):
        self.last = [[turn.observation for turn in episode.turns] for episode in episodes]
        return super().assign_credit(episodes)


def begun(methods=("TAMTRL", "InfoMem"), scorer="lexical", replies=("the year", "1623")):
    env = RewardWrapper(reading(), list(methods), scorer)
    env.reset(options={"task": 0}, seed=1)
    for reply in replies:
        env.step(reply)
    return env


def through_json(state):
    read = json.loads(json.dumps(state, allow_nan=False))
    assert read == state
    return read


def resumed(env, replies):
    """All that further replies bring, as plain data, in which NaN equals NaN."""
    return to_plain([[*env.step(reply), env.record.turns, env.record.credits] for reply in replies])


def refused(env, state, match):
    """`set_state` raises one line and changes nothing."""
    before = memenvs.get_state(env)
    with pytest.raises(ValueError, match=match) as error:
        memenvs.set_state(env, state)
    assert "\n" not in str(error.value)
    assert memenvs.get_state(env) == before


def test_nan_signals_survive_json():
    env = begun(["TAMTRL", "MemPO"], Broken(), ["broken", "1623", "the year 1623", "\\boxed{1623}"])
    assert math.isnan(env.record.signals["tamtrl"][0])
    other = RewardWrapper(reading(), ["TAMTRL", "MemPO"], Broken())
    other.set_state(through_json(env.get_state()))
    assert to_plain(other.record.signals) == to_plain(env.record.signals)
    assert to_plain(other.record.credits) == to_plain(env.record.credits)


def test_a_state_of_an_ended_episode_has_its_credits_and_the_info_given_out():
    env = begun(replies=["the year", "1623", "", "\\boxed{1623}"])
    other = RewardWrapper(reading(), ["TAMTRL", "InfoMem"], "lexical")
    other.set_state(through_json(env.get_state()))
    assert other.record == env.record
    assert other.get_state() == env.get_state()


def test_pictures_survive_json_as_arrays():
    env, other = (RewardWrapper(gym.make("MemSokobanImage-v0"), [Seen()]) for _ in range(2))
    env.reset(seed=0)
    env.step("<think></think><answer>Up</answer>")
    other.set_state(through_json(env.get_state()))
    ends = False
    while not ends:
        _, _, terminated, truncated, _ = env.step("<think></think><answer>Down</answer>")
        other.step("<think></think><answer>Down</answer>")
        ends = terminated or truncated
    mine, others = (one.methods[0].last[0] for one in (env, other))
    assert mine[0]["image"].dtype == others[0]["image"].dtype == np.uint8
    assert to_plain(mine) == to_plain(others)


def test_what_json_cannot_hold_in_an_info_is_refused_in_one_line():
    class Boxed(gym.Wrapper):
        def reset(self, **how):
            observation, info = self.env.reset(**how)
            return observation, {**info, "box": object()}

        def get_state(self):
            return memenvs.get_state(self.env)

    env = RewardWrapper(Boxed(reading()), ["TAMTRL"], "lexical")
    env.reset(seed=0)
    with pytest.raises(TypeError, match="plain data only, not a object"):
        env.get_state()


@pytest.mark.parametrize(
    ("methods", "said"),
    [
        (["InfoMem", "TAMTRL"], r"from other reward methods \(\[\['InfoMem', "),
        (
            ["TAMTRL", ["InfoMem", {"beta": 0.5}]],
            r"from other reward methods \(\[\['InfoMem', {'beta': 0.5, ",
        ),
    ],
)
def test_a_state_of_other_methods_is_refused_by_what_differs(methods, said):
    refused(begun(), begun(methods, replies=["a"]).get_state(), said)


def test_a_state_of_another_environment_is_refused_and_the_methods_remember_what_they_did():
    env = begun(["InfoMem"], replies=["the year 1623"] * 3 + ["\\boxed{1623}"])
    foreign = RewardWrapper(reading(chunk_size=5000), ["InfoMem"], "lexical")
    foreign.reset(seed=0)
    assert foreign.get_state()["memories"] != env.get_state()["memories"]
    refused(env, foreign.get_state(), "with other arguments")


@pytest.mark.parametrize("tampered", [{"actions": ["a", 3]}, {"end": "done"}], ids=str)
def test_a_record_of_other_types_is_refused(tampered):
    env = begun()
    state = env.get_state()
    refused(env, {**state, "record": {**state["record"], **tampered}}, "the state's record")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_shares_a_scorer_that_has_a_name_and_keeps_the_template(copied):
    env = InfoMem(reading(), "lexical", template="<user>{prompt}</user>")
    env.reset(seed=0)
    env.step("1623")
    other = copied(env)
    assert other.scorer is env.scorer
    replies = ["the year", "1623", "\\boxed{1623}"]
    assert resumed(other, replies) == resumed(env, replies)


# Many environments.


def vector(env_id="MemSearchQA-v0", n=4, methods=("MemPO",), group_size=2, mode="Disabled", **kwargs):
    venv = TextVectorEnv(env_id, n, autoreset_mode=mode, **{**MEMORY, **kwargs})
    return VectorRewardWrapper(venv, list(methods), "lexical", group_size)


def half_ended(**kwargs):
    """Of the first group one has ended, and of the second none."""
    venv = vector(**kwargs)
    venv.reset(seed=3)
    return venv, venv.step([ANSWER, SEARCH, SEARCH, SEARCH])[0]


def records(venv):
    return [venv.record(i) for i in range(venv.num_envs)]


def all_resumed(venv, steps):
    """All that further steps bring, as plain data."""
    told, over = [], np.array([True, False, False, False])
    for actions in steps:
        mask = ~over if venv.unwrapped.autoreset_mode.value == "Disabled" else np.ones(4, bool)
        observations, rewards, terminated, truncated, _ = venv.step(actions, mask)
        over |= terminated | truncated
        ends = terminated.tolist(), truncated.tolist()
        told.append(
            [observations, rewards.tolist(), ends, venv.infos_list, venv.completed_groups, records(venv)]
        )
    return to_plain(told)


@pytest.mark.parametrize("mode", MODES)
def test_states_of_half_ended_groups_survive_json(mode):
    venv, observations = half_ended(mode=mode)
    other = vector(mode=mode)
    other.set_states(through_json(venv.get_states()), json.loads(json.dumps(observations)))
    steps = [[SEARCH, SEARCH, ANSWER, SEARCH], [ANSWER] * 4]
    steps += [] if mode == "Disabled" else [[SEARCH] * 4, [ANSWER, ANSWER, SEARCH, ANSWER]] * 3
    mine = all_resumed(venv, steps)
    assert all_resumed(other, steps) == mine
    assert any(groups for *_, groups, _ in mine)


def test_credits_of_an_inner_wrapper_survive_json():
    def rewarded():
        venv = TextVectorEnv([lambda: TAMTRL(reading(), "lexical")] * 2, autoreset_mode="Disabled")
        return VectorRewardWrapper(venv, ["InfoMem"], "lexical", group_size=2)

    venv, other = rewarded(), rewarded()
    venv.reset(options={"task": 0})
    for _ in range(3):
        venv.step(["the year", "1623"])
    observations = venv.step(["\\boxed{1623}", "the year 1623"], mask=np.array([True, False]))[0]
    other.set_states(through_json(venv.get_states()), observations)
    assert other.infos_list == venv.infos_list
    for one in (venv, other):
        one.step(["", "\\boxed{1623}"], mask=np.array([False, True]))
    assert other.infos_list == venv.infos_list
    assert records(other) == records(venv)


def all_refused(venv, states, observations, match):
    before = venv.get_states()
    with pytest.raises(ValueError, match=match) as error:
        venv.set_states(states, observations)
    assert "\n" not in str(error.value)
    assert venv.get_states() == before


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        (
            {"methods": [["MemPO", {"bias": "none"}]]},
            r"from other reward methods \(\[\['MemPO', .*'bias': 'none'",
        ),
        ({"methods": ["SearchRewards"]}, r"from other reward methods \(\[\['SearchRewards', "),
        ({"group_size": 4}, "has groups of 4, not 2"),
        ({"max_turns": 3}, "with other arguments"),
    ],
)
def test_states_of_other_methods_groups_or_environments_are_refused(kwargs, said):
    venv, observations = half_ended()
    all_refused(venv, half_ended(**kwargs)[0].get_states(), observations, said)


def test_one_foreign_state_among_several_changes_none():
    venv, observations = half_ended()
    states = venv.get_states()
    states[3] = half_ended(max_turns=3)[0].get_states()[3]
    venv.reset(seed=8)
    all_refused(venv, states, observations, "with other arguments")


@pytest.mark.parametrize(
    "tampered",
    [
        {"member": {"number": 0, "episodes": [{}]}},
        {"inner": {}},
        {"group_size": None},
    ],
    ids=str,
)
def test_a_state_of_other_types_is_refused(tampered):
    venv, observations = half_ended()
    states = venv.get_states()
    all_refused(venv, [{**states[0], **tampered}, *states[1:]], observations, "state")
