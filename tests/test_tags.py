"""Tags in a reply: where its opening thought ends."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memenvs.core.text import Thoughts, thought_end


@pytest.mark.parametrize(
    ("thoughts", "reply", "left"),
    [
        ("strip", "no thought", "no thought"),
        ("strip", "", ""),
        ("strip", "<think>t</think>m", "m"),
        ("strip", " \n<think>t</think>\n\n m ", "m "),
        ("strip", "t</think>m", "m"),
        ("strip", "<think>t", ""),
        ("strip", "m <think>t</think>", "m <think>t</think>"),
        ("strip", "<think>a</think>b<think>c</think>", "b<think>c</think>"),
        ("strip", "<think><think>a</think>b", "b"),
        ("opened", "t", ""),
        ("opened", "t</think>m", "m"),
        ("opened", "a <think>t</think>m", "m"),
        ("keep", "<think>t</think>m", "<think>t</think>m"),
    ],
)
def test_the_thought_that_opens_a_reply_is_removed(thoughts, reply, left):
    assert reply[thought_end(reply, thoughts) :] == left


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", " ", "\n", "é"])).map("".join))
def test_the_end_of_the_thought_is_inside_every_reply(reply):
    assert all(0 <= thought_end(reply, thoughts) <= len(reply) for thoughts in get_args(Thoughts))
