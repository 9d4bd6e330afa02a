"""Typed plain data: what is converted, and the one-line error for everything else."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest

from memenvs.core.data import Count, checked, convert, decode


@dataclass
class Part:
    size: Count
    side: Literal["left", "right"] = "left"


@dataclass
class Whole:
    parts: dict[str, list[Part]]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"size": 0}, "it.parts.a[0].size must be a whole number, at least 1, got 0; fix it"),
        ({"size": 1, "side": "up"}, "it.parts.a[0].side must be one of left, right, got 'up'; fix it"),
        ({"side": "left"}, "it.parts.a[0] has no 'size'; fix it"),
        (3, "it.parts.a[0] must be an object, got 3; fix it"),
    ],
)
def test_a_wrong_part_is_named_with_its_place_its_value_and_the_fix(part, said):
    with pytest.raises(ValueError) as error:
        convert({"parts": {"a": [part]}}, Whole, "it", "fix it")
    assert str(error.value) == said


def test_json_with_a_lone_surrogate_is_read_as_python_reads_it():
    assert decode(b'["\\ud800"]', list[str], "it") == ["\ud800"]


@checked
def play(turns: Count, env: object = None, share: float = 0.5) -> int:
    return turns


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"turns": 0}, "turns must be a whole number, at least 1, got 0"),
        ({"turns": True}, "turns must be a whole number, at least 1, got True"),
        ({"turns": np.int64(3)}, r"turns must be .*; pass turns.item\(\)"),
        ({"turns": 1, "share": float("nan")}, "share must be a number, got nan"),
    ],
)
def test_a_checked_function_refuses_what_its_annotations_do_not_allow(arguments, said):
    with pytest.raises(ValueError, match=said):
        play(**arguments)


def test_a_checked_function_takes_objects_and_numpy_floats():
    assert play(2, env=object(), share=np.float64(0.25)) == 2
