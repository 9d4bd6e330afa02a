"""Checks of arguments: what each lets through, and the one line it raises for the rest."""

import math

import numpy as np
import pytest

from memenvs.core.checks import (
    Range,
    check_choice,
    check_flags,
    check_numbers,
    check_shapes,
    check_whole,
    is_whole,
    one_line,
)


@pytest.mark.parametrize(
    ("bounds", "inside", "outside"),
    [
        (Range(), [0, -1e300, 10**400], [math.nan, math.inf, True, "1", None]),
        (Range(0), [0, 0.5], [-1e-9]),
        (Range(0, 1), [0, 1.0], [-0.1, 1.1]),
        (Range(above=0, most=1), [1e-9, 1], [0, 1.1]),
        (Range(0, below=1), [0, 0.999], [1, 1.0]),
    ],
)
def test_a_range_holds_what_is_finite_and_inside(bounds, inside, outside):
    assert all(map(bounds.holds, inside))
    assert not any(map(bounds.holds, outside))


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (Range(), "beta must be a finite number, got nan"),
        (Range(0), "beta must be at least 0, got nan"),
        (Range(0.5, 1), "beta must be at least 0.5 and at most 1, got nan"),
        (Range(above=0, below=1), "beta must be above 0 and below 1, got nan"),
    ],
)
def test_a_number_outside_is_refused_with_its_bounds_and_value(bounds, said):
    check_numbers(bounds, beta=0.5)
    with pytest.raises(ValueError, match=f"^{said}$"):
        check_numbers(bounds, beta=math.nan)


@pytest.mark.parametrize("value", [0, 1.0, True, "1", None])
def test_what_is_no_whole_number_within_the_bounds_is_refused(value):
    with pytest.raises(ValueError, match=f"^k must be a whole number, at least 1, got {value!r}$"):
        check_whole(k=value)


def test_an_integer_of_numpy_is_refused_with_the_mend_as_json_cannot_hold_it():
    with pytest.raises(ValueError, match=r"got .*3.*; pass int\(k\)$"):
        check_whole(k=np.int64(3))


def test_the_first_wrong_value_of_several_is_named():
    with pytest.raises(ValueError, match=r"^b must be"):
        check_whole(a=1, b=0, c=-1)


def test_a_choice_that_there_is_not_is_refused_with_those_there_are():
    check_choice("side", "left", ("left", "right"))
    with pytest.raises(ValueError, match=r"^side must be one of left, right, got 'up'$"):
        check_choice("side", "up", ("left", "right"))


@pytest.mark.parametrize("value", [0, 1, "no", None])
def test_a_flag_is_true_or_false_and_nothing_like_it(value):
    check_flags(once=False)
    with pytest.raises(ValueError, match=f"^once must be True or False, got {value!r}$"):
        check_flags(once=value)


def test_integers_of_python_and_numpy_are_whole_and_bools_are_not():
    assert [is_whole(value) for value in (1, np.int64(1), True, np.True_, 1.0)] == [True, True] + [False] * 3


def test_parts_of_other_shapes_are_refused_with_all_of_them():
    with pytest.raises(ValueError, match=r"got values \(2,\), mask \(1, 2\)$"):
        check_shapes(values=np.zeros(2), mask=np.zeros((1, 2)))


def test_an_error_of_many_lines_is_told_in_one():
    assert one_line(ValueError("a\n  b\tc ")) == "a b c"
