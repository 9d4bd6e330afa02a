"""The scorer without a model."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memenvs.wrappers.scorers import LexicalScorer, ScoreRequest

TEXTS = st.text(max_size=60)
WORDS = st.lists(st.sampled_from(["ada", "engine", "London", "moth", "1843", "...", "é"]), max_size=8)


def score(prompt, continuation):
    (scores,) = LexicalScorer().logprobs([ScoreRequest(prompt, continuation)])
    return scores


def test_a_word_of_the_prompt_scores_above_one_that_is_not():
    # "in" and "London" stand in the prompt, "Paris" does not
    np.testing.assert_array_equal(score("born in London", "in London Paris"), [-0.5, -0.5, -6.0])


def test_part_of_a_word_is_not_that_word():
    assert score("Londoners", "London").tolist() == [-6.0]


def test_signs_are_tokens_of_their_own():
    assert score("Who? Ada.", "Ada!").tolist() == [-0.5, -6.0]


@given(TEXTS, TEXTS, TEXTS)
def test_an_opening_changes_no_score(prompt, continuation, opening):
    (scores,) = LexicalScorer().logprobs([ScoreRequest(prompt, continuation, opening)])
    np.testing.assert_array_equal(scores, score(prompt, continuation))


@given(WORDS, WORDS, WORDS)
def test_a_prompt_of_more_words_never_scores_lower(prompt, more, continuation):
    short, long = " ".join(prompt), " ".join(prompt + more)
    assert (score(long, " ".join(continuation)) >= score(short, " ".join(continuation))).all()


@given(TEXTS, TEXTS)
def test_any_text_gives_finite_scores(prompt, continuation):
    scores = score(prompt, continuation)
    assert np.isfinite(scores).all()
    assert (len(scores) > 0) == (continuation != "")
