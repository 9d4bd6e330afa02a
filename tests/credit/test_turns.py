"""Advantages of rollouts and turns: recorded values, numbers by hand, what holds for any numbers."""

from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_values import cases

from memenvs.credit import combine_turns, group_normalize, grpo, igpo, mt_grpo, mt_rloo, rememr1, rloo, tamtrl

close = np.testing.assert_allclose
number = st.floats(-100, 100).map(lambda x: round(x, 3))
rollouts = st.lists(st.lists(number, min_size=1, max_size=4), min_size=1, max_size=7)


def _recorded(case):
    """The rewards of rollouts and their advantages on their first written tokens, in verl's own layout."""
    given_, mask = case["input"], np.array(case["input"]["response_mask"], bool)
    return np.sum(given_["token_level_rewards"], axis=1), given_["index"], mask


def close_but_alone(ours, recorded, groups):
    """Equal where a group has several rollouts; one without another has 0 here, and its reward in verl."""
    several = np.array([list(groups).count(group) > 1 for group in groups])
    close(ours[several], np.array(recorded)[several], atol=1e-5, rtol=1e-4)
    assert not ours[~several].any()


@pytest.mark.parametrize("case", cases("verl_grpo"))
@pytest.mark.parametrize(("scale", "key"), [("std", "norm_std=True"), ("none", "norm_std=False")])
def test_grpo_gives_the_recorded_advantages(case, scale, key):
    rewards, groups, mask = _recorded(case)
    ours = grpo(rewards, groups, eps=case["input"]["epsilon"], scale=scale)
    close_but_alone(ours[:, None] * mask, case["output"][key], groups)


@pytest.mark.parametrize("case", cases("verl_rloo"))
def test_rloo_gives_the_recorded_advantages(case):
    rewards, groups, mask = _recorded(case)
    close_but_alone(rloo(rewards, groups)[:, None] * mask, case["output"], groups)


class Assigned(NamedTuple):
    """One rollout of a recorded case."""

    ends: list[int]  # of its turns, by the mask
    before: int  # how many turns come before the tool's first result; 0: there is none
    mask: np.ndarray  # (T,) what the policy wrote
    own: float  # A^I
    outcome: float  # A^O
    merged: float  # the advantage of the merged reward
    coef: float  # what the code multiplies A^I with
    tokens: np.ndarray  # (T,) the advantages that the code gives


def _assigned():
    """The rollouts of the recorded cases, one by one."""
    for case in cases("mt_grpo_assign_advantages"):
        taken, given_ = case["input"], case["output"]
        for i, (mask, messages) in enumerate(
            zip(taken["completion_mask"], taken["completion_messages"], strict=True)
        ):
            ends = [t for t, wrote in enumerate(mask) if wrote and not any(mask[t + 1 : t + 2])]
            result = max(given_["result_segment_indices"][i], 0)
            yield Assigned(
                ends,
                sum(message["role"] == "assistant" for message in messages[:result]),
                np.array(mask, bool),
                taken["turn_advantages"][i],
                taken["outcome_advantages"][i],
                taken["combined_advantages"][i],
                taken["turn_advantage_coef"],
                np.array(given_["token_advantages"][i]),
            )


def _tokens(rollout, turns):
    owned = np.diff(rollout.ends, prepend=-1)
    return np.pad(np.repeat(turns, owned), (0, len(rollout.mask) - sum(owned)))[rollout.mask]


ASSIGNED = list(_assigned())


@pytest.mark.parametrize("rollout", [r for r in ASSIGNED if 0 < r.before < len(r.ends)])
def test_turns_are_assigned_as_the_papers_say_and_as_recorded_at_coefficient_1(rollout):
    # The code has one A^I, of all turns up to the tool's first result: it stands at the last of them, and
    # eq. 12 hands it to those before.
    before, after = rollout.before - 1, len(rollout.ends) - rollout.before
    turns = combine_turns([np.nan] * before + [rollout.own] + [np.nan] * after, rollout.outcome)
    ours = _tokens(rollout, turns)
    # The code adds coef * A^I where we, as the papers, have A^I + alpha * A^O; here alpha = 1.
    more = _tokens(rollout, [(rollout.coef - 1) * rollout.own] * rollout.before + [0.0] * after)
    close(ours + more, rollout.tokens[rollout.mask], atol=1e-5)


@pytest.mark.parametrize("rollout", [r for r in ASSIGNED if r.before == 0])
def test_a_rollout_without_a_result_has_its_outcome_where_the_code_falls_back_to_merged_rewards(rollout):
    ours = _tokens(rollout, combine_turns([np.nan] * len(rollout.ends), rollout.outcome))
    close(ours, rollout.outcome)
    close(rollout.tokens[rollout.mask], rollout.merged, atol=1e-5)


@pytest.mark.parametrize("rollout", [r for r in ASSIGNED if r.before and r.before == len(r.ends)])
def test_a_rollout_truncated_after_its_result_keeps_its_turn_advantage_if_given_the_missing_turn(rollout):
    before = [np.nan] * (rollout.before - 1)
    turns = combine_turns([*before, rollout.own, np.nan], rollout.outcome)[:-1]
    more = (rollout.coef - 1) * rollout.own
    close(_tokens(rollout, turns) + more, rollout.tokens[rollout.mask], atol=1e-5)


def test_rloo_compares_two_rollouts_with_each_other_and_three_with_the_mean_of_two():
    close(rloo([1, 5, 2, 4, 9], ["a", "a", "b", "b", "b"]), [-4, 4, 2 - 6.5, 4 - 5.5, 9 - 3])


def test_grpo_compares_inside_each_group_in_any_order():
    # a: 0, 2: mean 1, std (ddof 1) sqrt(2);  b: 5, 5: no variance
    close(grpo([0, 5, 2, 5], ["a", "b", "a", "b"], eps=0.0), [-(0.5**0.5), 0.0, 0.5**0.5, 0.0])


@pytest.mark.parametrize("advantage", [grpo, rloo, lambda r: grpo(r, scale="none")])
@given(value=number, size=st.integers(0, 8))
def test_equal_rewards_give_exact_zeros(advantage, value, size):
    assert advantage([value] * size).tolist() == [0.0] * size


@pytest.mark.parametrize("advantage", [grpo, rloo, lambda r: grpo(r, scale="none")])
def test_an_unscored_rollout_is_left_out_and_gets_zero(advantage):
    known = advantage([1.0, 4.0])
    close(advantage([1.0, np.nan, 4.0]), [known[0], 0.0, known[1]])


@given(st.lists(st.tuples(number, st.integers(0, 2)), min_size=1, max_size=12), st.data())
def test_permuting_rollouts_permutes_their_advantages(pairs, data):
    order = data.draw(st.permutations(range(len(pairs))))
    rewards, groups = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
    for advantage in (grpo, rloo):
        close(advantage(rewards[order], groups[order]), advantage(rewards, groups)[order], atol=1e-8)


def test_a_turn_has_the_advantages_of_all_turns_after_it():
    # Turns 1, 2, 3: 1 against 0 -> 1/sqrt 2; outcomes 1, 0 -> 1/sqrt 2. Sums of 4, 3, 2, 1 of them.
    first, second = mt_grpo([[1, 1, 1, 0], [0] * 4], [1, 0], eps=0.0)
    close(first, np.array([4, 3, 2, 1]) / 2**0.5)
    close(second, -first)


def test_alpha_discounts_what_comes_later_by_the_turn():
    # Each A^I and A^O is 1 (ddof 0): 1 + 1/2 + 1/4 at the first of three turns
    close(mt_grpo([[2, 2, 0], [0, 0, 0]], [2, 0], alpha=0.5, eps=0.0, ddof=0)[0], [1.75, 1.5, 1.0])


def test_alpha_discounts_the_outcome_from_the_last_turn_of_its_own_rollout():
    # No turn pays; outcomes 2, 0 -> 1, -1. The second ends a turn sooner.
    long, short = mt_grpo([[0, 0, 0], [0, 0]], [2, 0], alpha=0.5, eps=0.0, ddof=0)
    close(long, [0.25, 0.5, 1.0])
    close(short, [-0.5, -1.0])


def test_going_on_is_compared_with_stopping():
    # Four go on for 0.7, four stop: mean 0.35, std (ddof 1) 0.35 sqrt(8 / 7)
    far = (7 / 8) ** 0.5
    advantages = mt_grpo([[0.7, 0]] * 4 + [[0.0]] * 4, [0.0] * 8, eps=0.0)
    close(np.concatenate(advantages), [far, 0.0] * 4 + [-far] * 4)


def test_a_rollout_that_ended_counts_as_zero_at_every_turn_that_it_did_not_play():
    # Turn 1: 4, 4, 0 (the third stops there, its 7 is no turn reward): less 8/3. Turn 2: 3, 0, 0: less 1.
    advantages = mt_grpo([[4, 3, 1], [4, 9], [7]], [1, 1, 1], scale="none")
    close(advantages[0], [4 / 3 + 2, 2, 0])
    close(advantages[1], [4 / 3 - 1, -1])
    close(advantages[2], [-8 / 3 - 1])


def test_skip_compares_a_turn_with_those_that_have_one_after_it():
    # Turn 1: 0, 2 (the third ends there) -> -1, 1. Turn 2: the first alone -> 0. Equal outcomes -> 0.
    advantages = mt_grpo([[0, 5, 1], [2, 3], [7]], [1, 1, 1], ended="skip", eps=0.0, ddof=0)
    close(np.concatenate(advantages), [-1, 0, 0, 1, 0, 0])


def test_skip_never_learns_whether_to_continue():
    # The mean over those that went on takes away what going on pays.
    advantages = mt_rloo([[0.7, 0]] * 4 + [[0.0]] * 4, [0.0] * 8, ended="skip")
    assert np.concatenate(advantages).tolist() == [0.0] * 12


@given(rewards=st.lists(st.lists(number, max_size=4), min_size=2, max_size=7), data=st.data())
def test_leave_one_out_at_the_first_turn_is_that_of_the_whole_return(rewards, data):
    # What an early end counts as zero makes the sum of all turns a baseline that no action moves.
    outcomes = data.draw(st.lists(number, min_size=len(rewards), max_size=len(rewards)))
    turns = [[*earned, 0.0] for earned in rewards]
    returns = [sum(earned) + outcome for earned, outcome in zip(rewards, outcomes, strict=True)]
    close([float(a[0]) for a in mt_rloo(turns, outcomes)], rloo(returns), atol=1e-8)


def test_mt_grpo_gives_a_turn_without_a_reward_the_outcome_alone():
    # Turn 1: 0 and 2 -> -1, 1; the NaN -> 0. Outcomes 0, 3, 6: mean 3, std sqrt(6) (ddof 0)
    advantages = mt_grpo([[0, 0], [np.nan, 0], [2, 0]], [0, 3, 6], eps=0.0, ddof=0)
    far = 3 / 6**0.5
    close(advantages, [[-1 - far, -far], [0, 0], [1 + far, far]])


def test_mt_grpo_keeps_groups_apart():
    # a: turns 0, 2, outcomes 0, 2;  b: turns 5, 5, outcomes 1, 3; means and ddof 0: all -1, 1 or 0
    advantages = mt_grpo(
        [[0, 0], [5, 0], [2, 0], [5, 0]], [0, 1, 2, 3], groups=["a", "b", "a", "b"], eps=0.0, ddof=0
    )
    close(advantages, [[-2, -1], [-1, -1], [2, 1], [1, 1]])


def test_mt_grpo_without_a_scale_takes_the_means_only():
    close(mt_grpo([[0, 0], [4, 0]], [0, 1], scale="none"), [[-2.5, -0.5], [2.5, 0.5]])


def test_mt_rloo_leaves_a_rollout_out_of_both_baselines():
    # Turn 1: 0, 4 -> -4, 4; outcomes 0, 1 -> -1, 1; alpha 2
    close(mt_rloo([[0, 0], [4, 0]], [0, 1], alpha=2.0), [[-6, -1], [6, 1]])


@given(st.lists(number, min_size=1, max_size=8))
def test_mt_grpo_of_one_turn_is_grpo(outcomes):
    advantages = mt_grpo([[0.0]] * len(outcomes), outcomes)
    close(np.concatenate(advantages), group_normalize(outcomes))


ADVANTAGES = [mt_grpo, mt_rloo, partial(mt_grpo, ended="skip"), partial(mt_rloo, ended="skip")]


@pytest.mark.parametrize("advantage", [*ADVANTAGES, tamtrl, igpo, rememr1])
@given(turns=rollouts, data=st.data())
def test_permuting_rollouts_permutes_turn_advantages(advantage, turns, data):
    outcomes = data.draw(st.lists(number, min_size=len(turns), max_size=len(turns)))
    order = data.draw(st.permutations(range(len(turns))))
    straight = advantage(turns, outcomes)
    permuted = advantage([turns[i] for i in order], [outcomes[i] for i in order])
    for place, i in enumerate(order):
        close(permuted[place], straight[i], atol=1e-8)


@pytest.mark.parametrize("advantage", ADVANTAGES)
@given(turns=rollouts, last=number, outcome=number)
def test_what_the_last_turn_earned_is_not_read(advantage, turns, last, outcome):
    outcomes = np.linspace(outcome, outcome + 1, len(turns))
    changed = [[*rewards[:-1], last] for rewards in turns]
    for ours, theirs in zip(advantage(changed, outcomes), advantage(turns, outcomes), strict=True):
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_turns_keep_their_number(advantage):
    assert [len(turns) for turns in advantage([[1, 2, 3], [], [4]], [1, 2, 3])] == [3, 0, 1]
    assert advantage([], []) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: grpo([1.0], scale="var"),
        lambda: mt_grpo([[1.0]], [1.0], ended="drop"),
        lambda: mt_grpo([[1.0]], [1.0], alpha=-0.5),
        lambda: mt_rloo([[1.0]], [1.0], alpha=float("nan")),
    ],
)
def test_what_makes_no_sense_is_refused(call):
    with pytest.raises(ValueError, match="got"):
        call()
