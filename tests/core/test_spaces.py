"""The space of Unicode texts."""

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.wrappers import DelayObservation, FlattenObservation, FrameStackObservation
from hypothesis import given
from hypothesis import strategies as st

import memenvs
from memenvs.core.spaces import UnicodeText, clean_text


def test_texts_with_spaces_accents_and_emoji_are_inside():
    space = UnicodeText()
    assert all(space.contains(text) for text in ["", "hello world", "café\n", "日本語 👩‍👩‍👧", "\0"])


@pytest.mark.parametrize("outside", ["\ud800", b"bytes", 3, None, ["a"]])
def test_what_is_no_text_is_outside(outside):
    assert not UnicodeText().contains(outside)


def test_samples_are_printable_texts_of_the_space_that_follow_the_seed():
    assert UnicodeText(seed=3).sample() == UnicodeText(seed=3).sample()
    space = UnicodeText(seed=0)
    samples = [space.sample() for _ in range(300)]
    assert all(space.contains(sample) and sample.isprintable() for sample in samples)
    assert space.from_jsonable(space.to_jsonable(samples)) == samples


def test_an_async_vector_environment_of_gymnasium_gives_the_same_texts_without_shared_memory():
    makers = [lambda: gym.make("memenvs:MemChunkQA-v0")] * 2
    venvs = [gym.vector.SyncVectorEnv(makers), gym.vector.AsyncVectorEnv(makers, shared_memory=False)]
    seen = [(venv.reset(seed=[4, 5])[0], venv.step(("a", "b"))[0]) for venv in venvs]
    for venv in venvs:
        venv.close()
    assert seen[0] == seen[1]


@given(st.text(alphabet=st.characters(codec=None), max_size=50), st.integers(1, 40))
def test_a_cleaned_text_is_in_the_space_whatever_it_was(text, size):
    cleaned = clean_text(text, size)
    assert UnicodeText().contains(cleaned)
    assert len(cleaned) <= size


def test_each_lone_surrogate_becomes_one_replacement_character():
    assert clean_text("a\ud800b", 10) == "a\ufffdb"
    assert clean_text("a\ud83d\ude00b", 10) == "a\ufffd\ufffdb"  # so positions in the raw text stay valid


REPLY = "<think></think><answer>Up</answer>"


@pytest.mark.parametrize("env_id", memenvs.ENV_IDS)
def test_a_stack_of_observations_holds_the_last_ones(env_id):
    plain, stacked = gym.make(env_id), FrameStackObservation(gym.make(env_id), 2)
    seen = [plain.reset(seed=0)[0], plain.step(REPLY)[0]]
    first, second = stacked.reset(seed=0)[0], stacked.step(REPLY)[0]
    assert stacked.observation_space.contains(first)
    assert data_equivalence(tuple(_rows(first)), (seen[0], seen[0]))  # a reset fills the stack
    assert data_equivalence(tuple(_rows(second)), tuple(seen))


def _rows(stack):
    """Each observation of a stack; one of pictures and texts is a dictionary of stacks."""
    if isinstance(stack, dict):
        return [dict(zip(stack, row, strict=True)) for row in zip(*stack.values(), strict=True)]
    return stack


def test_a_delayed_text_is_empty_first():
    plain, delayed = gym.make("MemSokoban-v0"), DelayObservation(gym.make("MemSokoban-v0"), 1)
    first, _ = plain.reset(seed=0)
    assert delayed.reset(seed=0)[0] == ""
    assert delayed.step(REPLY)[0] == first


def test_a_text_is_flat_and_a_picture_beside_it_is_flattened():
    text = FlattenObservation(gym.make("MemSokoban-v0"))
    assert text.reset(seed=0)[0] == gym.make("MemSokoban-v0").reset(seed=0)[0]
    both = FlattenObservation(gym.make("MemSokobanImage-v0"))
    observation, _ = both.reset(seed=0)
    assert observation["image"].shape == (6 * 32 * 6 * 32 * 3,)
    assert isinstance(observation["text"], str)
    assert both.observation_space.contains(observation)
