"""What the sampling loop asks of its model: prompts read once, rows that leave, padding that stays small."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from memenvs.models import HFPolicy


@pytest.fixture(scope="module")
def policy(tiny_model):
    return HFPolicy(tiny_model, chat=False, device="cpu")


@pytest.fixture
def reads(policy):
    """Shapes (rows, tokens) of what the model was given since."""
    shapes = []
    hook = policy.model.model.register_forward_pre_hook(
        lambda module, args, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    yield shapes
    hook.remove()


def rngs(count):
    return [np.random.default_rng(i) for i in range(count)]


def test_copies_of_a_prompt_are_read_once(policy, reads):
    prompt, other = np.arange(100, 150), np.arange(200, 250)
    policy.sample([prompt, other, prompt, prompt], rngs(4), 3)
    assert reads == [(2, 50), (4, 1), (4, 1)]  # the last token of a reply need not be read


def test_rows_that_have_ended_leave_once_a_quarter_has(policy, reads):
    prompts = [np.arange(100, 110 + i) for i in range(4)]
    policy.sample(prompts, rngs(4), [1, 3, 3, 4])
    # after one token a quarter has ended: 3 rows go on; after three only the last
    assert reads[-3:] == [(3, 1), (3, 1), (1, 1)]


def test_rows_that_have_ended_stay_while_they_are_few(policy, reads):
    prompts = [np.arange(100, 110)] * 5
    policy.sample(prompts, rngs(5), [1, 3, 3, 3, 3])  # four fifths still write
    assert reads[1:] == [(5, 1), (5, 1)]


def test_a_row_that_has_ended_at_the_window_does_not_disturb_the_rest(policy):
    prompts = [np.full(1023, 100), *[np.arange(100, 110)] * 5]  # the first has room for one token
    found = policy.sample(prompts, rngs(6), 20)
    assert [len(reply.ids) for reply in found] == [1, 20, 20, 20, 20, 20]


def test_a_batch_keeps_to_its_budget_of_tokens(tiny_model, policy, reads):
    small = HFPolicy(policy.model, policy.tokenizer, chat=False, max_batch_tokens=100)
    reads.clear()  # its constructor has tried the model
    small.sample([np.arange(100, 110 + i) for i in range(4)], rngs(4), 35)
    # 2 rows of 13 + 35 tokens fit into 100, 3 do not; nor do 3 of 11 + 35
    assert max(rows for rows, _ in reads) == 2
    assert [shape for shape in reads if shape[1] > 1] == [(2, 13), (2, 11)]


def test_prompts_of_like_length_are_read_together(policy, reads):
    # 95 is at least 90% of 100 and is padded to it, 50 and 49 are not; 49 is of 50
    policy.sample([np.full(n, 100) for n in (50, 100, 49, 95)], rngs(4), 1)
    assert reads == [(2, 100), (2, 50)]
