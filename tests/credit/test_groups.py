"""Credit inside a group: numbers worked out by hand, and what holds for any numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_values import cases

from memenvs.credit import (
    all_equal,
    group_normalize,
    grpo,
    infomem_bonus,
    mempo,
    rloo,
    tamtrl,
    tamtrl_rewards,
    whiten,
)

close = np.testing.assert_allclose
number = st.floats(-100, 100).map(lambda x: round(x, 3))
group = st.lists(number, min_size=2, max_size=8)
rollouts = st.lists(st.lists(number, min_size=1, max_size=5), min_size=1, max_size=6)


@pytest.mark.parametrize("case", cases("mt_grpo_normalized_advantages"))
def test_groups_are_normalised_as_recorded(case):
    rewards, size = case["input"]["rewards"], case["input"]["num_generations"]
    recorded = np.array([float(a) for a in case["output"]["advantages"]])
    for start in range(0, len(rewards), size):
        members = slice(start, start + size)
        # In float32 the mean of equal rewards is not quite one of them, and eps = 1e-4 blows that up.
        atol = 1e-5 if np.ptp(rewards[members]) else 1e-3
        close(group_normalize(rewards[members]), recorded[members], atol=atol, rtol=1e-4)


def test_a_group_is_normalised_by_hand():
    # mean 2, deviations -1, 0, 1, std with ddof 1 is 1: divided by 1 + 1
    close(group_normalize([1, 2, 3], eps=1.0), [-0.5, 0.0, 0.5])


@given(group, number, st.floats(0.01, 100))
def test_shift_and_scale_do_not_change_a_normalised_group(values, shift, scale):
    normal = group_normalize(values, eps=0.0)
    close(group_normalize(np.array(values) * scale + shift, eps=0.0), normal, atol=1e-6)


@pytest.mark.parametrize("values", [[1e-320, 0.0], [1e300, -1e300], [1e-300, 2e-300]])
def test_tiny_and_huge_values_give_finite_advantages(values):
    assert np.isfinite(group_normalize(values, eps=0.0)).all()


def test_rounding_is_no_difference_and_a_small_one_is():
    assert all_equal([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1])
    assert all_equal([0.1 + 0.2 - 0.3, 0.0])  # 5.6e-17 and 0
    assert all_equal([1e6 * (0.1 + 0.2), 1e6 * 0.3])
    assert all_equal([])
    assert all_equal([np.nan, 2.0, np.nan])
    assert not all_equal([0.5, 0.5 + 1e-7])
    assert not all_equal([0.0, 1e-9])


@pytest.mark.parametrize("scale", [1.0, 1e6, -1e-3])
def test_values_that_differ_by_rounding_get_exactly_zero(scale):
    values = [scale * (0.1 + 0.2 + 0.3), scale * (0.3 + 0.2 + 0.1), np.nan]
    assert group_normalize(values, eps=0.0).tolist() == [0.0] * 3
    assert grpo(values, scale="none").tolist() == [0.0] * 3
    assert rloo(values).tolist() == [0.0] * 3
    assert mempo(values[:2], [values, values[:1]]).memory[0].tolist() == [0.0] * 3
    assert infomem_bonus(values, [True, True, True]).tolist() == [0.0] * 3
    assert whiten(values[:2], [True, True]).tolist() == [0.0, 0.0]


def test_minmax_does_not_turn_rounding_into_credit():
    signals = [0.6065306597126336, 0.6065306597126333]
    close(tamtrl_rewards([signals], [1.0])[0], [0.0, 0.0])
    # beside another value both are at the top
    close(tamtrl_rewards([[*signals, 0.2]], [1.0])[0], [1.0, 1.0, 0.0])


def test_what_was_not_measured_is_left_out_and_gets_zero():
    # the others as if alone: deviations -1, 1, std (ddof 0) 1
    close(group_normalize([1, np.nan, 3], eps=0.0, ddof=0), [-1, 0, 1])


def test_no_more_values_than_degrees_of_freedom_have_no_spread():
    assert group_normalize([1, 3], ddof=2).tolist() == [0.0, 0.0]


def answered(*outcomes):
    """What answers are paid behind two memories and behind one."""
    return [[np.nan] * (2 - i) + [r] for i, r in enumerate(outcomes)]


def test_tamtrl_spends_the_outcome_by_the_teachers_view():
    # batch min 0.1, max 0.5: p^ = 0, 1 | 0.5; the answer turn takes r itself
    rewards = tamtrl_rewards([[0.1, 0.5, 9.0], [0.3, 9.0]], [1.0, 0.4], fixed=answered(1.0, 0.4))
    close(rewards[0], [0.0, 1.0, 1.0])
    close(rewards[1], [0.2, 0.4])


def test_tamtrl_normalises_over_all_turns_of_a_task():
    # R = 0, 1, 1 | 0, 0: mean 0.4, squares .16 + .36 + .36 + .16 + .16 = 1.2, std = sqrt(1.2 / 4)
    advantages = tamtrl([[0.1, 0.5, 0.0], [0.3, 0.0]], [1.0, 0.0], fixed=answered(1.0, 0.0), eps=0.0)
    std = 0.3**0.5
    close(advantages[0], [-0.4 / std, 0.6 / std, 0.6 / std])
    close(advantages[1], [-0.4 / std, -0.4 / std])


def test_tamtrl_takes_the_extremes_over_the_batch_and_the_mean_over_a_task():
    # over the batch p^ = 0, 1 | 0.5, 0.5; task b has no variance
    advantages = tamtrl([[0.0, 1.0], [0.5, 0.5]], [1.0, 1.0], tasks=["a", "b"], eps=0.0, ddof=0)
    close(advantages[0], [-1.0, 1.0])
    close(advantages[1], [0.0, 0.0])


def test_tamtrl_can_add_instead():
    close(tamtrl_rewards([[0.0, 1.0, 0.0]], [0.5], fixed=answered(0.5), combine="plus")[0], [0.5, 1.5, 0.5])


def test_a_memory_that_could_not_be_measured_gets_no_credit_and_moves_no_other():
    # p^ = 0, -, 1: R = 0, -, 1 and r = 1; mean 2/3, std (ddof 1) sqrt(1/3) over the three that are known
    (advantages,) = tamtrl([[0.2, np.nan, 0.6, 0.0]], [1.0], fixed=[[np.nan] * 3 + [1.0]], eps=0.0)
    close(advantages, [-2 / 3**0.5, 0.0, 1 / 3**0.5, 1 / 3**0.5])


def test_a_penalty_is_the_same_at_every_turn_whatever_the_teacher_thought():
    # p^ = 0, 1 | 1, 0: a failed rollout has 0 by eq. 6, and its penalty of -1 behind it
    rewards = tamtrl_rewards([[0.2, 0.6], [0.6, 0.2]], [1.0, 0.0], penalties=[-0.5, -1.0])
    close(rewards, [[-0.5, 0.5], [-1.0, -1.0]])


def test_tamtrl_without_minmax_uses_the_probabilities_themselves():
    close(tamtrl_rewards([[0.2, 0.4]], [0.5], minmax=False)[0], [0.1, 0.2])


@given(rollouts, number, st.floats(0.1, 10))
def test_tamtrls_rewards_do_not_see_the_teachers_shift_and_scale(teacher, shift, scale):
    outcomes = np.ones(len(teacher))
    moved = [np.array(p) * scale + shift for p in teacher]
    for ours, theirs in zip(tamtrl_rewards(moved, outcomes), tamtrl_rewards(teacher, outcomes), strict=True):
        close(ours, theirs, atol=1e-6)


def test_infomem_keeps_the_raw_gain_of_the_only_success():
    close(infomem_bonus([0.7, 9.0], [True, False]), [0.7, 0.0])
    close(infomem_bonus([0.5], [True]), [0.5])


@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        ({}, [-1.0, 1.0, 0.0, 0.0]),
        ({"side": "wrong"}, [0.0, 0.0, -1.0, 1.0]),
        ({"side": "both"}, [-1.0, 1.0, -1.0, 1.0]),
        ({"normalize": False}, [1.0, 3.0, 0.0, 0.0]),
    ],
)
def test_infomems_switches_choose_the_side_and_the_scale(switches, expected):
    bonus = infomem_bonus([1, 3, 5, 9], [True, True, False, False], eps=0.0, **switches)
    close(bonus, expected)


def test_mempo_normalises_trajectories_and_memories_apart():
    # r = 0, 1: mean 0.5, std (ddof 0) 0.5;  R = 1, 2, 3: mean 2, std sqrt(2 / 3)
    advantages = mempo([0, 1], [[1, 2], [3]], eps=0.0, ddof=0)
    close(advantages.trajectory, [-1.0, 1.0])
    close(advantages.memory[0], [-(1.5**0.5), 0.0])
    close(advantages.memory[1], [1.5**0.5])


def test_mempo_gives_a_turn_without_a_memory_nothing():
    # without it R = 1, 3: mean 2, std (ddof 0) 1
    close(mempo([0, 1], [[1, np.nan], [3]], eps=0.0, ddof=0).memory[0], [-1.0, 0.0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: tamtrl_rewards([[1.0]], [1.0], combine="sum"),
        lambda: infomem_bonus([1.0], [True], side="left"),
    ],
)
def test_an_unknown_choice_is_refused(call):
    with pytest.raises(ValueError, match=r"must be one of .*, got"):
        call()
