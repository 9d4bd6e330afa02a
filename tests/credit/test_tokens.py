"""Credit of tokens: reward placement, GAE, whitening, the penalty of long replies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference_values import cases

from memenvs.credit import (
    bi_level_gae,
    gae,
    masked_mean,
    masked_var,
    overlong_penalty,
    place_rewards,
    turn_gae,
    whiten,
)
from memenvs.credit.tokens import BLOCK, CACHED

close = np.testing.assert_allclose


def plain_gae(rewards, values, mask, gamma, lam):
    """The equation, token by token."""
    advantages = np.zeros(np.shape(rewards))
    for b in range(len(rewards)):
        following, advantage = 0.0, 0.0
        for t in reversed(np.flatnonzero(mask[b])):
            advantage = rewards[b, t] + gamma * following - values[b, t] + gamma * lam * advantage
            following, advantages[b, t] = values[b, t], advantage
    return advantages


def draw(rng, rows, steps, share=0.6):
    return rng.normal(size=(rows, steps)), rng.normal(size=(rows, steps)), rng.random((rows, steps)) < share


@pytest.mark.parametrize("case", [case for case in cases("verl_gae") if "raises" not in case["output"]])
def test_gae_gives_the_recorded_returns_and_whitened_advantages(case):
    taken, mask = case["input"], np.array(case["input"]["response_mask"], bool)
    advantages = gae(taken["token_level_rewards"], taken["values"], mask, taken["gamma"], taken["lam"])
    returns = advantages + np.array(taken["values"])
    # What was not written is 0 in ours, and repeats the token after it in theirs.
    close(returns[mask], np.array(case["output"]["returns"])[mask], atol=1e-5, rtol=1e-4)
    close(whiten(advantages, mask)[mask], np.array(case["output"]["advantages"])[mask], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("case", [case for case in cases("verl_gae") if "raises" in case["output"]])
def test_gae_answers_where_the_original_could_not_whiten(case):
    taken = case["input"]
    ours = gae(taken["token_level_rewards"], taken["values"], taken["response_mask"])
    assert ours.tolist() == [[0.0, 0.0, 0.0]]  # the only reward is at a token that nobody wrote


@pytest.mark.parametrize("case", cases("verl_masked_stats"))
def test_masked_statistics_are_as_recorded(case):
    values, mask, recorded = case["input"]["values"], np.array(case["input"]["mask"], bool), case["output"]
    near = {"atol": 1e-5, "rtol": 1e-4}
    close(masked_mean(values, mask), recorded["masked_mean"], **near)
    close(masked_mean(values, mask, axis=-1), recorded["masked_mean_axis-1"], **near)
    close(masked_var(values, mask), recorded["masked_var"], **near)
    close(masked_var(values, mask, ddof=0), recorded["masked_var_biased"], **near)
    close(whiten(values, mask)[mask], np.array(recorded["masked_whiten"])[mask], **near)


@pytest.mark.parametrize("case", cases("dapo_overlong_penalty"))
def test_the_overlong_penalty_is_as_recorded(case):
    taken = case["input"]
    ours = overlong_penalty(
        [taken["valid_response_length"]],
        taken["max_resp_len"],
        taken["overlong_buffer_len"],
        taken["penalty_factor"],
    )
    close(ours, case["output"]["overlong_reward"], atol=1e-5, rtol=1e-4)
    close(ours + taken["score"], case["output"]["reward"], atol=1e-5, rtol=1e-4)
    assert bool(ours[0] < 0) == case["output"]["overlong"]


def test_gae_discounts_written_tokens_only():
    # A_3 = 1 - 0.5 = 0.5;  delta_0 = 0 + 0.5 * 0.5 - 1 = -0.75;  A_0 = -0.75 + 0.5 * 0.5 * 0.5 = -0.625
    rewards, values = [[0.0, 0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0, 0.5]]
    close(gae(rewards, values, [[1, 0, 0, 1]], gamma=0.5, lam=0.5), [[-0.625, 0.0, 0.0, 0.5]])


# Lengths below, at and above one block, one block of blocks, and the rows worked on at a time.
@pytest.mark.parametrize("steps", [1, BLOCK, BLOCK + 1, BLOCK**2, BLOCK**2 + 1, CACHED // 4])
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.99, 0.95), (0.5, 0.0)])
def test_gae_is_the_equation_token_by_token(steps, gamma, lam):
    batch = draw(np.random.default_rng(steps), 3, steps)
    close(gae(*batch, gamma, lam), plain_gae(*batch, gamma, lam), rtol=0, atol=1e-10)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 80), st.floats(0, 1), st.floats(0, 1))
def test_gae_of_any_mask_is_the_equation_token_by_token(seed, rows, steps, gamma, lam):
    rng = np.random.default_rng(seed)
    batch = draw(rng, rows, steps, share=rng.random())
    close(gae(*batch, gamma, lam), plain_gae(*batch, gamma, lam), rtol=0, atol=1e-10)


@given(st.integers(0, 2**32 - 1))
def test_gae_never_reads_what_was_not_written(seed):
    rewards, values, mask = draw(np.random.default_rng(seed), 2, 40)
    rewards, values = np.where(mask, rewards, np.nan), np.where(mask, values, np.inf)
    advantages = gae(rewards, values, mask)
    assert np.isfinite(advantages).all()
    assert not advantages[~mask].any()


def test_a_time_step_of_a_turn_sums_its_rewards_and_reads_its_first_value():
    # R = 0.1 + 0.4 and 1, V = 0.2 and 0.4: A_1 = 1 - 0.4 = 0.6;
    # delta_0 = 0.5 + 0.9 * 0.4 - 0.2 = 0.66, A_0 = 0.66 + 0.9 * 0.5 * 0.6 = 0.93
    rewards, values, turns = [0.1, 0.4, 0.0, 1.0], [0.2, 9.0, 0.4, 9.0], [0, 0, 2, 2]
    close(turn_gae(rewards, values, turns, gamma=0.9, lam=0.5), [0.93, 0.93, 0.6, 0.6])


def test_two_levels_pass_the_advantage_of_a_turn_to_its_tokens():
    # turns, by their last tokens: A_1 = 1 - 0.4 = 0.6; A_0 = (0.5 + 0.9 * 0.4 - 0.9) + 0.9 * 0.5 * 0.6 = 0.23
    # tokens: turn 1 begins with 0 + 0.8 * 0.4 - 0.3 + 0.8 * 0.5 * 0.6 = 0.26,
    # turn 0 with 0.8 * 0.9 - 0.2 + 0.4 * 0.23 = 0.612
    rewards, values, turns = [0.0, 0.5, 0.0, 1.0], [0.2, 0.9, 0.3, 0.4], [0, 0, 1, 1]
    advantages = bi_level_gae(rewards, values, turns, gamma=0.8, lam=0.5, turn_gamma=0.9)
    close(advantages, [0.612, 0.23, 0.26, 0.6])


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 6), min_size=1, max_size=6),
    *[st.floats(0, 1)] * 3,
)
def test_estimates_over_turns_are_the_equations_turn_by_turn(seed, lengths, gamma, lam, turn_gamma):
    rewards, values = np.random.default_rng(seed).normal(size=(2, sum(lengths)))
    turns = np.repeat(np.arange(len(lengths)), lengths)
    of_turn, of_last, by_turn, by_both = 0.0, 0.0, [], []  # the estimates, from the last turn to the first
    begin = last = 0.0  # the values that follow
    for k in reversed(range(len(lengths))):
        r, v = rewards[turns == k], values[turns == k]
        of_turn = r.sum() + gamma * begin - v[0] + gamma * lam * of_turn
        begin = v[0]
        by_turn = [of_turn] * len(r) + by_turn
        of_last = r[-1] + turn_gamma * last - v[-1] + turn_gamma * lam * of_last
        last = v[-1]
        estimates = [of_last]
        for t in reversed(range(len(r) - 1)):
            estimates.insert(0, r[t] + gamma * v[t + 1] - v[t] + gamma * lam * estimates[0])
        by_both = estimates + by_both
    close(turn_gae(rewards, values, turns, gamma, lam), by_turn, atol=1e-10)
    close(bi_level_gae(rewards, values, turns, gamma, lam, turn_gamma), by_both, atol=1e-10)


@given(st.integers(0, 2**32 - 1), st.integers(1, 20), st.floats(0, 1), st.floats(0, 1))
def test_turns_of_one_token_are_time_steps_of_tokens(seed, length, gamma, lam):
    rewards, values = np.random.default_rng(seed).normal(size=(2, 1, length))
    (wanted,) = plain_gae(rewards, values, np.ones((1, length)), gamma, lam)
    steps = rewards[0], values[0], np.arange(length)
    close(turn_gae(*steps, gamma, lam), wanted, atol=1e-10)
    close(bi_level_gae(*steps, 0.3, lam, turn_gamma=gamma), wanted, atol=1e-10)


def test_with_lambda_1_and_no_discount_all_levels_give_the_return_less_a_value():
    rewards, values, turns = [0.0, 0.5, 0.0, 1.0], [0.2, 0.9, 0.3, 0.4], [0, 0, 1, 1]
    by_token = np.subtract([1.5, 1.5, 1.0, 1.0], values)
    close(gae([rewards], [values], [[1, 1, 1, 1]])[0], by_token)
    close(bi_level_gae(rewards, values, turns), by_token)
    close(turn_gae(rewards, values, turns), [1.3, 1.3, 0.7, 0.7])


@pytest.mark.parametrize("estimate", [turn_gae, bi_level_gae])
def test_a_rollout_without_tokens_has_no_advantages(estimate):
    assert estimate([], [], []).tolist() == []
    assert gae([[2.0]], [[1.0]], [[0]]).tolist() == [[0.0]]


@pytest.mark.parametrize(
    ("placement", "tokens"),
    [
        ("turn", [0, 0, 0.3, 0, 0, 1.1, 0]),
        ("merged", [0, 0, 0, 0, 0, 1.4, 0]),
        ("outcome", [0, 0, 0, 0, 0, 1.0, 0]),
    ],
)
def test_rewards_are_paid_at_last_tokens_as_placed(placement, tokens):
    # eq. 9: turn 1 ends at 2, turn 2 at 5; token 6 is padding
    close(place_rewards([0.3, 0.1], [2, 5], 7, placement=placement, outcome=1.0), tokens)


def test_an_unscored_turn_is_paid_nothing():
    close(place_rewards([np.nan, 0.5], [0, 1], 2), [0.0, 0.5])
    close(place_rewards([np.nan, 0.5], [0, 1], 2, placement="merged"), [0.0, 0.5])
    close(place_rewards([0.25], [0], 1, outcome=np.nan), [0.25])


def test_a_turn_that_wrote_nothing_is_paid_with_the_turn_before():
    close(place_rewards([0.25, 0.5], [1, 1], 3), [0.0, 0.75, 0.0])


@given(st.lists(st.tuples(st.floats(-10, 10), st.integers(1, 5)), min_size=1, max_size=6), st.floats(-2, 2))
def test_turn_and_merged_placement_have_one_return(turns, outcome):
    rewards, ends = [turn[0] for turn in turns], np.cumsum([turn[1] for turn in turns]) - 1
    for placement in ("turn", "merged"):
        placed = place_rewards(rewards, ends, ends[-1] + 3, placement=placement, outcome=outcome)
        close(placed.sum(), sum(rewards) + outcome, atol=1e-9)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=30), st.data())
def test_whitened_values_have_mean_0_and_variance_at_most_1(values, data):
    mask = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    white = whiten(values, mask)
    close(masked_mean(white, mask), 0.0, atol=1e-6)
    assert masked_var(white, mask) <= 1.0 + 1e-9
    assert not white[~np.array(mask)].any()


def test_equal_values_whiten_to_exact_zeros():
    assert whiten([0.1, 0.1, 0.1], [1, 1, 1]).tolist() == [0.0, 0.0, 0.0]
    assert whiten([[7.0, 1.0]], [[1, 0]]).tolist() == whiten([[7.0, 1.0]], [[0, 0]]).tolist() == [[0.0, 0.0]]


def test_the_mean_of_nothing_is_zero():
    assert (float(masked_mean([np.nan], [0])), masked_var([np.nan], [0])) == (0.0, 0.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gae([[1.0]], [[1.0]], [[1]], gamma=1.1),
        lambda: gae([[1.0]], [[1.0]], [[1]], lam=-0.1),
        lambda: gae([[np.nan, 1.0]], [[1.0, 1.0]], [[1, 1]]),
    ],
)
def test_what_makes_no_sense_is_refused(call):
    with pytest.raises(ValueError, match="got"):
        call()
