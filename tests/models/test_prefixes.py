"""Groups of sequences with a common prefix, by hand; reading them together against one by one."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from model_families import build

from memenvs.baselines.train import checkpoint_gradients
from memenvs.models import HFPolicy
from memenvs.models.prefixes import (
    PackedBatch,
    Segment,
    can_read_packed,
    pack_batches,
    packed_tokens,
    prefix_tree,
    read_packed,
)


def ids(*parts):
    return np.concatenate([np.full(count, token) for token, count in parts]) if parts else np.zeros(0, int)


def test_a_common_prefix_is_a_segment_that_the_rest_follows():
    a, b, c = ids((1, 40), (2, 3)), ids((7, 9)), ids((1, 40), (3, 5))
    # a and c share 40 tokens; 256 would come before 2 by its bytes
    assert prefix_tree([a, b, c]) == [
        Segment(0, 0, 40, None),
        Segment(0, 40, 43, 0),
        Segment(2, 40, 45, 0),
        Segment(1, 0, 9, None),
    ]
    assert prefix_tree([]) == prefix_tree([ids()]) == []


def test_a_prefix_that_saves_less_than_its_row_costs_is_not_shared():
    for shared, segments in ((32, 2), (33, 3)):
        tree = prefix_tree([ids((1, shared), (2, 3)), ids((1, shared), (3, 5))])
        assert len(tree) == segments
    # the same 17 tokens are worth a segment of three sequences, and not of two
    assert len(prefix_tree([ids((1, 17), (n, 3)) for n in (2, 3)])) == 2
    assert len(prefix_tree([ids((1, 17), (n, 3)) for n in (2, 3, 4)])) == 4


def test_prefixes_are_shared_inside_prefixes():
    tasks = [ids((9, 50), (task, 100), (member, 10)) for task in (1, 2) for member in (3, 4, 5)]
    tree = prefix_tree(tasks)
    assert [(one.start, one.end, one.before) for one in tree] == [
        (0, 50, None),
        *[(50, 150, 0), (150, 160, 1), (150, 160, 1), (150, 160, 1)],
        *[(50, 150, 0), (150, 160, 5), (150, 160, 5), (150, 160, 5)],
    ]


def test_a_growing_context_is_read_once():
    whole = np.random.default_rng(0).integers(3, 500, 1000)
    turns = [np.concatenate([whole[:end], [1, 2]]) for end in range(100, 1001, 100)]
    assert packed_tokens(turns) == 1000 + 10 * 2


def test_a_prefix_leaves_each_sequence_a_token():
    same = [ids((1, 100))] * 3
    assert [(one.start, one.end) for one in prefix_tree(same)] == [(0, 99), *[(99, 100)] * 3]


def test_ids_are_compared_as_numbers_and_not_as_bytes():
    # 256 is (0, 1) in little-endian bytes and would part 1 from 1
    a, b, c = ids((1, 50), (2, 2)), ids((256, 50), (2, 2)), ids((1, 50), (3, 2))
    assert packed_tokens([a, b, c]) == 50 + 2 + 2 + 52


def test_every_sequence_is_the_path_to_its_segment():
    rng = np.random.default_rng(0)
    for _ in range(100):
        kept = [rng.integers(0, 2, rng.integers(0, 200)) for _ in range(3)]
        sequences = [
            np.concatenate([kept[rng.integers(3)][: rng.integers(200)], rng.integers(0, 2, rng.integers(5))])
            for _ in range(rng.integers(1, 12))
        ]
        tree = prefix_tree(sequences)
        ends = {*range(len(tree))} - {one.before for one in tree}
        assert sorted(tree[i].row for i in ends) == [i for i, one in enumerate(sequences) if len(one)]
        for number in ends:
            row, own, at = tree[number].row, [], number
            while at is not None:
                own, at = [*sequences[tree[at].row][tree[at].start : tree[at].end], *own], tree[at].before
            assert own == sequences[row].tolist()
        for budget in (1, 100, 1000):
            batches = pack_batches(sequences, budget)
            assert sorted(i for batch in batches for i in batch) == sorted(tree[i].row for i in ends)
            for batch in batches:
                tokens = packed_tokens([sequences[i] for i in batch])
                # shared prefixes of a part of the sequences may be too short for a segment
                assert len(batch) == 1 or tokens <= budget + 32 * len(batch)


def test_groups_stay_whole_where_they_fit_into_a_batch():
    a, b = [[ids((task, 50), (member, 10)) for member in (3, 4)] for task in (1, 2)]
    # each group computes 50 + 10 + 10 tokens; in order of length alone the four would be cut by turns
    assert pack_batches([a[0], b[0], a[1], b[1]], 100) == [[0, 2], [1, 3]]
    assert pack_batches([a[0], b[0], a[1], b[1]], 140) == [[0, 2, 1, 3]]


def test_a_group_larger_than_a_batch_is_split_and_reads_its_prefix_again():
    sequences = [ids((1, 50), (member, 10)) for member in (3, 4, 5)]
    # 50 + 10 + 10 tokens fit, and 10 more do not
    assert pack_batches(sequences, 75) == [[0, 1], [2]]
    assert pack_batches(sequences, 5) == [[0], [1], [2]]
    assert pack_batches([], 5) == []


def test_a_shared_prefix_counts_once():
    # 50 + 3 * 10 of one group, and 7
    assert packed_tokens([ids((1, 50), (member, 10)) for member in (3, 4, 5)] + [ids((9, 7))]) == 87


def test_an_attention_call_has_room_for_the_prefix_of_each_row():
    sequences = [ids((1, 1500), (member, 5)) for member in range(2, 102)]
    # 16,384 tokens of rows of 1,505: their keys and values are copied for each row
    rows = [call.rows for call in PackedBatch(sequences, "cpu").calls if call.before]
    assert rows == [10] * 10


FAMILIES = ["Llama", "GPT2", "Gemma2", "Gemma3Text", "Mistral", "Qwen2", "OPT", "GPTNeoX", "Nemotron"]


def alike():
    """Sequences of two groups, one longer than a block of queries, one twice; lone ones, an empty one.

    Two continue one of a group, and one of these the other.
    """
    rng = np.random.default_rng(0)
    a, b = rng.integers(3, 500, 150), rng.integers(3, 500, 70)
    made = [np.concatenate([a, rng.integers(3, 500, n)]) for n in (5, 30, 17, 140)]
    made += [np.concatenate([b, rng.integers(3, 500, n)]) for n in (9, 50)]
    made += [rng.integers(3, 500, n) for n in (1, 200)]
    made += [np.concatenate([made[3][:200], rng.integers(3, 500, 60)])]
    made += [np.concatenate([made[-1], rng.integers(3, 500, n)]) for n in (40, 7)]
    return [*made, made[0].copy(), rng.integers(3, 500, 0)]


@pytest.mark.parametrize("family", FAMILIES)
def test_states_and_gradients_are_those_of_each_sequence_alone(family):
    model = build(family, **({"word_embed_proj_dim": 32} if family == "OPT" else {})).double()
    backbone, sequences = model.base_model, alike()
    assert can_read_packed(backbone)
    weights = [
        torch.randn(len(s), 32, generator=torch.Generator().manual_seed(i)) for i, s in enumerate(sequences)
    ]
    loss = 0.0
    for one, own in zip(sequences, weights, strict=True):
        if len(one):
            states = backbone(input_ids=torch.from_numpy(one)[None], use_cache=False).last_hidden_state[0]
            loss += (states * own).sum()
    wanted = torch.autograd.grad(loss, list(backbone.parameters()), allow_unused=True)
    batch = PackedBatch(sequences, "cpu")
    assert len(batch.ids) == packed_tokens(sequences) < sum(map(len, sequences)) - 500
    states = read_packed(backbone, batch)
    again = sum((states[places] * own).sum() for places, own in zip(batch.places, weights, strict=True))
    torch.testing.assert_close(again, loss, rtol=1e-6, atol=1e-5)
    found = torch.autograd.grad(again, list(backbone.parameters()), allow_unused=True)
    for one, other in zip(found, wanted, strict=True):
        if other is not None:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-8 + 1e-5 * float(other.abs().max()))


@pytest.mark.parametrize("window", [None, 700])
def test_long_sequences_keep_no_scores_and_give_the_same(window):
    model = build("Mistral", max_position_embeddings=4096, sliding_window=window).double()
    rng = np.random.default_rng(0)
    start = rng.integers(3, 500, 1200)
    sequences = [np.concatenate([start, rng.integers(3, 500, n)]) for n in (900, 1000)]
    batch = PackedBatch(sequences, "cpu")
    states = read_packed(model.base_model, batch)
    for ids_, places in zip(sequences, batch.places, strict=True):
        alone = model.base_model(input_ids=torch.from_numpy(ids_)[None], use_cache=False).last_hidden_state[0]
        torch.testing.assert_close(states[places], alone, rtol=0, atol=1e-4)


@pytest.mark.parametrize("family", ["Bloom", "Rwkv", "Phi3", "RecurrentGemma"])
def test_models_whose_attention_is_not_handed_over_are_refused(family):
    assert not can_read_packed(build(family).base_model)


def test_a_class_whose_attention_transformers_does_not_change_is_refused():
    class Mine(transformers.LlamaModel):
        """A model of a notebook, whose source transformers cannot read."""

    Mine.__module__ = "a_notebook"
    Mine._can_set_attn_implementation_cached_value = None  # of Llama, if it was asked before
    model = Mine(build("Llama").config)
    assert not can_read_packed(model)


def group(rng):
    """Eight sequences of a prompt that is mostly shared, and masks of replies; one reply is empty."""
    start = rng.integers(3, 500, 60)
    sequences, masks = [], []
    for n in range(8):
        prompt = np.concatenate([start, rng.integers(3, 500, 3 * n + 1)])
        sequences.append(np.concatenate([prompt, rng.integers(3, 500, 5 * n)]))
        masks.append(np.arange(len(sequences[-1])) >= len(prompt))
    return sequences, masks


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "GPT2"])
def test_forward_gives_the_same_as_padded_rows(family, tokenizer):
    policy = HFPolicy(build(family, vocab_size=4096), tokenizer, chat=False).add_value_head()
    sequences, masks = group(np.random.default_rng(0))
    outputs = []
    for packs in (True, False):
        assert policy._packs or not packs
        policy._packs = packs
        output = policy.forward(sequences, masks, entropy=True)
        torch.testing.assert_close(policy.values(sequences, masks), output.values)
        policy.model.zero_grad()
        (output.logprobs.sum() + output.values.square().sum()).backward()
        outputs.append(
            [
                *(one.detach() for one in output),
                *(weight.grad.clone() for weight in policy.model_parameters()),
            ]
        )
    for one, other in zip(*outputs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-4 * max(1.0, float(other.abs().max())))


def test_forward_reads_a_shared_prompt_once_and_nothing_after_the_last_response_token(tokenizer):
    policy = HFPolicy(build("Llama", vocab_size=4096), tokenizer, chat=False)
    start, shapes = np.arange(3, 103), []
    sequences = [np.concatenate([start, np.full(4, 200 + n)]) for n in range(8)]
    policy.model.base_model.register_forward_pre_hook(
        lambda module, args, named: shapes.append(tuple(named["input_ids"].shape)), with_kwargs=True
    )
    policy.forward(sequences, [np.arange(104) >= 100] * 8)
    # 100 tokens of the prompt and three of each reply: the last one predicts nothing
    assert shapes == [(1, 124), (1, 1)]  # and one token for the logits


def test_with_gradient_checkpointing_rows_are_padded(tokenizer):
    policy = HFPolicy(build("Llama", vocab_size=4096), tokenizer, chat=False)
    sequences, _ = group(np.random.default_rng(0))
    together = policy.micro_batches(sequences, 10_000)
    assert policy.computed(sequences, together) == packed_tokens(sequences)
    checkpoint_gradients(policy.model)
    assert not policy.packs
    # lengths from 61 to 117: those within 15% of the longest are a batch
    apart = policy.micro_batches(sequences, 10_000)
    assert len(apart) > 1
    assert policy.computed(sequences, apart) >= sum(map(len, sequences))


def test_logits_in_slices_give_the_same(tokenizer, monkeypatch):
    policy = HFPolicy(build("Llama", vocab_size=4096), tokenizer, chat=False)
    sequences, masks = group(np.random.default_rng(0))
    outputs = []
    for numbers in (4096 * 1000, 4096 * 9):  # 140 response tokens in one slice, or nine tokens each
        monkeypatch.setattr("memenvs.models.reader.LOGITS", numbers)
        output = policy.forward(sequences, masks, entropy=True)
        policy.model.zero_grad()
        (output.logprobs.sum() + output.entropy.square().sum()).backward()
        gradients = [weight.grad.clone() for weight in policy.model_parameters()]
        outputs.append([output.logprobs.detach(), output.entropy.detach(), *gradients])
    for one, other in zip(*outputs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * max(1.0, float(other.abs().max())))
