"""Batches of sequences of like length, worked out by hand."""

import numpy as np
import pytest

from memenvs.core.batching import micro_batches, pad_right, padded_tokens


def test_every_sequence_is_in_one_batch_within_the_budget():
    batches = micro_batches([3, 10, 4, 9, 2, 30], 20)
    assert sorted(i for batch in batches for i in batch) == list(range(6))
    # 10 and 9 padded to 10; none of the others has 85% of the one before it
    assert batches == [[5], [1, 3], [2], [0], [4]]


def test_sequences_of_one_length_keep_their_order():
    assert micro_batches([5, 7, 5, 7], 100, alike=0) == [[1, 3, 0, 2]]


def test_alike_is_the_least_share_of_the_longest():
    assert micro_batches([100, 90, 89], 1_000, alike=0.9) == [[0, 1], [2]]
    assert micro_batches([100, 90, 100], 1_000, alike=1) == [[0, 2], [1]]


def test_each_sequence_needs_room_for_the_extra_tokens():
    # 2 x (10 + 15) fit into 50; 3 x (10 + 15) do not, and would without the 15
    assert micro_batches([10, 10, 10], 50, extra=15) == [[0, 1], [2]]
    assert micro_batches([10, 10, 10], 50) == [[0, 1, 2]]


def test_a_sequence_longer_than_the_budget_is_a_batch_of_its_own():
    assert micro_batches([20_000, 19_999, 100, 100], 16_384) == [[0], [1], [2, 3]]


def test_no_sequences_need_no_batch():
    assert micro_batches([], 10) == []


def padding_share(lengths, batches):
    return 1 - sum(lengths) / padded_tokens(lengths, batches)


def test_padding_fills_the_rows():
    # 20 + 12 + 30 positions hold 58 tokens: 4 of 62 are padding
    assert padding_share([3, 10, 4, 9, 2, 30], [[5], [1, 3], [2, 0, 4]]) == pytest.approx(4 / 62)


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
