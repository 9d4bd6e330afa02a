"""The scorer without a model."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from memenvs.wrappers.scorers import LexicalScorer, Scorer, ScoreRequest, SpanScorer

TEXTS = st.text(max_size=60)
WORDS = st.lists(st.sampled_from(["ada", "engine", "London", "moth", "1843", "...", "é"]), max_size=8)


def score(prompt, continuation):
    (scores,) = LexicalScorer().logprobs([ScoreRequest(prompt, continuation)])
    return scores


def test_a_word_of_the_prompt_scores_above_one_that_is_not():
    # "in" and "London" stand in the prompt, "Paris" does not
    np.testing.assert_array_equal(score("born in London", "in London Paris"), [-0.5, -0.5, -6.0])


def test_case_does_not_count():
    assert score("LONDON", "london").tolist() == [-0.5]


def test_part_of_a_word_is_not_that_word():
    assert score("Londoners", "London").tolist() == [-6.0]


def test_signs_are_tokens_of_their_own():
    assert score("Who? Ada.", "Ada!").tolist() == [-0.5, -6.0]


def test_an_empty_continuation_gives_an_empty_array():
    scores = score("London", "")
    assert scores.shape == (0,)
    assert scores.dtype == np.float64


def test_an_empty_prompt_makes_every_word_unlikely():
    assert score("", "Ada Lovelace").tolist() == [-6.0, -6.0]


def test_scores_come_in_request_order():
    requests = [ScoreRequest("a", "a b"), ScoreRequest("b", "a"), ScoreRequest("a", "")]
    assert [s.tolist() for s in LexicalScorer().logprobs(requests)] == [[-0.5, -6.0], [-6.0], []]


def test_no_requests_give_no_scores():
    assert LexicalScorer().logprobs([]) == []


def test_it_is_a_scorer_that_knows_its_spans():
    assert isinstance(LexicalScorer(), Scorer)
    assert isinstance(LexicalScorer(), SpanScorer)


def test_spans_are_the_characters_of_the_words():
    (spans,) = LexicalScorer().spans(["Ada  saw it."])
    assert spans.tolist() == [[0, 3], [3, 8], [8, 11], [11, 12]]


@given(WORDS, WORDS, WORDS)
def test_a_prompt_of_more_words_never_scores_lower(prompt, more, continuation):
    short, long = " ".join(prompt), " ".join(prompt + more)
    assert (score(long, " ".join(continuation)) >= score(short, " ".join(continuation))).all()


@given(WORDS, WORDS, st.sampled_from(["ada", "moth"]))
def test_a_word_more_that_overlaps_never_lowers_the_mean(prompt, continuation, word):
    prompt_text = " ".join([*prompt, word])
    before = score(prompt_text, " ".join(continuation))
    after = score(prompt_text, " ".join([*continuation, word]))
    assert len(before) == 0 or after.mean() >= before.mean()


@given(TEXTS, TEXTS)
def test_any_text_gives_finite_scores_one_a_span(prompt, continuation):
    scores, (spans,) = score(prompt, continuation), LexicalScorer().spans([continuation])
    assert np.isfinite(scores).all()
    assert len(scores) == len(spans)
    assert (len(scores) > 0) == (continuation != "")


@given(TEXTS)
def test_spans_laid_end_to_end_are_the_continuation(continuation):
    (spans,) = LexicalScorer().spans([continuation])
    assert "".join(continuation[start:end] for start, end in spans) == continuation
