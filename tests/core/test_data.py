"""Typed plain data: what is converted, and the one-line error for everything else."""

from typing import Any

import numpy as np
import pytest

from memenvs.core.data import Count, checked, decode


def test_json_with_a_lone_surrogate_is_read_as_python_reads_it():
    assert decode(b'["\\ud800"]', list[str], "it") == ["\ud800"]


@checked
def play(
    turns: Count,
    env: object = None,
    share: float = 0.5,
    clip: tuple[float, ...] = (),
    more: dict[str, Any] | None = None,
) -> int:
    return turns


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"turns": 0}, "turns must be a whole number, at least 1, got 0"),
        ({"turns": True}, "turns must be a whole number, at least 1, got True"),
        ({"turns": np.int64(3)}, r"turns must be .*; pass turns.item\(\)"),
        ({"turns": 1, "share": float("nan")}, "share must be a number, got nan"),
        ({"turns": 1, "clip": (1.0, float("inf"))}, r"clip\[1\] must be a number, got inf"),
    ],
)
def test_a_checked_function_refuses_what_its_annotations_do_not_allow(arguments, said):
    with pytest.raises(ValueError, match=said):
        play(**arguments)


def test_a_checked_function_takes_objects_and_numpy_floats():
    assert play(2, env=object(), share=np.float64(0.25)) == 2


def test_what_is_in_an_object_of_any_arguments_is_left_to_those_who_read_it():
    assert play(2, more={"eps": float("nan")}) == 2


def test_json_may_hold_numbers_that_are_not_finite_and_its_fault_is_another():
    assert decode(b"[NaN]", list[float], "it") != []
    with pytest.raises(ValueError, match=r"it\[1\] must be a number, got 'x'"):
        decode(b'[NaN, "x"]', list[float], "it")
