"""Tags in a reply: where the thought that opens it ends."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memenvs.core.text import Thoughts, thought_end


@pytest.mark.parametrize(
    ("reply", "left"),
    [
        ("no thought", "no thought"),
        ("", ""),
        ("<think>t</think>m", "m"),
        (" \n<think>t</think>\n\n m ", "m "),
        ("t</think>m", "m"),
        ("</think>m", "m"),
        ("<think>t", ""),
        ("m <think>t</think>", "m <think>t</think>"),
        ("m <think>t", "m <think>t"),
        ("<think>a</think>b<think>c</think>", "b<think>c</think>"),
        ("<think><think>a</think>b", "b"),
    ],
)
def test_the_thought_that_opens_a_reply_is_removed(reply, left):
    assert reply[thought_end(reply) :] == left


@pytest.mark.parametrize(("reply", "left"), [("t", ""), ("t</think>m", "m"), ("a <think>t</think>m", "m")])
def test_where_the_chat_template_opens_the_thought_a_reply_begins_inside_it(reply, left):
    assert reply[thought_end(reply, "opened") :] == left


def test_a_kept_thought_ends_nowhere():
    assert thought_end("<think>t</think>m", "keep") == 0


@given(st.lists(st.sampled_from(["<think>", "</think>", "a", " ", "\n", "é"])).map("".join))
def test_the_end_of_the_thought_is_inside_every_reply(reply):
    assert all(0 <= thought_end(reply, thoughts) <= len(reply) for thoughts in get_args(Thoughts))
