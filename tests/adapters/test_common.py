"""What an adapter returns for a turn: plain data, without anything that a judge may have quoted."""

import json
import math

import numpy as np
import pytest

from memenvs.adapters.common import read_draw, turn_record
from memenvs.wrappers import Credit

INFO = {
    "task": "t",
    "turn": 1,
    "context": "append",
    "rewards": {"outcome": 1.0},
    "turn_rewards": [1.0],
    "metrics": {"success": 1.0},
    "privileged": {"answers": [["1623"]]},
}


def test_a_reason_is_told_without_what_it_quotes():
    reason = "unreadable: not an object alone but 'The answer is 1623, so'"
    shown = turn_record({**INFO, "credits": {"judge": [Credit(0, math.nan, reason=reason)]}})
    (credit,) = shown["credits"]["judge"]
    assert (credit["turn"], credit["value"], credit["reason"]) == (0, None, "unreadable")
    assert "1623" not in json.dumps(shown)


def test_without_methods_there_are_no_credits():
    assert turn_record(INFO) == {name: value for name, value in INFO.items() if name != "privileged"}


@pytest.mark.parametrize(
    ("row", "seed", "task"),
    [
        ({"task": 3}, 3, 3),  # the task's number seeds what else is drawn, so that a group shares it
        ({"seed": 7}, 7, None),
        ({"task": np.int64(3), "seed": np.int64(7)}, 7, 3),
        ({"task": None, "seed": 7}, 7, None),
    ],
)
def test_a_row_names_what_its_group_plays(row, seed, task):
    assert read_draw(row) == (seed, task)


def test_a_row_that_names_neither_a_task_nor_a_seed_is_refused():
    with pytest.raises(ValueError, match="columns index"):
        read_draw({"index": 3})
