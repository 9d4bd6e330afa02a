"""Credit of turns becomes credit of tokens: numbers worked out by hand."""

import math

import numpy as np
import pytest
from made_episodes import POLICY, after, before, episode, give, measure, reply
from msgspec.structs import replace

from memenvs.baselines.advantages import group_advantages, read_comparison, tree_advantages
from memenvs.baselines.mt_ppo import token_advantages
from memenvs.core.episode import Episode, Sample, Turn, valid
from memenvs.credit import mt_grpo
from memenvs.models import ScriptedPolicy
from memenvs.rollout.collect import maker
from memenvs.rollout.policy import as_policy
from memenvs.rollout.tree import Node, check_cost, collect_trees, tree_cost
from memenvs.wrappers import TAMTRL, Credit, GiGPO, InfoMem, MemPO
from memenvs.wrappers.comparison import ComparisonSettings, results_of
from memenvs.wrappers.registry import make_methods

ROOT2 = math.sqrt(2)


@pytest.fixture
def pair():
    """Two episodes of one group: 2 + 1 and 2 + 1 tokens; the first is right, the second searched better."""
    assert [len(POLICY.encode(text)) for text in ("a memory", "a")] == [2, 1]
    return [
        episode(7, [0.0, 1.0], [0.0, 1.0], ["a memory", "a"]),
        episode(7, [0.5, 0.0], [0.0, 0.0], ["a memory", "a"]),
    ]


class TestGroups:
    """Of two numbers that differ, ddof 1: their advantages are 1/sqrt(2) and -1/sqrt(2), but for eps."""

    def test_outcome_is_compared_alone(self, pair):
        first, second = group_advantages(pair, POLICY, reward="outcome")
        assert first == pytest.approx([1 / ROOT2] * 3, abs=1e-5)
        assert second == pytest.approx([-1 / ROOT2] * 3, abs=1e-5)

    def test_merged_compares_the_sums(self):
        # sums 0.5 and 1.0
        two = [episode(1, [0.5], [0.0], ["a"]), episode(1, [1.0], [1.0], ["a"])]
        first, second = group_advantages(two, POLICY, reward="merged")
        assert first == pytest.approx([-1 / ROOT2], abs=1e-5)
        assert second == pytest.approx([1 / ROOT2], abs=1e-5)

    def test_turns_have_their_own_and_alpha_of_the_outcome(self, pair):
        # turn 0: rewards 0 and 0.5, outcomes 1 and 0: -1/sqrt2 + 0.5/sqrt2, and the reverse; last: outcome
        first, second = group_advantages(pair, POLICY, "turn", ComparisonSettings(alpha=0.5))
        assert first == pytest.approx([-0.5 / ROOT2] * 2 + [1 / ROOT2], abs=1e-3)
        assert second == pytest.approx([0.5 / ROOT2] * 2 + [-1 / ROOT2], abs=1e-3)

    def test_what_the_last_turn_earns_beside_the_outcome_counts_with_it(self):
        # both cut at their limit, one placed a box in the last turn: results 1 and 0
        two = [episode(1, [0.0, 0.0, last], [0.0] * 3, ["a"] * 3) for last in (1.0, 0.0)]
        first, second = group_advantages(two, POLICY, reward="turn")
        assert first == pytest.approx([1 / ROOT2] * 3, abs=1e-3)
        assert second == pytest.approx([-1 / ROOT2] * 3, abs=1e-3)

    def test_a_turn_that_could_not_be_measured_is_compared_with_none(self):
        # three searched; the judge of the first could not be read: the others are 1 and 0 beside each other
        three = [episode(1, [paid, 0.0], [0.0, 0.0], ["a", "a"]) for paid in (0.0, 1.0, 0.0)]
        for one, signal in zip(three, (math.nan, 1.0, 0.0), strict=True):
            measure(one, "judge", [signal, 0.0])
        values = [tokens[0] for tokens in group_advantages(three, POLICY, reward="turn")]
        assert values == pytest.approx([0.0, 1 / ROOT2, -1 / ROOT2], abs=1e-3)

    def test_pooled_turns_are_compared_with_all_turns_of_the_group(self, pair):
        # R = 0, 1 | 0.5, 0: mean 0.375, sum of squares 0.6875, std sqrt(0.6875 / 3)
        std = math.sqrt(0.6875 / 3)
        first, second = group_advantages(pair, POLICY, reward="turn-pool")
        assert first == pytest.approx([-0.375 / std, -0.375 / std, 0.625 / std], abs=1e-5)
        assert second == pytest.approx([0.125 / std, 0.125 / std, -0.375 / std], abs=1e-5)

    def test_a_pooled_turn_that_could_not_be_measured_is_in_no_mean(self, pair):
        # the judge of the first turn could not be read: R = 1 | 0.5, 0, mean 0.5, std 0.5
        give(pair[0], "judge", Credit(0, math.nan, reason="no verdict"), Credit(1, 0.0))
        first, second = group_advantages(pair, POLICY, reward="turn-pool")
        assert first == pytest.approx([0.0, 0.0, 1.0], abs=1e-5)
        assert second == pytest.approx([0.0, 0.0, -1.0], abs=1e-5)

    def test_a_length_penalty_is_added_to_every_pooled_turn(self):
        # R = 0.5 - 1, 1 - 1 | 1, 1.5
        two = [episode(1, [0.5, 1.0], [0.0, 0.0], ["a", "a"]), episode(1, [1.0, 1.5], [0.0, 1.0], ["a", "a"])]
        two[0].length_penalty = -1.0
        std = math.sqrt((1.0 + 0.25 + 0.25 + 1.0) / 3)
        first, second = group_advantages(two, POLICY, reward="turn-pool")
        assert [*first, *second] == pytest.approx([-1 / std, -0.5 / std, 0.5 / std, 1 / std], abs=1e-5)

    def test_a_charge_counts_in_every_comparison_of_results(self, pair):
        for one in pair:
            one.length_penalty = -1.0 if one is pair[0] else 0.0
        # outcomes 1 - 1 and 0: equal
        assert group_advantages(pair, POLICY, reward="outcome")[0].tolist() == [0.0] * 3
        # returns 1 - 1 and 0.5
        assert group_advantages(pair, POLICY, "merged")[0] == pytest.approx([-1 / ROOT2] * 3, abs=1e-5)

    def test_reinforce_takes_the_return_as_it_is(self, pair):
        values = group_advantages(pair, POLICY, "merged", ComparisonSettings(estimator="reinforce"))
        assert [tokens.tolist() for tokens in values] == [[1.0] * 3, [0.5] * 3]
        values = group_advantages(pair, POLICY, "outcome", ComparisonSettings(estimator="reinforce"))
        assert [tokens.tolist() for tokens in values] == [[1.0] * 3, [0.0] * 3]

    @pytest.mark.parametrize(
        ("reward", "tokens"),
        [
            # turn 0: 0 and 0.5, outcomes 1 and 0, returns 1 and 0.5: each less the other's
            ("outcome", [1.0, 1.0, 1.0]),
            ("merged", [0.5, 0.5, 0.5]),
            ("turn", [-0.5 + 1.0, -0.5 + 1.0, 1.0]),
        ],
    )
    def test_rloo_compares_two_episodes_with_each_other(self, pair, reward, tokens):
        first, second = group_advantages(pair, POLICY, reward, ComparisonSettings(estimator="rloo"))
        assert first == pytest.approx(tokens)
        assert second == pytest.approx([-value for value in tokens])

    def test_reinforce_by_turn_is_what_is_still_to_be_earned(self, pair):
        values = group_advantages(pair, POLICY, "turn", ComparisonSettings(estimator="reinforce", alpha=0.5))
        assert [tokens.tolist() for tokens in values] == [[0.5, 0.5, 1.0], [0.5, 0.5, 0.0]]

    def test_memory_has_its_credit_on_its_own_characters(self, pair):
        # "memory" of "a memory" is the memory of turn 0, worth 2
        unscored = Credit(1, math.nan, (0, 1), "no score", advantage=True)
        give(pair[0], "mempo", Credit(0, 2.0, (2, 8), advantage=True), unscored)
        assert pair[0].advantage_credits(POLICY).tolist() == [0.0, 2.0, 0.0]
        first, _ = group_advantages(pair, POLICY, MemPO())
        assert first == pytest.approx([1 / ROOT2, 1 / ROOT2 + 2.0, 1 / ROOT2], abs=1e-5)

    @pytest.mark.parametrize("reward", ["merged", "turn", "turn-pool", InfoMem(), MemPO(), GiGPO()])
    def test_a_credit_marked_as_an_advantage_is_added_as_it_is(self, pair, reward):
        bare = group_advantages(pair, POLICY, reward=reward)
        give(pair[0], "mempo", Credit(0, 2.0, advantage=True))
        marked = group_advantages(pair, POLICY, reward=reward)
        assert marked[0] == pytest.approx(bare[0] + [2.0, 2.0, 0.0])
        assert marked[1] == pytest.approx(bare[1])

    def test_an_outcome_alone_takes_no_advantage_of_a_method(self, pair):
        bare = group_advantages(pair, POLICY, reward="outcome")[0].tolist()
        give(pair[0], "mempo", Credit(0, 2.0, advantage=True))
        assert group_advantages(pair, POLICY, reward="outcome")[0].tolist() == bare

    def test_a_span_that_is_no_advantage_is_compared_as_any_reward(self, pair):
        give(pair[0], "own", Credit(0, 2.0, (2, 8)))
        assert pair[0].advantage_credits(POLICY).tolist() == [0.0, 0.0, 0.0]
        assert pair[0].turn_advantages == [0.0, 0.0]

    def test_tamtrl_spreads_each_turn_over_its_tokens(self, pair):
        # p = 0.2, then the answer, with outcome 1; 0.6 and the answer with outcome 0: p^ = 0 | 1
        # R = 0, 1 | 0, 0: mean 0.25, std (ddof 1) 0.5: advantages -0.5, 1.5 | -0.5, -0.5
        taught(pair, [0.2, 0.6])
        first, second = group_advantages(pair, POLICY, TAMTRL())
        assert first == pytest.approx([-0.5, -0.5, 1.5], abs=1e-5)
        assert second == pytest.approx([-0.5, -0.5, -0.5], abs=1e-5)

    def test_a_charge_on_a_failure_does_not_ask_the_teacher(self, pair):
        # R = 0.6, 1 | -1, -1 (times p it were -0.2, -1): mean -0.1, std sqrt(3.32 / 3)
        taught(pair, [0.6, 0.2])
        pair[1].length_penalty = -1.0
        method, std = TAMTRL(minmax=False), math.sqrt(3.32 / 3)
        first, second = group_advantages(pair, POLICY, method)
        assert first == pytest.approx([0.7 / std, 0.7 / std, 1.1 / std], abs=1e-5)
        assert second == pytest.approx([-0.9 / std] * 3, abs=1e-5)


class TestWhatAGroupMustDifferIn:
    """Rounding is no difference; TAMTRL trains only on groups with right and wrong answers (eq. 3)."""

    @pytest.mark.parametrize("reward", ["merged", "turn-pool", InfoMem()])
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ([0.1, 0.2, 0.3], [0.3, 0.2, 0.1]),
            ([-0.1, 0.2, 1.0], [0.2, -0.1, 1.0]),
            ([0.1, 0.2, -0.3], [-0.3, 0.1, 0.2]),  # sums of 5.6e-17 and 2.8e-17
        ],
    )
    def test_the_same_rewards_in_another_order_give_exactly_zero(self, one, other, reward):
        two = [episode(1, rewards, [0.0] * 3, ["a"] * 3) for rewards in (one, other)]
        assert [values.tolist() for values in group_advantages(two, POLICY, reward)] == [[0.0] * 3] * 2

    def test_a_turn_and_an_outcome_that_cancel_give_exactly_zero(self):
        # turn 0: 0.1 and 0.3 apart by its mean, the outcome by as much the other way
        two = [
            episode(1, [0.1 + 0.2, 0.1], [0.0, 0.1], ["a", "a"]),
            episode(1, [0.1, 0.3], [0.0, 0.3], ["a", "a"]),
        ]
        values = group_advantages(two, POLICY, "turn", ComparisonSettings(scale="none"))
        assert [own[0] for own in values] == [0.0, 0.0]

    @pytest.mark.parametrize("outcome", [0.0, 1.0])
    @pytest.mark.parametrize("method", [TAMTRL(), TAMTRL(combine="plus")])
    def test_tamtrl_trains_on_no_group_that_is_all_right_or_all_wrong(self, outcome, method):
        two = [episode(1, [0.0, outcome], [0.0, outcome], ["a", "a"]) for _ in range(2)]
        taught(two, [0.2, 0.6])
        two[0].length_penalty = -0.5
        assert [values.tolist() for values in group_advantages(two, POLICY, method)] == [[0.0] * 2] * 2

    def test_the_extremes_of_a_batch_are_those_of_all_its_groups(self):
        # p^ = 0.5 | 0.5 in the group that is trained on: 0.3 of 0.1 to 0.5, which group 2 gives
        group = [episode(1, [0.0, r], [0.0, r], ["a", "a"]) for r in (1.0, 0.0)]
        right = [episode(2, [0.0, 1.0], [0.0, 1.0], ["a", "a"]) for _ in range(2)]
        taught([*group, *right], [0.3, 0.3, 0.1, 0.5])
        first, second, *others = group_advantages([*group, *right], POLICY, TAMTRL())
        # R = 0.5, 1 | 0, 0: mean 0.375, squares 0.6875
        std = math.sqrt(0.6875 / 3)
        assert [*first, *second] == pytest.approx(
            [0.125 / std, 0.625 / std, -0.375 / std, -0.375 / std], abs=1e-5
        )
        assert [values.tolist() for values in others] == [[0.0] * 2] * 2

    def test_a_failed_rollout_leaves_a_group_that_is_all_right(self):
        # what a learner compares are the valid episodes: the wrong one of this group is not among them
        (values,) = group_advantages([episode(1, [0.5, 1.0], [0.0, 1.0], ["a", "a"])], POLICY, "turn-pool")
        assert values.tolist() == [0.0, 0.0]

    def test_pooled_turns_and_advantages_beside_them_train_on_mixed_groups_alone(self):
        two = [episode(1, rewards, [0.0, 0.0], ["a", "a"]) for rewards in ([0.5, 1.0], [0.0, 1.0])]
        give(two[0], "own", Credit(1, 1.0, advantage=True))
        assert [values.tolist() for values in group_advantages(two, POLICY, "turn-pool")] == [[0.0] * 2] * 2

    def test_infomem_still_ranks_the_successes_of_a_group_that_is_all_right(self):
        # eq. 9 and 10: outcomes of 1 with bonuses of 0.2 and -0.2
        two = [episode(1, [1.0 + bonus], [1.0], ["a"]) for bonus in (0.2, -0.2)]
        first, second = group_advantages(two, POLICY, InfoMem())
        assert [*first, *second] == pytest.approx([1 / ROOT2, -1 / ROOT2], abs=1e-5)

    def test_an_outcome_that_a_judge_could_not_give_is_compared_with_none(self):
        # verdicts 1, none, 0 in place of the outcome
        three = [episode(1, [0.0], [0.0], ["a"]) for _ in range(3)]
        for one, verdict in zip(three, (1.0, math.nan, 0.0), strict=True):
            one.replaces_outcome = True
            give(one, "judge", Credit(0, verdict))
        values = [own[0] for own in group_advantages(three, POLICY, "outcome")]
        assert values == pytest.approx([1 / ROOT2, 0.0, -1 / ROOT2], abs=1e-5)


def test_a_comparison_that_is_not_known_is_refused(pair):
    with pytest.raises(ValueError, match="'left'"):
        group_advantages(pair, POLICY, "left")


@pytest.mark.parametrize(
    ("reward", "settings", "named"),
    [
        ("outcome", {"alpha": 0.5}, "alpha"),
        ("merged", {"scale": "none", "scales": "none"}, "scales"),
        ("tamtrl", {"minmaxx": False}, "minmaxx"),
        ("turn-pool", {"scale": "none"}, "scale"),
    ],
)
def test_a_setting_that_a_comparison_does_not_have_is_named(reward, settings, named):
    with pytest.raises(ValueError, match=f"'{named}'|{named}:"):
        read_comparison(reward, **settings)


@pytest.mark.parametrize(
    ("credits", "unknown"),
    [
        ([Credit(0, 1.0), Credit(1, math.nan)], True),
        ([Credit(1, math.nan), Credit(1, 2.0, advantage=True)], True),
        ([Credit(1, math.nan), Credit(1, 0.5)], False),
        ([Credit(0, math.nan)], False),
    ],
)
def test_a_result_is_unknown_where_the_last_turn_has_no_reward_with_a_number(credits, unknown):
    played = episode(1, [0.0, 0.0], [0.0, 0.0], ["a", "a"])
    played.replaces_outcome = True
    give(played, "judge", *credits)
    assert math.isnan(results_of([played])[0]) is unknown


def taught(episodes, scores):
    """Give episodes of two turns the teacher's score of the first; the second is the answer."""
    for one, score in zip(episodes, scores, strict=True):
        measure(one, "tamtrl", [score, 0.0])


class TestTokens:
    """Gamma and lambda 1: an advantage is what is still to be earned, less the value of its own token."""

    @pytest.mark.parametrize(
        ("reward", "to_come"),
        [("turn", [1.5, 1.5, 1.0]), ("merged", [1.5, 1.5, 1.5]), ("outcome", [1.0, 1.0, 1.0])],
    )
    def test_rewards_are_where_they_are_placed(self, reward, to_come):
        # 0.5 at the end of turn 0 (token 1), 1.0 (the outcome) at the end of turn 1 (token 2)
        one = episode(1, [0.5, 1.0], [0.0, 1.0], ["a memory", "a"], values=[0.1, 0.2, 0.3])
        (advantages,), (returns,) = token_advantages([one], reward=reward, whitened=False)
        assert returns == pytest.approx(to_come)
        assert advantages == pytest.approx(np.subtract(to_come, [0.1, 0.2, 0.3]))

    @pytest.mark.parametrize(
        ("level", "discounts", "wanted"),
        [
            # A_1 = 1 - 0.3; A_0 = 0.5 + 0.5 * 0.3 - 0.1 + 0.5 * 0.7, for both tokens of turn 0
            ("turn", {"gamma": 0.5}, [0.9, 0.9, 0.7]),
            # at token 1: 0.5 + 0.5 * 0.3 - 0.2 + 0.5 * 0.7 = 0.8; before it 0.2 - 0.1 + 0.8
            ("both", {"turn_gamma": 0.5}, [0.9, 0.8, 0.7]),
        ],
    )
    def test_a_time_step_may_be_a_turn(self, level, discounts, wanted):
        one = episode(1, [0.5, 1.0], [0.0, 1.0], ["a memory", "a"], values=[0.1, 0.2, 0.3])
        (advantages,), (returns,) = token_advantages([one], level=level, whitened=False, **discounts)
        assert advantages == pytest.approx(wanted)
        assert returns == pytest.approx([1.0, 1.0, 1.0])  # 0.5 + 0.5 * 1, and 1

    def test_whitening_runs_over_all_tokens_of_the_batch(self):
        two = [
            episode(1, [1.0], [1.0], ["a memory"], values=[0.0, 0.0]),
            episode(2, [0.0], [0.0], ["a"], values=[0.0]),
        ]
        first, second = token_advantages(two, reward="turn")[0]
        # 1, 1, 0: mean 2/3, variance (ddof 1) 1/3
        assert first == pytest.approx([1 / math.sqrt(3)] * 2, abs=1e-6)
        assert second == pytest.approx([-2 / math.sqrt(3)], abs=1e-6)

    def test_a_credit_marked_as_an_advantage_is_no_reward_and_not_whitened(self):
        one = episode(1, [1.0, 1.0], [0.0, 1.0], ["a", "a"], values=[0.0, 0.0])
        give(one, "own", Credit(0, 2.0, advantage=True))
        other = episode(2, [0.0], [0.0], ["a"], values=[0.0])
        marked = [each.advantage_credits(POLICY) for each in (one, other)]
        (first, second), (returns, _) = token_advantages([one, other], marked=marked)
        # rewards 1, 1 and 0: returns 2, 1, 0, whitened (mean 1, variance 1) 1, 0, -1
        assert returns.tolist() == [2.0, 1.0]
        assert first == pytest.approx([3.0, 0.0], abs=1e-6)
        assert second == pytest.approx([-1.0], abs=1e-6)

    def test_time_runs_on_through_the_samples_of_an_episode(self):
        one = episode(1, [0.0, 1.0], [0.0, 1.0], ["a", "a"], values=[0.0, 0.0], context="rewrite")
        assert len(one.samples) == 2
        (advantages,), _ = token_advantages([one], reward="turn", gamma=0.5, whitened=False)
        assert advantages.tolist() == [0.5, 1.0]

    @pytest.mark.parametrize("level", ["token", "turn", "both"])
    def test_a_truncated_episode_goes_on_with_the_value_of_the_state_after_it(self, level):
        values, earned, after, lam, gamma, turn_gamma = [0.1, 0.2, 0.3], [0.5, 1.0], 2.0, 0.8, 0.9, 0.7
        one = episode(1, earned, [0.0, 0.0], ["a memory", "a"], values=values)
        one.samples[-1].following = Sample.of((np.array([1]), None, -1), (np.array([1]), np.zeros(1), 0))
        one.samples[-1].following.values = np.array([after])
        how = {"gamma": gamma, "lam": lam, "whitened": False}
        if level == "both":
            how["turn_gamma"] = turn_gamma
        (advantages,), _ = token_advantages([one], level=level, **how)
        if level == "token":
            last = 1.0 + gamma * after - 0.3
            middle = 0.5 + gamma * 0.3 - 0.2 + gamma * lam * last
            wanted = [gamma * 0.2 - 0.1 + gamma * lam * middle, middle, last]
        elif level == "turn":
            last = 1.0 + gamma * after - 0.3
            first = 0.5 + gamma * 0.3 - 0.1 + gamma * lam * last
            wanted = [first, first, last]
        else:
            last = 1.0 + turn_gamma * after - 0.3
            middle = 0.5 + turn_gamma * 0.3 - 0.2 + turn_gamma * lam * last
            wanted = [gamma * 0.2 - 0.1 + gamma * lam * middle, middle, last]
        assert advantages == pytest.approx(wanted)

    def test_nothing_is_expected_after_the_last_token_of_a_truncated_episode(self):
        one = episode(1, [0.5, 0.0], [0.0, 0.0], ["a memory", "a"], values=[0.1, 0.2, 0.3])
        one.end = one.turns[-1].end = "truncated"
        (advantages,), (returns,) = token_advantages([one], whitened=False)
        assert advantages == pytest.approx([0.4, 0.3, -0.3])  # no value of a state after the end is added
        assert returns == pytest.approx([0.5, 0.5, 0.0])


@pytest.mark.parametrize("paid", [math.nan, math.inf, -math.inf])
class TestRewardsThatAreNoNumbers:
    def group(self, paid):
        two = [episode(1, [0.1, 0.1 + r], [0.0, r], ["a b", "a"], values=[0.0] * 3) for r in (1.0, 0.0)]
        other = episode(1, [0.1, paid], [0.0, paid], ["a b", "a"], values=[0.0] * 3)
        return [two[0], other, two[1]]

    @pytest.mark.parametrize("reward", ["outcome", "merged", "turn"])
    def test_an_episode_that_was_paid_one_is_compared_with_none(self, paid, reward):
        right, other, wrong = group = self.group(paid)
        first, none, last = group_advantages(group, POLICY, reward)
        alone = group_advantages([right, wrong], POLICY, reward)
        assert [first.tolist(), last.tolist()] == [values.tolist() for values in alone]
        assert first[-1] == pytest.approx(1 / ROOT2, abs=1e-3)
        assert none.tolist() == [0.0] * 3
        assert [id(one) for one in valid(group)] == [id(right), id(wrong)]
        assert other.end == "failed"
        assert f"task t, turn 1: reward outcome must be finite, got {paid}" in other.error

    @pytest.mark.parametrize("level", ["token", "turn", "both"])
    def test_nor_does_it_change_what_the_others_learn_by_a_critic(self, paid, level):
        right, _, wrong = group = self.group(paid)
        (first, none, last), _ = token_advantages(group, level=level, marked=[np.ones(3)] * 3)
        (one, other), _ = token_advantages([right, wrong], level=level, marked=[np.ones(3)] * 2)
        assert [first.tolist(), last.tolist()] == [one.tolist(), other.tolist()]
        assert none.tolist() == [0.0] * 3


class TestTree:
    def test_the_cost_is_every_reply_of_every_turn(self):
        assert tree_cost(3, 2) == 3 + 9
        check_cost(17, 8, 3)  # 17 * (8 + 64 + 512) = 9,928 replies
        with pytest.raises(
            ValueError, match=r"20 trees of 8 branches over 3 turns sample 11,680 replies \(8\^2"
        ):
            check_cost(20, 8, 3)

    def test_replies_are_compared_with_their_siblings(self):
        # root -> a (turn reward 1), b (0); a -> outcomes 1, 0; b -> outcomes 0, 0
        root = root_node()
        a, b = (child(root, turn_reward, state=1) for turn_reward in (1.0, 0.0))
        for parent, outcomes in ((a, (1.0, 0.0)), (b, (0.0, 0.0))):
            for outcome in outcomes:
                child(parent, 0.0, outcome=outcome)
        learned = tree_advantages([root], alpha=0.5)
        # a: own 1/sqrt2, value 0.5 against 0: + 0.5/sqrt2; b the reverse; a's children +-1/sqrt2, b's 0
        values = [round(float(advantage[0]) * ROOT2, 3) for _, _, advantage in learned]
        assert values == pytest.approx([1.5, -1.5, 1.0, -1.0, 0.0, 0.0], abs=2e-3)

    @pytest.mark.parametrize("ended", ["zero", "skip"])
    def test_a_tree_that_branches_at_its_first_turn_is_a_flat_group(self, ended):
        rewards, outcomes = [[1.0, 2.0, 0.0], [0.0, 0.5, 0.0], [0.0], [3.0, 0.0]], [1.0, 0.0, 1.0, 0.5]
        root = root_node()
        wanted = {}
        for earned, outcome, flat in zip(
            rewards, outcomes, mt_grpo(rewards, outcomes, alpha=0.5, ended=ended), strict=True
        ):
            parent = root
            for turn, reward in enumerate(earned):
                over = turn == len(earned) - 1
                parent = child(parent, reward, None if over else 1, outcome if over else 0.0)
                wanted[id(parent)] = flat[turn]
        learned = tree_advantages([root], alpha=0.5, ended=ended)
        found = [float(values[0]) for _, _, values in learned]
        order = [id(node) for parent in (root, *root.nodes()) for node in parent.children]
        assert found == pytest.approx([wanted[name] for name in order])

    def test_without_std_a_reply_has_its_siblings_mean_taken_off_alone(self):
        # root -> a (turn reward 3), b (1); a -> outcomes 1, 0; b -> outcomes 1, 1
        root = root_node()
        a, b = (child(root, turn_reward, state=1) for turn_reward in (3.0, 1.0))
        for parent, outcome in ((a, 1.0), (a, 0.0), (b, 1.0), (b, 1.0)):
            child(parent, 0.0, outcome=outcome)
        learned = tree_advantages([root], alpha=0.5, scale="none")
        # a: own 1, value 0.5 against 1, half of it: 1 - 0.125; b the reverse; a's children +-0.5, b's 0
        values = [float(advantage[0]) for _, _, advantage in learned]
        assert values == pytest.approx([0.875, -0.875, 0.5, -0.5, 0.0, 0.0])

    @pytest.mark.parametrize(("ended", "advantage"), [("zero", 1.0), ("skip", 2.0)])
    def test_a_branch_that_ends_early_earns_nothing_at_later_turns_or_is_in_no_mean(self, ended, advantage):
        # root -> a, b -> each one that ends, one that goes on (4 more for a's), and one that breaks.
        # R of turn 1: a (0 + 4) / 2 or 4, b 0; less their mean: half of it
        root = root_node()
        for earned in (4.0, 0.0):
            parent = child(root, 0.0, state=1)
            child(parent, 0.0)
            child(child(parent, earned, state=1), 0.0)
            child(parent, 9.0, outcome=np.nan)
        learned = tree_advantages([root], ended=ended, scale="none")
        assert [float(values[0]) for _, _, values in learned][:2] == [advantage, -advantage]

    def test_a_reply_whose_every_continuation_broke_has_no_advantage(self):
        root = root_node()
        for outcomes in ((np.nan, np.nan), (1.0, 1.0), (0.0, 0.0)):
            parent = child(root, 0.0, state=1)
            for outcome in outcomes:
                child(parent, 0.0, outcome=outcome)
        values = [float(values[0]) for _, _, values in tree_advantages([root], scale="none")]
        assert values[:3] == [0.0, 0.5, -0.5]

    def test_a_reply_on_which_the_environment_broke_is_compared_with_none(self):
        root = root_node()
        for outcome in (1.0, np.nan, 0.0):
            child(root, 0.0, outcome=outcome)
        values = [float(advantage[0]) * ROOT2 for _, _, advantage in tree_advantages([root])]
        assert values == pytest.approx([1.0, -1.0], abs=1e-3)

    def test_a_tree_of_two_turns_has_every_reply_once_with_its_own_tokens(self):
        policy = ScriptedPolicy(lambda prompt: "<think></think><search>river</search>")
        (root,) = grow("MemSearchQA-v0", policy, tasks="world-test", max_turns=1)
        nodes = list(root.nodes())
        assert len(nodes) == 2 + 4
        assert [len(child.children) for child in root.children] == [2, 2]
        for sample, number, values in tree_advantages([root]):
            assert number == 0
            assert sample.response_mask.sum() == len(values)
            assert sample.response_mask[-1]

    def test_a_branch_goes_on_from_its_parent_alone(self):
        moves = iter(["Up", "Down", "Left", "Right"] * 100)
        policy = ScriptedPolicy(lambda prompt: f"<think></think><answer>{next(moves)}</answer>")
        (root,) = grow("MemSokoban-v0", policy)
        for node in root.nodes():
            assert node.episode.turns[-1].observation == node.parent.request.observation
            if node.request:  # it shows its parent's text, its own reply, and what came back
                shown = node.parent.request.observation + node.reply.text
                assert node.request.observation.startswith(shown)

    def test_a_method_that_pays_at_its_turn_pays_the_replies_of_a_tree(self):
        # SearchRewards in MT-PPO: a search well formed is 0.1 more than one that is not
        replies = iter(["<think></think><search>river</search>", "nothing"] * 2)
        policy = ScriptedPolicy(lambda prompt: next(replies, "nothing"))
        methods = make_methods(["SearchRewards"])
        roots = grow("MemSearchQA-v0", policy, methods, tasks="world-test", max_turns=1)
        good, bad = roots[0].children
        assert good.turn_reward > bad.turn_reward
        assert good.turn_reward == pytest.approx(sum(good.episode.turn_rewards))

    def test_methods_that_pay_in_hindsight_are_refused(self):
        with pytest.raises(ValueError, match="tamtrl pays in hindsight"):
            grow("MemChunkQA-v0", POLICY, [TAMTRL()], tasks="world-test")


def grow(env, policy, methods=(), **env_args):
    plan = [Episode(seed=3, group=3)]
    return collect_trees(maker(env, env_args), as_policy(policy), plan, methods, branches=2, turns=2)


def root_node():
    return Node(Episode(), request=True)


def child(parent, turn_reward, state=None, outcome=0.0):
    end = "" if state else "terminated"
    number = len(parent.episode.turns)
    turn = Turn("", before(number), reply("a"), after(turn_reward, float(np.nan_to_num(outcome))), end)
    made = Node(replace(parent.episode, turns=[*parent.episode.turns, turn], end=end), state, parent)
    if np.isnan(outcome):
        made.episode.fail("the environment broke")
    parent.children.append(made)
    return made
