"""GiGPO: its equations against separate NumPy code, its states, and the learner's advantage."""

import gymnasium as gym
import numpy as np
import pytest
from groups import gold, play_group

from memenvs.core.episode import Credit, Episode, Reply, Turn
from memenvs.credit import gigpo
from memenvs.wrappers import GiGPO, RewardWrapper
from memenvs.wrappers.gigpo import similar_states, state_of

close = np.testing.assert_allclose
REWARDS = [[0.5, 0.0, 1.0], [0.0, -0.5], [1.0, 1.0, 0.0, 2.0]]
STATES = [["start", "a", "b"], ["start", "b"], ["start", "a", "a", "c"]]


def by_hand(gamma, std):
    """Eq. 5 to 7, state by state."""
    returns = [
        [sum(gamma ** (later - k) * row[later] for later in range(k, len(row))) for k in range(len(row))]
        for row in REWARDS
    ]
    found = [np.zeros(len(row)) for row in REWARDS]
    for state in ("start", "a", "b", "c"):
        places = [(i, k) for i, row in enumerate(STATES) for k, own in enumerate(row) if own == state]
        values = np.array([returns[i][k] for i, k in places])
        spread = values.std(ddof=1) + 1e-6 if std and len(values) > 1 else 1.0
        for (i, k), value in zip(places, (values - values.mean()) / spread, strict=True):
            found[i][k] = value
    return found


@pytest.mark.parametrize("gamma", [0.0, 0.95, 1.0])
@pytest.mark.parametrize("scale", ["std", "none"])
def test_discounted_returns_are_compared_in_equal_states(gamma, scale):
    wanted = by_hand(gamma, scale == "std")
    for found, row in zip(gigpo(REWARDS, STATES, gamma=gamma, scale=scale), wanted, strict=True):
        close(found, row, atol=1e-12)


def test_equal_states_of_two_groups_are_not_compared():
    found = gigpo([[1.0], [3.0], [7.0]], [["s"], ["s"], ["s"]], groups=["a", "a", "b"], scale="none")
    assert [row.tolist() for row in found] == [[-1.0], [1.0], [0.0]]


def test_the_rewards_that_are_given_stay_as_they_are():
    rewards = [np.array([0.0, 1.0])]
    gigpo(rewards, [["s", "t"]])
    assert rewards[0].tolist() == [0.0, 1.0]
    assert gigpo([], []) == []


# States.


def turn(observation, feedback="", **privileged):
    before = {"privileged": privileged, "feedback": feedback}
    return Turn(observation, before, Reply("reply"), {"turn_rewards": []})


def test_the_state_is_the_environments_or_the_feedback_or_the_prompt():
    assert state_of(turn("all so far", "what came back", state="board")) == "board"
    assert state_of(turn("all so far", "what came back")) == "what came back"
    assert state_of(turn("the prompt")) == "the prompt"
    assert state_of(turn({"image": None, "text": "the prompt"})) == "the prompt"


def test_texts_that_share_most_of_their_words_are_one_state():
    # 3 of 4 words are shared: 2 * 3 / (4 + 4) = 0.75
    texts = [["the mayor of Bel", "a river"], ["the mayor of Cel", "the mayor of Bel"]]
    assert similar_states(texts, 1) == texts
    assert similar_states(texts, 0.76) == texts
    assert similar_states(texts, 0.75) == [["the mayor of Bel", "a river"], ["the mayor of Bel"] * 2]
    assert similar_states(texts, 0) == [["the mayor of Bel"] * 2] * 2
    assert similar_states([["a b", "b a"]], 1) == [["a b", "b a"]]  # equal texts alone
    assert similar_states([["a", "a"], ["b"]], 0.9) == [["a", "a"], ["b"]]


def test_a_word_is_shared_as_often_as_both_texts_have_it():
    # One a and one b are shared: 2 * 2 / (4 + 4) = 0.5
    texts = [["a a a b", "a b b b"]]
    assert similar_states(texts, 0.5) == [["a a a b"] * 2]
    assert similar_states(texts, 0.51) == texts


def test_texts_of_a_megabyte_are_compared():
    long = " ".join(f"word{number}" for number in range(100_000))
    shorter, half = long.rpartition(" ")[0], long[: len(long) // 2]
    assert similar_states([[long, shorter, half]], 0.9) == [[long, long, half]]


def test_an_episode_that_an_error_ended_is_compared_with_none():
    def played(reward, error=""):
        info = {"turn_rewards": [reward], "rewards": {"outcome": reward}}
        one = Turn("s", {"privileged": {}, "feedback": ""}, Reply("x"), info, "terminated")
        return Episode(turns=[one], end="terminated", error=error)

    group = [played(0.0), played(1.0), played(9.0, error="away"), Episode(error="never began")]
    credits = GiGPO(scale="none", omega=2.0).assign_credit(group)
    assert [[credit.value for credit in own] for own in credits] == [[-1.0], [1.0], [], []]
    assert credits[0] == [Credit(0, -1.0, advantage=True)]


# Played.


def test_one_board_is_one_state_though_the_text_of_the_episode_grows():
    env = RewardWrapper(gym.make("MemSokoban-v0", rewards="outcome", max_turns=3), [GiGPO()])
    _, info = env.reset(seed=0)
    boards = [info["privileged"]["state"]]
    for _ in range(3):
        info = env.step("no move")[4]
        boards.append(info["privileged"]["state"])
    assert len(set(boards)) == 1
    assert [credit.value for credit in info["credits"]["gigpo"]] == [0.0] * 3  # compared: equal returns


def test_in_a_group_the_turns_on_one_board_are_compared_and_the_credit_is_an_advantage():
    env = gym.make("MemSokoban-v0", rewards="outcome", max_turns=2)
    methods = [["GiGPO", {"gamma": 0.5, "scale": "none", "omega": 2.0}]]
    group = play_group(env, ["x"], [gold], ["y"], methods=methods)  # the second one solves the board
    credits = [[credit.value for credit in episode.credits["gigpo"]] for episode in group]
    states = [[state_of(one) for one in episode.turns] for episode in group]
    rewards = [episode.turns[-1].info["turn_rewards"] for episode in group]
    assert max(map(max, rewards)) == 10.0
    for found, row in zip(credits, gigpo(rewards, states, gamma=0.5, scale="none"), strict=True):
        close(found, 2 * row)
    assert credits[0][0] < 0 < credits[1][0]
    assert all(credit.advantage for episode in group for credit in episode.credits["gigpo"])
