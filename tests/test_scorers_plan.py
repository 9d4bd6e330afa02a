"""Which passes of a model read a set of token sequences."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memenvs.models.prefix import Pass, plan

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple), max_size=8, unique=True)


def passes(sequences, budget=1_000, overhead=0, reuse=True):
    return list(plan([np.array(ids) for ids in sequences], budget, overhead, reuse))


def tokens(steps):
    return sum(len(step.lanes) * (step.stop - step.start) for step in steps)


def test_a_shared_prompt_is_read_once():
    prompt = [7] * 50
    # 50 once, then two ends of 3 in one batch that stands on it
    assert passes([[*prompt, 1, 1, 1], [*prompt, 2, 2, 2]]) == [
        Pass(0, 50, [[0, 1]], keep=True),
        Pass(50, 53, [[0], [1]], keep=False),
    ]


def test_a_growing_history_is_read_once():
    # the ends 8 and 9 stand on 1 2 3 and on 1 2 3 4 5: five tokens of history and two ends
    steps = passes([[1, 2, 3, 8], [1, 2, 3, 4, 5, 9], [1, 2, 3, 4, 5]])
    assert tokens(steps) == 5 + 1 + 1


def test_a_prefix_that_saves_less_than_a_pass_costs_is_not_kept():
    assert not any(step.keep for step in passes([[7, 7, 1], [7, 7, 2]], overhead=2))
    assert any(step.keep for step in passes([[7, 7, 1], [7, 7, 2]], overhead=1))


def test_nothing_is_kept_where_the_cache_cannot_be_cut():
    assert passes([[7, 7, 1], [7, 7, 2]], reuse=False) == [Pass(0, 3, [[0], [1]], keep=False)]


def test_batches_hold_sequences_of_like_length():
    # padding 2 fits an overhead of 2, padding 2 + 4 does not
    steps = passes([[1] * 9, [2] * 7, [3] * 5], overhead=2)
    assert [step.lanes for step in steps] == [[[0], [1]], [[2]]]


def test_a_batch_stays_within_its_budget():
    steps = passes([[i] * 10 for i in range(5)], budget=25)
    assert [len(step.lanes) for step in steps] == [2, 2, 1]


def test_a_sequence_longer_than_the_budget_is_read_in_parts():
    assert [(step.start, step.stop, step.keep) for step in passes([[1] * 25], budget=10)] == [
        (0, 10, True),
        (10, 20, True),
        (20, 25, False),
    ]


def test_no_sequences_need_no_pass():
    assert passes([]) == []


def test_a_long_chain_of_prefixes_needs_no_recursion():
    chain = [[1] * size for size in range(1, 1_500)]
    assert tokens(passes(chain, budget=10_000)) == 1_499


@given(SEQUENCES, st.integers(1, 40), st.integers(0, 20), st.booleans())
def test_every_token_is_read_on_a_prefix_that_is_kept(sequences, budget, overhead, reuse):
    kept, read = (), [0] * len(sequences)
    for step in passes(sequences, budget, overhead, reuse):
        for lane in step.lanes:
            for i in lane:
                assert kept[: step.start] == sequences[i][: step.start]
                assert len({sequences[j][: step.stop] for j in lane}) == 1
                assert read[i] >= step.start  # nothing between was left out
                read[i] = max(read[i], min(step.stop, len(sequences[i])))
        if step.keep:
            kept = kept[: step.start] + sequences[step.lanes[0][0]][step.start : step.stop]
    assert read == [len(ids) for ids in sequences]


@given(SEQUENCES, st.integers(0, 20))
def test_a_plan_never_reads_more_than_one_by_one_and_its_padding(sequences, overhead):
    steps = passes(sequences, overhead=overhead)
    assert tokens(steps) <= sum(map(len, sequences)) + overhead * len(steps)


@pytest.mark.parametrize("budget", [1, 3, 1_000])
def test_without_overhead_each_distinct_beginning_is_read_once(budget):
    # the trie of 112, 113, 12, 3 has the edges 1, 1, 2, 3, 2, 3: six tokens
    assert tokens(passes([[1, 1, 2], [1, 1, 3], [1, 2], [3]], budget)) == 6
