"""What every text environment promises, whatever it is about: tests of an `env_id`."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.wrappers import RecordEpisodeStatistics
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import memenvs
from memenvs.core.env import MAX_REPLY_CHARS
from memenvs.core.spaces import clean_text
from memenvs.rollout.scripted import make_policy, play_episode
from memenvs.wrappers import RewardWrapper

HOSTILE = [
    *("", " ", "\n\n", "\0", "\ud800", "a\udfffb", "\x1b[31m", "{}", "{question}", "%s", "\\", "\\boxed{"),
    *("<answer>" * 2000, "</answer></answer>", "<think><answer>", "\\boxed{" * 5000, "{" * 50_000),
    '<tool>{"name":"\\ud800"}</tool>',
    "x" * 100_000,
    "\N{FAMILY}\N{ZERO WIDTH JOINER}" * 1000,
]


Step = tuple[Any, float, bool, bool, dict[str, Any]]


def play(env: Any, replies: Iterable[str], **reset: Any) -> list[Step]:
    """Every (observation, reward, terminated, truncated, info) of an episode, the reset first."""
    observation, info = env.reset(**reset)
    return [(observation, 0.0, False, False, info), *steps_until_end(env, replies)]


def steps_until_end(env: Any, replies: Iterable[str]) -> Iterator[Step]:
    """The steps of an episode that has begun."""
    for reply in replies:
        step = env.step(reply)
        yield step
        if step[2] or step[3]:
            return


def some_tasks(env: Any) -> range:
    """The numbers of the first tasks, ten at most."""
    return range(min(10, env.unwrapped.n_tasks))


@pytest.fixture
def env(env_id: str) -> Iterator[gym.Env[Any, Any]]:
    """The environment, made anew for each test."""
    env = gym.make(env_id)
    yield env
    env.close()


def test_check_env_finds_nothing_to_warn_of(env):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_the_same_seed_gives_the_same_episode(env, env_id):
    replies = [f"reply {i}" for i in range(200)]
    assert data_equivalence(play(env, replies, seed=7), play(gym.make(env_id), replies, seed=7))


def test_seeds_pick_different_tasks(env):
    count = env.unwrapped.n_tasks
    assert len({env.reset(seed=seed)[1]["task"] for seed in range(20)}) > min(5, count // 2)


def test_a_task_can_be_chosen_by_number(env):
    first, *others = some_tasks(env)
    one, same = (env.reset(seed=seed, options={"task": first})[1]["task"] for seed in (0, 5))
    assert one == same
    assert all(env.reset(options={"task": other})[1]["task"] != one for other in others)


def test_the_number_of_a_task_may_be_numpys(env):
    last = some_tasks(env)[-1]
    first, second = (env.reset(seed=0, options={"task": task})[1]["task"] for task in (last, np.int64(last)))
    assert first == second


@pytest.mark.parametrize(
    "options", [{"task": True}, {"task": 1.0}, {"task": -1}, {"task": 10**9}, {"task": "1"}, {"tusk": 1}]
)
def test_a_wrong_reset_option_is_refused_in_one_line(env, options):
    with pytest.raises(ValueError, match="task") as error:
        env.reset(options=options)
    assert "\n" not in str(error.value)


def test_the_gold_policy_scores_one(env):
    policy = make_policy("gold", env)
    infos = [play_episode(env, policy, task=task, seed=0) for task in some_tasks(env)]
    assert {info["metrics"]["success"] for info in infos} == {1.0}


def test_silence_scores_nothing(env):
    policy = make_policy("silent", env)
    infos = [play_episode(env, policy, task=task, seed=0) for task in some_tasks(env)]
    assert {info["metrics"]["success"] for info in infos} == {0.0}
    assert max(sum(info["turn_rewards"]) for info in infos) <= 0.0


def test_the_spec_pickles(env):
    assert pickle.loads(pickle.dumps(env.spec)) == env.spec


def test_the_spec_round_trips_through_json_and_rebuilds_the_environment(env):
    rebuilt = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert data_equivalence(play(rebuilt, ["a"] * 200, seed=3), play(env, ["a"] * 200, seed=3))


def test_a_state_taken_in_the_middle_replays_bit_for_bit_in_another_environment(env, env_id):
    replies = [f"reply {i}" for i in range(200)]
    env.reset(seed=11)
    env.step(replies[0])
    state = pickle.loads(pickle.dumps(memenvs.get_state(env)))
    other = gym.make(env_id)
    memenvs.set_state(other, state)
    went_on = [list(itertools.islice(steps_until_end(e, replies), 200)) for e in (env, other)]
    assert data_equivalence(*went_on)
    assert data_equivalence(env.reset(), other.reset())  # the generators too


def test_a_state_can_be_played_more_than_once(env):
    env.reset(seed=11)
    env.step("first")
    state = memenvs.get_state(env)
    branches = []
    for _ in range(2):
        memenvs.set_state(env, state)
        branches.append(list(steps_until_end(env, ["x"] * 200)))
    assert data_equivalence(*branches)


def test_a_state_is_json_and_goes_on_from_there(env, env_id):
    env.reset(seed=11)
    env.step("first")
    state = memenvs.get_state(env)
    read = json.loads(json.dumps(state, allow_nan=False))
    assert read == state
    other = gym.make(env_id)
    memenvs.set_state(other, read)
    went_on = [list(steps_until_end(one, ["x"] * 200)) for one in (env, other)]
    assert data_equivalence(*went_on)


def test_a_state_names_the_environment_its_version_its_tasks_and_its_arguments(env, env_id):
    env.reset(seed=0)
    state = env.unwrapped.get_state()
    assert (state["env"], state["version"]) == (env_id, type(env.unwrapped).version)
    assert len(state["arguments"]) == 16
    assert len(state["tasks"]) == 2


@pytest.mark.parametrize("other_id", memenvs.ENV_IDS)
def test_a_state_of_another_environment_is_refused_in_one_line(env, other_id):
    env.reset(seed=0)
    other = gym.make(other_id)
    other.reset(seed=1)
    before, state = other.unwrapped.get_state(), env.unwrapped.get_state()
    if all(before[name] == state[name] for name in ("class", "arguments", "tasks")):
        other.unwrapped.set_state(state)  # it is such an environment itself
        assert other.unwrapped.get_state()["episode"] == state["episode"]
        return
    with pytest.raises(ValueError, match="this state is of") as error:
        other.unwrapped.set_state(state)
    assert "\n" not in str(error.value)
    assert other.unwrapped.get_state() == before


TAMPERED = [{"task": "0"}, {"end": "done"}, {"turn_rewards": ["x"]}]


@pytest.mark.parametrize("tampered", TAMPERED, ids=str)
def test_a_state_with_fields_of_other_types_is_refused_in_one_line(env, tampered):
    env.reset(seed=0)
    env.step("x")
    inner = env.unwrapped
    before = inner.get_state()
    with pytest.raises(ValueError, match="the state's") as error:
        inner.set_state({**before, "episode": {**before["episode"], **tampered}})
    assert "\n" not in str(error.value)
    assert inner.get_state() == before


@pytest.mark.parametrize("state", [None, {}, {"inner": {}}, {"inner": {}, "own": 0}, "state"], ids=str)
def test_what_is_no_state_is_refused_in_one_line(env, state):
    env.reset(seed=0)
    for one in (env.unwrapped.set_state, lambda state: memenvs.set_state(env, state)):
        with pytest.raises(ValueError, match="state") as error:
            one(state)
        assert "\n" not in str(error.value)


def test_a_generator_of_another_kind_is_refused_in_one_line(env):
    env.reset(seed=0)
    before = env.unwrapped.get_state()
    with pytest.raises(ValueError, match="np_random") as error:
        env.unwrapped.set_state({**before, "np_random": {"bit_generator": "MT19937"}})
    assert "\n" not in str(error.value)
    assert env.unwrapped.get_state() == before


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_as_the_original_and_apart_from_it(env, copied):
    env.reset(seed=11)
    env.step("first")
    other = copied(env)
    replies = [f"reply {i}" for i in range(200)]
    went_on = [[*steps_until_end(one, replies), one.reset()] for one in (env, other)]
    assert data_equivalence(*went_on)
    assert other.spec == env.spec


def test_an_environment_that_was_not_reset_can_be_copied(env):
    other = copy.deepcopy(env)
    assert data_equivalence(play(other, ["x"] * 200, seed=2), play(env, ["x"] * 200, seed=2))


def test_a_state_through_a_wrapper_that_is_not_known_is_refused_by_its_name(env):
    env.reset(seed=0)
    state = memenvs.get_state(env)
    wrapped = RecordEpisodeStatistics(env)
    for refused in (lambda: memenvs.get_state(wrapped), lambda: memenvs.set_state(wrapped, state)):
        with pytest.raises(TypeError, match="RecordEpisodeStatistics") as error:
            refused()
        assert "\n" not in str(error.value)


def test_the_picture_of_a_state_put_back_is_the_one_it_was_taken_at(env_id):
    env, other = (gym.make(env_id, render_mode="ansi") for _ in range(2))
    env.reset(seed=0)
    env.step("<think></think><answer>Up</answer>")
    drawn = env.render()
    other.reset(seed=1)  # wrappers of Gymnasium draw nothing before a reset
    memenvs.set_state(other, memenvs.get_state(env))
    assert other.render() == drawn


def test_a_step_after_the_end_is_refused(env):
    play(env, ["x"] * 200, seed=0)
    with pytest.raises(ResetNeeded, match="reset"):
        env.step("x")


def test_the_info_has_the_same_keys_at_every_step(env):
    shapes = {json.dumps(shape(step[4])) for step in play(env, ["x"] * 200, seed=0)}
    assert len(shapes) == 1


def shape(value: Any) -> Any:
    """The keys of nested dictionaries."""
    return {key: shape(inner) for key, inner in sorted(value.items())} if isinstance(value, Mapping) else None


SEARCHES = [
    "<mem>m</mem><think></think><search>a town</search>",
    '<tool>{"name": "wiki_search", "args": {"query": "a town"}}</tool>',
]


@pytest.mark.parametrize("limit", [None, 1], ids=["whole", "cut"])
def test_the_next_observation_is_this_one_the_reply_and_the_feedback_unless_the_context_is_rewritten(
    env_id, limit
):
    env = gym.make(env_id, max_episode_steps=limit, disable_env_checker=True)
    replies = [*SEARCHES, "x" * (MAX_REPLY_CHARS + 1), *HOSTILE]
    while replies:
        observation, info = env.reset(seed=0)
        assert info["feedback"] == ""
        over = False
        while not over:
            reply = replies.pop(0) if replies else env.unwrapped.gold_reply()
            before = text_of(observation)
            observation, _, terminated, truncated, info = env.step(reply)
            over = terminated or truncated
            if info["context"] == "append":
                expected = before + clean_text(reply, MAX_REPLY_CHARS) + info["feedback"]
                assert text_of(observation) == expected
            else:
                assert info["feedback"] == ""


def text_of(observation: Any) -> str:
    """The text of an observation that may have a picture beside it."""
    return observation["text"] if isinstance(observation, dict) else observation


def test_rewards_are_the_sums_of_their_components_and_turn_rewards_their_list(env):
    _, *steps = play(env, ["x", "<answer>y</answer>", "\\boxed{z}"] * 70, seed=0)
    assert [step[1] for step in steps] == [pytest.approx(sum(step[4]["rewards"].values())) for step in steps]
    rewards = [step[1] for step in steps]
    assert [step[4]["turn_rewards"] for step in steps] == [
        rewards[:turn] for turn in range(1, len(steps) + 1)
    ]


SCORING_FIELDS = (
    *("question", "target", "target_wrapped", "memory", "reply"),
    *("prompt_with_memory", "prompt_without_memory", "prompt_with_history"),
    *("teacher_prompt", "teacher_prompt_global"),
)
"""What reward methods ask a scorer about; see `TextEnv`, under Privileged."""


def test_the_scoring_fields_are_texts_at_every_turn(env):
    for step in play(env, [*SEARCHES, *["x"] * 200], seed=0):
        assert {type(step[4]["privileged"][name]) for name in SCORING_FIELDS} == {str}


def test_the_memory_stands_where_its_span_says(env):
    replies = [*SEARCHES, *["x"] * 200]
    _, *steps = play(env, replies, seed=0)
    for reply, step in zip(replies, steps, strict=False):
        privileged = step[4]["privileged"]
        if (span := privileged["memory_span"]) is not None:
            assert reply[slice(*span)] == privileged.get("written", privileged["memory"])


METHODS = [
    ["TAMTRL", {}],
    ["TAMTRL", {"view": "global", "final_turn": "teacher"}],
    ["TAMTRL", {"change": True}],
    ["InfoMem", {}],
    ["InfoMem", {"condition": "query", "side": "both"}],
    ["InfoMem", {"target": "wrapped"}],
    ["MemPO", {"trajectory": "outcome"}],
    ["MemPO", {"trajectory": "outcome", "bias": "none", "target": "wrapped"}],
    ["IGPO", {}],
    ["IGPO", {"measure": "log", "target": "wrapped"}],
]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_method_that_asks_for_log_probabilities_runs(env, method):
    host = RewardWrapper(env.unwrapped, [method], "lexical")
    _, *steps = play(host, [*SEARCHES, *["x"] * 200], seed=0)
    for step in steps:
        assert np.isfinite(list(step[4]["signals"].values())).all()
        assert np.isfinite(step[1])


def test_a_wrapper_outside_that_cuts_the_episode_finds_the_turn_rewards(env_id):
    env = gym.make(env_id, max_episode_steps=1)
    env.reset(seed=0)
    _, reward, _, truncated, info = env.step("x")
    assert truncated
    assert info["turn_rewards"] == [reward]


def test_components_and_metrics_are_floats(env):
    values = [
        value
        for step in play(env, ["x"] * 200, seed=0)
        for part in ("rewards", "metrics")
        for value in step[4][part].values()
    ]
    assert {type(value) for value in values} == {float}


def test_infos_pickle(env):
    steps = play(env, ["x"] * 200, seed=0)
    assert data_equivalence(pickle.loads(pickle.dumps(steps)), steps)


@given(replies=st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=300)), min_size=20, max_size=20))
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
def test_no_reply_raises_or_leaves_the_observation_space(env_id, replies):
    env = gym.make(env_id, disable_env_checker=True)
    env.reset(seed=0)
    for reply in replies:
        observation, reward, terminated, truncated, _ = env.step(reply)
        assert env.observation_space.contains(observation)
        assert abs(reward) < 1e6
        if terminated or truncated:
            env.reset()


def test_every_hostile_reply_is_survived(env):
    env.reset(seed=0)
    for reply in HOSTILE:
        observation, _, terminated, truncated, _ = env.step(reply)
        assert env.observation_space.contains(observation)
        if terminated or truncated:
            env.reset()


def test_an_action_that_is_no_text_is_refused(env):
    env.reset(seed=0)
    with pytest.raises(TypeError, match="str"):
        env.unwrapped.step(b"bytes")


def test_the_picture_for_a_person_is_text(env_id):
    env = gym.make(env_id, render_mode="ansi")
    env.reset(seed=0)
    env.step("a \x1b[31mred\x00 reply")
    drawn = env.render()
    assert "red" in drawn
    assert "\x1b[31m" not in drawn


def test_an_unknown_render_mode_is_refused(env_id):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Gymnasium warns before the environment refuses it
        with pytest.raises(Exception, match=r"render_mode|render mode"):
            gym.make(env_id, render_mode="hologram")


__all__ = ["env", "play", *(name for name in tuple(globals()) if name.startswith("test_"))]
