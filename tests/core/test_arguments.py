"""Arguments as name=value: how they are parsed, and which the called signature refuses."""

import json
import re
import shlex
from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import pytest

import memenvs  # noqa: F401  # registers the environments
from memenvs.core.arguments import (
    Parameter,
    check_arguments,
    check_env_arguments,
    env_parameters,
    parameters_of,
    read_arguments,
    shell_form,
)


def test_a_value_is_json_where_it_reads_as_json_and_else_a_text():
    texts = ["k=3", "final_answer_turn=false", "tasks=a=b", '{"form": "research"}', "split=null", 'name="7"']
    assert read_arguments(texts) == {
        "k": 3,
        "final_answer_turn": False,
        "tasks": "a=b",
        "form": "research",
        "split": None,
        "name": "7",
    }


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "[" * 100_000, "{", "False", "1_000", ""])
def test_what_json_does_not_know_is_a_text(text):
    assert read_arguments([f"name={text}"]) == {"name": text}


@pytest.mark.parametrize(
    "texts", [["k"], ["=3"], ["{"], ['{"a": NaN}'], ["--k=3"], ["[1]"], [""], ["k=1", '{"k": 2}']]
)
def test_what_is_no_argument_or_given_twice_is_refused_with_the_flag(texts):
    with pytest.raises(ValueError, match="--env-args"):
        read_arguments(texts, "--env-args")


@pytest.mark.parametrize(
    ("env", "arguments", "named"),
    [
        ("MemChunkQA-v0", {"chunksize": 600}, "did you mean chunk_size?"),
        ("MemSearchQA-v0", {"final_answer_turn": "no"}, "'no'"),
        ("MemSearchQA-v0", {"form": "re"}, "search_r1, research, deep_researcher"),
        ("MemChunkQA-v0", {"chunk_size": True}, "at least 1"),
        ("MemChunkQA-v0", {"chunk_size": "x" * 10_000}, "chunk_size"),
        ("MemChunkQA-v0", {"n_documents": "None"}, "null"),
        ("MemChunkQA-v0", {"tasks": 600}, "tasks='\"600\"'"),
        ("MemChunkQA-v0", {"template": {"read": 1}}, "template"),
        ("MemSokobanImage-v0", {"max_turns": "x"}, "max_turns"),
    ],
)
def test_an_argument_that_an_environment_does_not_take_is_refused(env, arguments, named):
    with pytest.raises(ValueError, match=re.escape(named)) as error:
        check_env_arguments(env, arguments)
    assert len(str(error.value)) < 500


def test_every_environment_takes_its_own_defaults():
    ids = [name for name in gym.registry if name.startswith("Mem")]
    assert len(ids) >= 7
    for name in ids:
        check_env_arguments(name, {p.name: p.default for p in env_parameters(name)})


def test_defaults_of_the_registration_stand_before_those_of_the_class():
    defaults = {p.name: p.default for p in env_parameters("MemNIAH-v0")}
    assert (defaults["tasks"], defaults["chunk_size"]) == ("niah", 5000)


def test_a_default_is_read_back_as_it_is_written_for_a_shell():
    for name in [name for name in gym.registry if name.startswith("Mem")]:
        for parameter in env_parameters(name):
            (text,) = shlex.split(shell_form(parameter))
            assert read_arguments([text]) == json.loads(json.dumps({parameter.name: parameter.default}))


@pytest.mark.parametrize(
    "value", ["7", "null", "a b", '"', "it's", "", "{", "[1]", "NaN", 1.5, True, None, {"a": ["b"]}]
)
def test_any_plain_value_is_read_back_as_it_is_written(value):
    (text,) = shlex.split(shell_form(Parameter("name", Any, value)))
    assert read_arguments([text]) == {"name": value}


def test_an_environment_that_is_not_registered_is_named():
    with pytest.raises(gym.error.NameNotFound, match="MemSokobn"):
        check_env_arguments("MemSokobn-v0", {})


class Base:
    def __init__(self, size: int, name: str = "x") -> None: ...


class Derived(Base):
    def __init__(self, tile: float = 1.0, **kwargs: Any) -> None: ...


class Open:
    def __init__(self, tile: int = 1, **kwargs: Any) -> None: ...


def test_keywords_that_a_class_passes_on_are_those_of_its_base():
    assert parameters_of(Derived) == [
        Parameter("tile", float, 1.0),
        Parameter("size", int),
        Parameter("name", str, "x"),
    ]


def test_a_class_that_takes_any_name_refuses_none():
    assert parameters_of(Open) is None
    check_arguments("Open", {"whatever": 1}, parameters_of(Open))


def test_a_missing_argument_is_named():
    with pytest.raises(ValueError, match="size"):
        check_arguments("Derived", {"tile": 2}, parameters_of(Derived))


def test_a_function_is_checked_as_a_class_is():
    def make(kind: Literal["a", "b"], sizes: Sequence[int] = ()) -> None: ...

    check_arguments("make", {"kind": "a", "sizes": [1, 2]}, parameters_of(make))
    with pytest.raises(ValueError, match="kind"):
        check_arguments("make", {"kind": "c"}, parameters_of(make))
