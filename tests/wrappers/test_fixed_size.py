"""Hashed n-grams: what is counted, where it goes, and that every process counts the same."""

import zlib

import gymnasium as gym
import numpy as np
import pytest

from memenvs.wrappers.fixed_size import ChooseReply, HashText, features, grams, hashed


def test_words_pairs_and_letter_triples_are_counted():
    # "ab cd": words ab, cd; triples <ab ab> <cd cd>; one pair
    wanted = ["ab", "#<ab", "#ab>", "cd", "#<cd", "#cd>", "ab cd"]
    assert grams("Ab cd") == tuple(zlib.crc32(gram.encode()) for gram in wanted)


def test_a_bucket_holds_one_plus_the_log_of_its_hits_at_length_1():
    # buckets of 4: 1 twice, 2 once: 1 + log 2 = 1.6931 and 1; length sqrt(1.69315^2 + 1) = 1.96641
    np.testing.assert_allclose(hashed([1, 5, 2], 4), [0, 0.86104, 0.50854, 0], atol=1e-5)


def test_a_reply_has_a_row_of_its_own_and_its_share():
    vector = features("the ab was cd", ["ab", "xy"], 8)
    assert vector.shape == (3 * 8 + 2,)
    np.testing.assert_array_equal(vector[8:16], features("ab", [], 8))
    assert vector[-2:].tolist() == [1.0, 0.0]  # all three n-grams of "ab" are in the text, none of "xy"


def test_a_text_environment_without_choices_is_its_text_alone():
    env = HashText(gym.make("memenvs:MemSokoban-v0", disable_env_checker=True), 16)
    vector, _ = env.reset(seed=0)
    assert vector.shape == env.observation_space.shape == (16,)
    assert vector in env.observation_space
    assert env.observation_space.high.max() == 1.0


def test_the_mask_is_the_environments_or_all_replies_where_nothing_helps():
    for env_id, mask in (("MemSokoban-v0", None), ("MemToolQA-v0", [True] * 9)):
        env = ChooseReply(gym.make(f"memenvs:{env_id}", disable_env_checker=True))
        env.reset(seed=0)
        assert env.action_masks().tolist() == (mask or env.unwrapped.choice_mask())
    env = ChooseReply(gym.make("memenvs:MemSokoban-v0", disable_env_checker=True))
    env.reset(seed=0)
    env.unwrapped.choice_mask = lambda: [False] * 4
    assert env.action_masks().tolist() == [True] * 4


@pytest.mark.parametrize("size", [0, True, 2.5])
def test_an_invalid_size_is_refused(size):
    with pytest.raises(ValueError, match="size must be a whole number"):
        HashText(gym.make("memenvs:MemSokoban-v0"), size)


def test_observations_that_are_not_texts_are_refused():
    with pytest.raises(ValueError, match="MemSokobanGrid-v0 has observations that are not texts"):
        HashText(gym.make("memenvs:MemSokobanGrid-v0"))
