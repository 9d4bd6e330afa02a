"""What an adapter returns for a turn: plain data, without anything that a judge may have quoted."""

import json
import math

from memenvs.adapters.common import turn_record
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
