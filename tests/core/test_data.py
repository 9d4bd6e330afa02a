"""Typed plain data: what is converted, and the one-line error for everything else."""

import numpy as np
import pytest

from memenvs.core.data import Count, checked, decode


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
