"""Batches of sequences of similar length, worked out by hand."""

import pytest

from memenvs.core.batching import micro_batches, pad_right


@pytest.mark.parametrize(
    ("lengths", "budget", "options", "batches"),
    [
        # 10 and 9 padded to 10; none of the others has 85% of the one before it
        ([3, 10, 4, 9, 2, 30], 20, {}, [[5], [1, 3], [2], [0], [4]]),
        ([5, 7, 5, 7], 100, {"alike": 0}, [[1, 3, 0, 2]]),
        ([100, 90, 89], 1_000, {"alike": 0.9}, [[0, 1], [2]]),
        ([100, 90, 100], 1_000, {"alike": 1}, [[0, 2], [1]]),
        # 2 x (10 + 15) fit into 50; 3 x (10 + 15) do not, and would without the 15
        ([10, 10, 10], 50, {"extra": 15}, [[0, 1], [2]]),
        ([10, 10, 10], 50, {}, [[0, 1, 2]]),
        ([20_000, 19_999, 100, 100], 16_384, {}, [[0], [1], [2, 3]]),  # longer than the budget
        ([], 10, {}, []),
    ],
)
def test_sequences_of_like_length_share_a_batch_within_the_budget(lengths, budget, options, batches):
    assert micro_batches(lengths, budget, **options) == batches


def test_rows_are_padded_with_zeros_behind_them():
    assert pad_right([[1, 2, 3], [4]]).tolist() == [[1, 2, 3], [4, 0, 0]]
    assert pad_right([]).shape == (0, 0)
