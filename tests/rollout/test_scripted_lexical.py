"""The policy without a model on every environment that asks a question: it looks before it answers."""

import dataclasses

import gymnasium as gym
import pytest

import memenvs  # noqa: F401
from memenvs.envs.search_forms import FORMS
from memenvs.rollout.scripted import LexicalSearcher, make_policy, play_episode


@pytest.mark.parametrize("memory_mode", ["react", "rewrite", "mem1", "structured"])
def test_it_searches_for_the_question_and_then_answers_from_what_came(memory_mode):
    env = gym.make("MemSearchQA-v0", tasks="world-test", memory_mode=memory_mode).unwrapped
    policy = make_policy("lexical", env)
    observation, info = env.reset(seed=0, options={"task": 0})
    move = env.memory.read(policy(observation, info))
    assert (move.kind, move.content, move.well_formed) == ("search", env.questions[0].question, True)
    observation, _, _, _, info = env.step(policy(observation, info))
    move = env.memory.read(policy(observation, info))
    assert (move.kind, move.well_formed) == ("answer", True)
    assert move.content in observation


@pytest.mark.parametrize("form", FORMS)
def test_it_searches_and_answers_in_every_form(form):
    env, plain = (gym.make("MemSearchQA-v0", tasks="world-test", form=own) for own in (form, "search_r1"))
    metrics = [
        play_episode(one, make_policy("lexical", one), task=3, seed=0)["metrics"] for one in (env, plain)
    ]
    assert (metrics[0]["format"], metrics[0]["searches"]) == (1.0, 1.0)
    assert metrics[0]["f1"] == metrics[1]["f1"]


def test_it_calls_the_tool_once():
    env = gym.make("MemToolQA-v0", tasks="world-test")
    metrics = play_episode(env, make_policy("lexical", env), task=0, seed=0)["metrics"]
    assert (metrics["called"], metrics["turns"]) == (1.0, 2.0)


def test_nothing_is_answered_from_nothing():
    env = gym.make("MemSearchQA-v0", tasks="world-test").unwrapped
    _, info = env.reset(seed=0)
    reply = LexicalSearcher(env)("<information></information>", {**info, "turn": 1})
    assert reply == "<think></think><answer></answer>"


def test_each_of_several_questions_is_answered_from_its_own_best_line():
    env = gym.make("MemSearchQA-v0", tasks="world-test").unwrapped
    env.reset(options={"task": 0})
    two = {"question": "Where was Ada born?; Who built the Tower of Lun?", "answers": (("x",), ("y",))}
    env.questions = [dataclasses.replace(env.questions[0], **two)]
    observation = (
        "<information>Doc 1(Title: Ada) Ada was born in Oxford.\n"
        "Doc 2(Title: Tower of Lun) It was built by Bob Stone.</information>\n\n"
    )
    reply = LexicalSearcher(env)(observation, {"turn": 1})
    assert reply == "<think></think><answer>Oxford; Bob Stone</answer>"


def test_an_environment_that_asks_nothing_is_refused_in_one_line():
    with pytest.raises(ValueError, match="choose one of gold, silent, random_text") as error:
        make_policy("lexical", gym.make("MemSokoban-v0"))
    assert "\n" not in str(error.value)
