"""The rewards of the two-turn tool environment, to the digit as recorded."""

import pytest
from reference_values import cases

from memenvs.wrappers.tool_rewards import Exchange, ToolRewardsMethod, form_score

NAMES = {
    "execution": "tool_execution",
    "found": "search_result_answer_presence",
    "present": "answer_presence",
    "exact": "exact_match",
    "form": "xml_format",
    "tags": "xml_tag_usage",
}


def exchanges(messages):
    """Each assistant's message with the user's message right behind it."""
    following = [*messages[1:], {"role": "", "content": ""}]
    return [
        Exchange(message["content"], behind["content"] if behind["role"] == "user" else "")
        for message, behind in zip(messages, following, strict=False)
        if message["role"] == "assistant"
    ]


@pytest.mark.parametrize("case", cases("mt_rl_rewards"), ids=lambda case: case["input"]["name"])
def test_the_six_rewards_are_as_recorded(case):
    parts = ToolRewardsMethod().parts(exchanges(case["input"]["completion"]), case["input"]["answer"])
    assert parts == pytest.approx(
        {ours: case["output"][theirs] for ours, theirs in NAMES.items()}, rel=0, abs=0
    )


def test_the_form_is_never_worth_less_than_a_fifth():
    assert form_score("nothing of it") == 0.2
