"""GDPO: its equation against separate NumPy code, the components of an episode, and the learner's flag."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from memenvs import collect
from memenvs.baselines.advantages import group_advantages, read_comparison
from memenvs.core.episode import Credit, Episode, Turn
from memenvs.credit import gdpo
from memenvs.models import Reply, ScriptedPolicy
from memenvs.wrappers.comparison import ComparisonSettings, components_of
from memenvs.wrappers.method import ScoreMethod

close = np.testing.assert_allclose
POLICY = ScriptedPolicy(str)
RIGHT, FORM = [0.0, 10.0, 0.0, 10.0, 0.0, 0.0], [0.1, 0.2, 0.0, 0.3, 0.1, 0.1]
GROUPS = ["a", "a", "a", "b", "b", "b"]


def z(values):
    values = np.asarray(values)
    return (values - values.mean()) / (values.std(ddof=1) + 1e-6)


def test_components_are_normalised_in_their_groups_and_their_sum_over_the_batch():
    right = np.concatenate([z(RIGHT[:3]), z(RIGHT[3:])])
    form = np.concatenate([z(FORM[:3]), z(FORM[3:])])
    close(gdpo({"right": RIGHT, "form": FORM}, GROUPS), z(right + form), atol=1e-5)
    weighed = gdpo({"right": RIGHT, "form": FORM}, GROUPS, weights={"form": 0.25})
    close(weighed, z(right + 0.25 * form), atol=1e-5)


def test_both_stds_have_eps_beside_them():
    # 0, 2: deviations 1, std sqrt(2): a = 1 / (sqrt(2) + 1); of -a and a the std is sqrt(2) a
    a = 1 / (2**0.5 + 1)
    close(gdpo({"right": [0, 2]}, eps=1.0), np.array([-a, a]) / (2**0.5 * a + 1))


def test_components_without_variance_add_exactly_nothing():
    assert gdpo({"right": [1, 1], "form": [0.3, 0.3]}, eps=0.0).tolist() == [0.0, 0.0]
    one, two = gdpo({"right": [1, 1, 0, 1], "form": [0.1, 0.1, 0.1, 0.1]}, ["a", "a", "b", "b"])[:2]
    assert (one, two) == (0.0, 0.0)
    assert gdpo({"right": [1.0]}, eps=0.0).tolist() == gdpo({"right": [1.0]}, ddof=0).tolist() == [0.0]


def test_a_component_that_could_not_be_measured_leaves_the_others():
    close(gdpo({"right": [0, 1, 1], "judge": [np.nan] * 3}), gdpo({"right": [0, 1, 1]}))


@dataclass
class VerdictMethod(ScoreMethod):
    """Scores an episode at its last turn by the number in its first reply, which may be "nan"."""

    outcome: str = "keep"
    weight: float = 1.0

    name = "verdict"

    def assign_credit(self, episodes):
        credits = []
        for episode in episodes:
            said, last = episode.turns[0].action, len(episode.turns) - 1
            credits.append(self.pay(episode, [(float(said), "no verdict")], last))
        return credits


def test_a_score_that_failed_in_an_episode_of_several_turns_is_no_component_of_it():
    said = iter(["nan", "0.5", "0.7", "0.9"])
    group = collect(
        "MemChunkQA-v0",
        ScriptedPolicy(lambda prompt: next(said, "1")),
        [1],
        n=4,
        env_args={"tasks": "world-test", "n_documents": 6},
        methods=[VerdictMethod()],
    )
    assert all(len(one.turns) > 1 for one in group)
    assert math.isnan(group[0].rewards["verdict"])
    how = ComparisonSettings(normalize="components")
    values = [own[0] for own in group_advantages(group, POLICY, "merged", how)]
    # 0.5, 0.7, 0.9: 0.2 apart, std 0.2; over the batch of -1, 0, 0, 1 it is sqrt(2 / 3)
    close(values, [0.0, -(1.5**0.5), 0.0, 1.5**0.5], atol=1e-4)


def test_components_that_cancel_give_exactly_nothing():
    assert gdpo({"one": [0.1, 0.3], "other": [0.3, 0.1]}).tolist() == [0.0, 0.0]
    values = gdpo({"one": [0.1, 0.3, 0, 1], "other": [0.3, 0.1, 0, 1]}, ["a", "a", "b", "b"])
    assert values[:2].tolist() == [0.0, 0.0]


def test_a_weight_of_no_component_is_refused():
    with pytest.raises(ValueError, match="unknown component 'left'; the components are right"):
        gdpo({"right": [1.0]}, weights={"left": 1.0})


def episode(rewards, credits=None, penalty=0.0):
    """An episode of one turn that earned these components, and credits of methods."""
    info = {"turn": 0, "context": "rewrite", "rewards": rewards, "metrics": {}}
    reply = Reply("a", POLICY.encode("a"), np.zeros(1), True)
    turn = Turn("", info, reply, info, "terminated", credits=credits or {})
    return Episode(turns=[turn], end="terminated", length_penalty=penalty)


def test_the_components_of_episodes_leave_advantage_credits_out_and_hold_the_length_penalty():
    marked = [Credit(0, 0.75, advantage=True), Credit(0, math.nan, advantage=True), Credit(0, 0.25)]
    group = [episode({"outcome": 1.0}, {"gigpo": marked}), episode({"outcome": 0.0}, penalty=-0.5)]
    found = components_of(group)
    assert list(found) == ["outcome", "gigpo", "length_penalty"]
    assert found["outcome"].tolist() == [1.0, 0.0]
    assert found["gigpo"][0] == 0.25
    assert math.isnan(found["gigpo"][1])
    assert found["length_penalty"].tolist() == [0.0, -0.5]


def test_the_learner_normalises_components_by_themselves():
    group = [episode({"outcome": o, "format": f}) for o, f in ((10.0, 0.0), (0.0, 0.5), (0.0, 0.0))]
    found = np.concatenate(
        group_advantages(
            group,
            POLICY,
            reward="merged",
            how=ComparisonSettings(normalize="components", component_weights={"format": 2.0}),
        )
    )
    close(found, gdpo({"outcome": [10, 0, 0], "format": [0, 0.5, 0]}, weights={"format": 2.0}))
    assert found[1] > found[0]  # twice the weight, one of three each


def test_weights_of_components_that_are_added_up_are_refused():
    with pytest.raises(ValueError, match="component_weights"):
        read_comparison("merged", component_weights={"format": 2.0})


def test_components_are_compared_by_their_std_alone():
    for settings in ({"estimator": "rloo"}, {"scale": "none"}):
        with pytest.raises(ValueError, match="normalize components"):
            read_comparison("merged", normalize="components", **settings)
        read_comparison("merged", **settings)
    read_comparison("merged", normalize="components", component_weights={"format": 2.0})


@pytest.mark.parametrize("reward", ["outcome", "turn", "mempo"])
def test_rewards_that_are_not_the_sum_of_all_turns_are_refused(reward):
    with pytest.raises(ValueError, match=f"(?i){reward}.*'normalize'"):
        read_comparison(reward, normalize="components")
