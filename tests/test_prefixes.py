"""Groups of sequences that begin alike, worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from memenvs.models.prefixes import PrefixGroup, group_by_prefix


def ids(*parts):
    return np.concatenate([np.full(count, token) for token, count in parts]) if parts else np.zeros(0, int)


def test_sequences_that_begin_alike_are_one_group():
    a, b, c = ids((1, 40), (2, 3)), ids((7, 9)), ids((1, 40), (3, 5))
    # a and c share 40 tokens and save 40 - 32
    assert group_by_prefix([a, b, c]) == [PrefixGroup(40, [0, 2]), PrefixGroup(0, [1])]


def test_a_prefix_that_saves_less_than_its_row_costs_is_not_shared():
    a, b = ids((1, 40), (2, 3)), ids((1, 40), (3, 5))
    assert group_by_prefix([a, b], least=40) == [PrefixGroup(0, [0]), PrefixGroup(0, [1])]


def test_the_groups_that_save_most_are_taken():
    tasks = [ids((9, 50), (task, 100), (member, 10)) for task in (1, 2) for member in (3, 4, 5)]
    # two groups of three save 2 * (150 * 2 - 32) = 536 tokens, one group of six 50 * 5 - 32 = 218
    assert group_by_prefix(tasks) == [PrefixGroup(150, [0, 1, 2]), PrefixGroup(150, [3, 4, 5])]


def test_no_prefix_is_longer_than_allowed():
    same = [ids((1, 100))] * 3
    assert group_by_prefix(same) == [PrefixGroup(99, [0, 1, 2])]
    assert group_by_prefix(same, most=[60, 90, 70]) == [PrefixGroup(60, [0, 2, 1])]


def test_ids_are_compared_as_numbers_and_not_as_bytes():
    # 256 is (0, 1) in little-endian bytes and would part 1 from 1
    a, b, c = ids((1, 50), (2, 2)), ids((256, 50), (2, 2)), ids((1, 50), (3, 2))
    assert [group.rows for group in group_by_prefix([a, b, c])] == [[0, 2], [1]]


def test_no_partition_saves_more():
    rng = np.random.default_rng(0)
    for _ in range(8):
        sequences = [rng.integers(0, 2, rng.integers(1, 12)) for _ in range(5)]
        found = sum(
            group.prefix * (len(group.rows) - 1) - 2
            for group in group_by_prefix(sequences, least=2)
            if group.prefix
        )
        assert found == max(
            saved(sequences, partition) for partition in itertools.product(range(5), repeat=5)
        )


def saved(sequences, partition):
    """Tokens that a partition saves, by the definition; partition[i] is the group of sequence i."""
    total = 0
    for number in set(partition):
        members = [tuple(s[:-1]) for s, own in zip(sequences, partition, strict=True) if own == number]
        prefix = 0
        while len({m[: prefix + 1] for m in members}) == 1 and all(len(m) > prefix for m in members):
            prefix += 1
        total += max(0, prefix * (len(members) - 1) - 2) if len(members) > 1 else 0
    return total


def test_no_sequences_are_no_groups():
    assert group_by_prefix([]) == []
    assert group_by_prefix([ids(), ids((1, 1))]) == [PrefixGroup(0, [0]), PrefixGroup(0, [1])]
