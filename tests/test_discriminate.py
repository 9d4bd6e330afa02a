"""Ranking a true context against corrupted ones: the corruption, the numbers by hand, the command."""

import math
import re

import numpy as np
import pytest

from memenvs import open_tasks
from memenvs.evaluate import main
from memenvs.wrappers.corruption import corrupt, kind
from memenvs.wrappers.discriminate import discrimination, information_gain
from memenvs.wrappers.scorers import LexicalScorer


@pytest.fixture(scope="module")
def questions():
    return corrupt(open_tasks("world-test"))


def test_nearly_every_bridge_question_can_be_corrupted(questions):
    assert len(questions) > 100


def test_the_true_context_holds_the_answer(questions):
    assert all(one.answer in one.true for one in questions)


def test_the_foreign_context_lost_the_answer(questions):
    assert not any(one.answer in one.corrupted[0] for one in questions)


def test_the_swapped_context_has_the_same_words_in_other_places(questions):
    def words(text):
        return sorted(re.findall(r"\w+", text))

    kept = [one for one in questions if words(one.true) == words(one.corrupted[1])]
    assert len(kept) > 0.8 * len(questions)  # an answer with an alias may change its form
    assert all(one.answer in one.corrupted[1] and one.true != one.corrupted[1] for one in questions)


def test_corruption_follows_its_seed(questions):
    tasks = open_tasks("world-test")
    assert corrupt(tasks) == questions != corrupt(tasks, seed=1)


def test_answers_are_swapped_for_answers_of_their_kind():
    assert [kind(answer) for answer in ("1623", "42,050", "River Yulloa", "sheaf")] == ["9", "9", "AA", "a"]


def test_a_set_without_spans_is_refused(small_set):
    with pytest.raises(ValueError, match="bridge"):
        corrupt(open_tasks("niah"))


def test_the_rank_is_that_of_the_true_context():
    # ranks 1, 2, 3: (1 + 1/2 + 1/3) / 3
    scores = np.array([[3.0, 2, 1], [2, 3, 1], [1, 3, 2]])
    assert discrimination(scores).mrr == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_a_tie_is_broken_in_every_way():
    # with one other: (1 + 1/2) / 2; with both: (1 + 1/2 + 1/3) / 3
    assert discrimination(np.array([[2.0, 2, 1]])).mrr == pytest.approx(0.75)
    assert discrimination(np.array([[2.0, 2, 2]])).mrr == pytest.approx(11 / 18)


def test_the_signal_to_noise_ratio_by_hand():
    # z of (2, 0, 1) and (1, 0, 2), std sqrt(2/3): true sqrt(1.5) and 0, mean a = sqrt(1.5) / 2, var 3/8;
    # corrupted -sqrt(1.5), 0, -sqrt(1.5), sqrt(1.5): mean -a / 2, var 9/8 - (a / 2)^2
    a = 1.5**0.5 / 2
    noise = ((3 / 8 + 9 / 8 - (a / 2) ** 2) / 2) ** 0.5
    assert discrimination(np.array([[2.0, 0, 1], [1, 0, 2]])).snr == pytest.approx(1.5 * a / noise)


def test_a_measure_that_cannot_tell_has_no_signal():
    assert discrimination(np.ones((4, 3))).snr == 0.0


def test_a_measure_that_always_tells_alike_has_no_noise():
    assert discrimination(np.array([[1.0, 0, 0], [5, 4, 4]])) == (1.0, math.inf)


def test_overlap_of_words_sees_what_is_missing_and_not_what_is_swapped(questions):
    scores = information_gain(LexicalScorer())(questions)
    assert (scores[:, 0] > scores[:, 1]).mean() > 0.95
    assert np.median(scores[:, 0] - scores[:, 2]) == 0.0


def test_the_command_prints_a_table(capsys):
    assert main(["discriminate", "--measure", "lexical"]) == 0
    assert "information gain, lexical" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [[], ["dance"], ["discriminate", "--task-set", "niah"], ["discriminate", "--task-set", "no"]],
)
def test_a_wrong_command_line_is_one_line(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1
