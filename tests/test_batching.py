"""Batches of sequences of similar length, worked out by hand."""

import numpy as np
import pytest

from memenvs.core.batching import micro_batches, pad_right, padded_tokens


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


def padding_share(lengths, batches):
    return 1 - sum(lengths) / padded_tokens(lengths, batches)


@pytest.mark.parametrize("budget", [8192, 10**6])
def test_little_is_padding_however_lengths_are_spread(budget):
    rng = np.random.default_rng(0)
    for lengths in (rng.integers(50, 1000, 256), [*rng.integers(80, 90, 30), 700], [10, 1000]):
        assert padding_share(list(lengths), micro_batches(list(lengths), budget)) <= 0.15


def test_few_batches_are_added_by_keeping_lengths_alike():
    lengths = np.random.default_rng(0).integers(100, 1000, 2000).tolist()
    assert len(micro_batches(lengths, 10**9)) <= 15


def test_rows_are_padded_with_zeros_behind_them():
    assert pad_right([[1, 2, 3], [4]]).tolist() == [[1, 2, 3], [4, 0, 0]]
    assert pad_right([]).shape == (0, 0)
