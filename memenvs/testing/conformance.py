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
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import memenvs
from memenvs.core.env import MAX_REPLY_CHARS
from memenvs.core.episode import observation_text
from memenvs.core.spaces import clean_text
from memenvs.rollout.collect import collect
from memenvs.wrappers import RewardWrapper

HOSTILE = [
    *("", " ", "\n\n", "\0", "\ud800", "a\udfffb", "\x1b[31m", "{}", "{question}", "%s", "\\", "\\boxed{"),
    *("<answer>" * 2000, "</answer></answer>", "<think><answer>", "\\boxed{" * 5000, "{" * 50_000),
    '<tool>{"name":"\\ud800"}</tool>',
    "x" * 100_000,
    "\N{FAMILY}\N{ZERO WIDTH JOINER}" * 1000,
]
SEARCHES = [
    "<mem>m</mem><think></think><search>a town</search>",
    '<tool>{"name": "wiki_search", "args": {"query": "a town"}}</tool>',
]
SOME = [*SEARCHES, *["<think>ADD: x</think>x"] * 200]
"""Replies that search, and then enough of them to end any episode."""

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


def renders(env: gym.Env[Any, Any]) -> bool:
    """Whether an environment has its own `render`."""
    return type(env.unwrapped).render is not gym.Env.render


def make_rendering(env_id: str) -> gym.Env[Any, Any]:
    """An environment that renders text; skips the test if it has no `render`."""
    if not renders(gym.make(env_id)):
        pytest.skip(f"{env_id} has no render()")
    return gym.make(env_id, render_mode="ansi")


def skip_without_scoring_fields(env: gym.Env[Any, Any]) -> None:
    """Skip a test of the scoring fields if `_privileged()` returns `{}`."""
    if not env.reset(seed=0)[1]["privileged"]:
        pytest.skip("no scoring fields: _privileged() returns {}")


def refused(call: Any, *args: Any) -> None:
    """Assert that a call raises an error of one line."""
    with pytest.raises((ValueError, TypeError)) as raised:
        call(*args)
    assert "\n" not in str(raised.value)


@pytest.fixture
def env(env_id: str) -> Iterator[gym.Env[Any, Any]]:
    """A new environment for each test."""
    env = gym.make(env_id)
    yield env
    env.close()


def test_check_env_finds_nothing_to_warn_of(env):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=not renders(env))


def test_the_spec_as_json_and_the_seed_give_the_same_episode(env):
    assert pickle.loads(pickle.dumps(env.spec)) == env.spec
    rebuilt = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert data_equivalence(play(env, SOME, seed=7), play(rebuilt, SOME, seed=7))


def test_seeds_pick_different_tasks(env):
    count = env.unwrapped.n_tasks
    assert len({env.reset(seed=seed)[1]["task"] for seed in range(20)}) > min(5, count // 2)


def test_a_task_can_be_chosen_by_number(env):
    first, *others = some_tasks(env)
    task, same = (env.reset(seed=seed, options={"task": first})[1]["task"] for seed in (0, 5))
    assert task == same == env.reset(options={"task": np.int64(first)})[1]["task"]
    assert all(env.reset(options={"task": other})[1]["task"] != task for other in others)


def test_a_wrong_reset_option_is_refused_in_one_line(env):
    numbers = ({"task": True}, {"task": 1.0}, {"task": -1}, {"task": 10**9}, {"task": "1"})
    for options in (*numbers, {"tusk": 1}, "task"):
        refused(lambda options=options: env.reset(options=options))


def test_the_gold_policy_scores_one(env):
    tasks = some_tasks(env)
    episodes = collect(env, "gold", tasks, tasks=tasks, errors="raise")
    assert {episode.metrics["success"] for episode in episodes} == {1.0}


def test_silence_scores_nothing(env):
    tasks = some_tasks(env)
    episodes = collect(env, "silent", tasks, tasks=tasks, errors="raise")
    assert {episode.metrics["success"] for episode in episodes} == {0.0}
    assert max(sum(episode.turn_rewards) for episode in episodes) <= 0.0


def test_a_state_is_json_and_is_resumed_bit_for_bit_as_often_as_wanted(env, env_id):
    env.reset(seed=11)
    env.step(SOME[0])
    state = memenvs.get_state(env)
    read = json.loads(json.dumps(state, allow_nan=False))
    assert read == state
    branches = []
    for resumed in (env, gym.make(env_id), env):
        memenvs.set_state(resumed, read)
        branches.append([*steps_until_end(resumed, SOME[1:]), resumed.reset()])  # the generators too
    assert data_equivalence(branches[0], branches[1])
    assert data_equivalence(branches[0], branches[2])


def test_a_state_of_another_environment_is_refused_in_one_line(env):
    env.reset(seed=0)
    state = memenvs.get_state(env)
    for other_id in memenvs.ENV_IDS:
        try:
            other = gym.make(other_id)
        except ImportError:  # it needs an extra that is not installed
            continue
        other.reset(seed=1)
        before = memenvs.get_state(other)
        if any(before[name] != state[name] for name in ("env", "arguments", "tasks")):
            refused(memenvs.set_state, other, state)
            assert memenvs.get_state(other) == before


def test_what_is_no_state_is_refused_in_one_line_and_changes_nothing(env):
    env.reset(seed=0)
    env.step("x")
    before = memenvs.get_state(env)
    for state in (None, {}, {"seed": 0}, "state", {**before, "memories": 0}, {**before, "actions": None}):
        refused(memenvs.set_state, env, state)
    assert memenvs.get_state(env) == before


def test_what_a_trainer_may_see_of_a_turn_stays_as_it_was_when_the_next_episode_has_begun(env_id):
    """Reward methods read it when the group has ended; the environment may play another episode by then."""
    env, same = (gym.make(env_id) for _ in range(2))
    infos = [step[-1] for step in play(env, SOME, seed=0)]
    known = [dict(step[-1]["privileged"]) for step in play(same, SOME, seed=0)]
    play(env, SOME[2:], seed=1)
    assert data_equivalence([dict(info["privileged"]) for info in infos], known)


def test_a_copy_resumes_as_the_original_and_apart_from_it(env):
    never_reset = copy.deepcopy(env)
    assert data_equivalence(play(never_reset, SOME, seed=2), play(env, SOME, seed=2))
    env.reset(seed=11)
    env.step("first")
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    played, *others = ([*steps_until_end(copied, SOME), copied.reset()] for copied in (env, *copies))
    for copied, other in zip(copies, others, strict=True):
        assert data_equivalence(played, other)
        assert copied.spec == env.spec


def test_the_picture_of_a_state_put_back_is_the_one_it_was_taken_at(env_id):
    env, other = (make_rendering(env_id) for _ in range(2))
    env.reset(seed=0)
    env.step("<think></think><answer>Up</answer>")
    drawn = env.render()
    other.reset(seed=1)  # wrappers of Gymnasium draw nothing before a reset
    memenvs.set_state(other, memenvs.get_state(env))
    assert other.render() == drawn


def test_a_step_after_the_end_is_refused(env):
    play(env, SOME, seed=0)
    with pytest.raises(ResetNeeded, match="reset"):
        env.step("x")


def test_the_info_has_the_same_keys_at_every_step_and_pickles(env):
    steps = play(env, SOME, seed=0)
    assert len({json.dumps(shape(step[4])) for step in steps}) == 1
    assert data_equivalence(pickle.loads(pickle.dumps(steps)), steps)
    values = [step[4][part].values() for step in steps for part in ("rewards", "metrics")]
    assert {type(value) for value in itertools.chain(*values)} == {float}


def shape(value: Any) -> Any:
    """The keys of nested dictionaries."""
    return {key: shape(inner) for key, inner in sorted(value.items())} if isinstance(value, Mapping) else None


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
            before = observation_text(observation)
            observation, _, terminated, truncated, info = env.step(reply)
            over = terminated or truncated
            if info["context"] == "append":
                expected = before + clean_text(reply, MAX_REPLY_CHARS) + info["feedback"]
                assert observation_text(observation) == expected
            else:
                assert info["feedback"] == ""


def test_rewards_are_the_sums_of_their_components_and_turn_rewards_their_list(env):
    _, *steps = play(env, ["x", "<answer>y</answer>", "\\boxed{z}"] * 70, seed=0)
    rewards = [step[1] for step in steps]
    assert rewards == [pytest.approx(sum(step[4]["rewards"].values())) for step in steps]
    assert [step[4]["turn_rewards"] for step in steps] == [rewards[: i + 1] for i in range(len(steps))]


def test_a_wrapper_outside_that_cuts_the_episode_finds_the_turn_rewards(env_id):
    env = gym.make(env_id, max_episode_steps=1)
    env.reset(seed=0)
    _, reward, _, truncated, info = env.step("x")
    assert truncated
    assert info["turn_rewards"] == [reward]


SCORING_FIELDS = (
    *("question", "target", "target_wrapped", "memory", "reply"),
    *("prompt_with_memory", "prompt_without_memory", "prompt_with_history"),
    *("teacher_prompt", "teacher_prompt_global"),
)
"""What reward methods ask a scorer about; see `TextEnv`, under Privileged."""


def test_the_scoring_fields_are_texts_and_the_memory_is_where_its_span_says(env):
    skip_without_scoring_fields(env)
    first, *steps = play(env, SOME, seed=0)
    for reply, step in zip(["", *SOME], [first, *steps], strict=False):
        privileged = step[4]["privileged"]
        assert {type(privileged[name]) for name in SCORING_FIELDS} == {str}
        if (span := privileged["memory_span"]) is not None:
            assert reply[slice(*span)] == privileged.get("written", privileged["memory"])


METHODS: dict[str, list[Any]] = {
    "defaults": ["TAMTRL", "InfoMem", ["MemPO", {"trajectory": "outcome"}], "IGPO"],
    "all fields": [
        ["TAMTRL", {"view": "global", "final_turn": "teacher"}],
        ["InfoMem", {"condition": "query", "side": "both", "target": "wrapped"}],
        ["MemPO", {"trajectory": "outcome", "bias": "none", "target": "wrapped"}],
        ["IGPO", {"measure": "log", "target": "wrapped"}],
    ],
}


@pytest.mark.parametrize("methods", METHODS)
def test_methods_that_ask_for_log_probabilities_run(env, methods):
    skip_without_scoring_fields(env)
    _, *steps = play(RewardWrapper(env.unwrapped, METHODS[methods], "lexical"), SOME, seed=0)
    for step in steps:
        assert np.isfinite([step[1], *itertools.chain(*step[4]["signals"].values())]).all()


@given(replies=st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=300)), min_size=20, max_size=20))
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@example(replies=HOSTILE)
def test_no_reply_raises_or_leaves_the_observation_space(env_id, replies):
    env = gym.make(env_id, disable_env_checker=True)
    env.reset(seed=0)
    for reply in replies:
        observation, reward, terminated, truncated, _ = env.step(reply)
        assert env.observation_space.contains(observation)
        assert abs(float(reward)) < 1e6
        if terminated or truncated:
            env.reset()


def test_an_action_that_is_no_text_is_refused(env):
    env.reset(seed=0)
    refused(env.unwrapped.step, b"bytes")


def test_the_picture_for_a_person_is_text(env_id):
    env = make_rendering(env_id)
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
