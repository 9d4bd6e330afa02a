"""The policy without a model on every environment that asks a question: it looks before it answers."""

import dataclasses

import gymnasium as gym
import pytest

import memenvs  # noqa: F401
from memenvs.envs.search_forms import FORMS
from memenvs.rollout.collect import collect
from memenvs.rollout.scripted import lexical_searcher, make_policy
from memenvs.tasks.metrics import extract_answer


def play(env_id, task, **arguments):
    """An episode."""
    (episode,) = collect(env_id, "lexical", [0], tasks=[task], env_args={"tasks": "world-test", **arguments})
    return episode


@pytest.mark.parametrize("memory_mode", ["react", "rewrite", "mem1", "structured"])
def test_it_searches_for_the_question_and_then_answers_from_what_came(memory_mode):
    episode = play("MemSearchQA-v0", 0, memory_mode=memory_mode)
    first, last = episode.turns
    assert f"<search>{first.before['privileged']['question']}</search>" in first.action
    assert extract_answer(last.action, "tag") in last.observation
    assert episode.metrics["format"] == 1.0


@pytest.mark.parametrize("form", FORMS)
def test_it_searches_and_answers_in_every_form(form):
    metrics, plain = (play("MemSearchQA-v0", 3, form=name).metrics for name in (form, "search_r1"))
    assert (metrics["format"], metrics["searches"]) == (1.0, 1.0)
    assert metrics["f1"] == plain["f1"]


def test_it_calls_the_tool_once():
    metrics = play("MemToolQA-v0", 0).metrics
    assert (metrics["called"], metrics["turns"]) == (1.0, 2.0)


def test_nothing_is_answered_from_nothing():
    env = gym.make("MemSearchQA-v0", tasks="world-test").unwrapped
    _, info = env.reset(seed=0)
    reply = lexical_searcher(env)("<information></information>", {**info, "turn": 1})
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
    reply = lexical_searcher(env)(observation, {"turn": 1})
    assert reply == "<think></think><answer>Oxford; Bob Stone</answer>"


def test_an_environment_that_asks_nothing_is_refused_in_one_line():
    with pytest.raises(ValueError, match="choose one of gold, silent, random_text") as error:
        make_policy("lexical", gym.make("MemSokoban-v0"))
    assert "\n" not in str(error.value)
