"""The transformers policy: what it samples, its log-probabilities, and how it is saved."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers
from tiny_model import joined, plain_logprobs

from memenvs.models import HFPolicy, SamplingParams
from memenvs.wrappers.scorers.protocol import TokenPair

TEXTS = ("Ada", "Ada Lovelace wrote the first program", "Who? " * 40, "Ada", "é😀")
END = 2


@pytest.fixture(scope="module")
def policy(tiny_model):
    return HFPolicy(tiny_model, chat=False, device="cpu").add_value_head()


@pytest.fixture(scope="module")
def model(tiny_model):
    return transformers.AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32")


def rngs(count=5, seed=0):
    return [np.random.default_rng([seed, i]) for i in range(count)]


def replies(policy, limit=40, texts=TEXTS, seed=0):
    return policy.sample([policy.encode(text) for text in texts], rngs(len(texts), seed), limit)


def played(policy, found):
    return joined([policy.encode(text) for text in TEXTS], found)


def reference(policy, sequences, response_masks):
    """Log-probabilities of response tokens by their definition, each sequence alone."""
    pairs = [
        TokenPair(s[~mask].tolist(), s[mask].tolist())
        for s, mask in zip(sequences, response_masks, strict=True)
    ]
    return np.concatenate([plain_logprobs(policy.model, pair) for pair in pairs])


def same(some, others):
    for one, other in zip(some, others, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert (one.text, one.finished) == (other.text, other.finished)
        np.testing.assert_allclose(one.logprobs, other.logprobs, rtol=0, atol=1e-4)


def test_a_reply_does_not_depend_on_its_batch(policy):
    together = replies(policy)
    alone = [policy.sample([policy.encode(text)], [rngs()[i]], 40)[0] for i, text in enumerate(TEXTS)]
    same(together, alone)


def test_the_size_of_batches_does_not_matter(policy, model):
    small = HFPolicy(model, policy.tokenizer, chat=False, max_batch_tokens=300)
    same(replies(policy), replies(small))


def test_a_reply_starts_the_same_under_a_longer_limit(policy):
    for short, long in zip(replies(policy, 7), replies(policy, 30), strict=True):
        assert short.ids.tolist() == long.ids[:7].tolist()


def test_the_global_generators_are_not_used(policy):
    before = torch.random.get_rng_state()
    replies(policy)
    HFPolicy(policy.model, policy.tokenizer).add_value_head()
    assert torch.equal(before, torch.random.get_rng_state())


def test_sampled_logprobs_are_those_of_the_definition(policy):
    found = replies(policy)
    wanted = reference(policy, *played(policy, found))
    np.testing.assert_allclose(np.concatenate([r.logprobs for r in found]), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.6}, {"temperature": 1.7, "top_p": 0.8}, {"top_k": 5}]
)
def test_forward_gives_the_logprobs_of_sampling(policy, model, settings):
    other = HFPolicy(model, policy.tokenizer, chat=False, sampling_params=SamplingParams(**settings))
    found = replies(other)
    said = other.forward(*played(other, found)).logprobs.detach().numpy()
    np.testing.assert_allclose(said, np.concatenate([r.logprobs for r in found]), rtol=0, atol=1e-4)


def test_temperature_0_takes_the_likeliest_token_with_its_logprob_at_1(policy, model):
    greedy = HFPolicy(model, policy.tokenizer, chat=False, sampling_params=SamplingParams(temperature=0))
    found = replies(greedy)
    sequences, response_masks = played(greedy, found)
    np.testing.assert_allclose(
        np.concatenate([r.logprobs for r in found]),
        reference(greedy, sequences, response_masks),
        rtol=0,
        atol=1e-4,
    )
    with torch.no_grad():
        logits = model(torch.from_numpy(sequences[1])[None]).logits[0]
    assert logits.argmax(-1)[np.flatnonzero(response_masks[1]) - 1].tolist() == found[1].ids.tolist()


def test_a_policy_at_another_temperature_is_the_same_model(policy):
    greedy = policy.at_temperature(0)
    same(replies(greedy), replies(greedy, seed=1))
    assert [reply.ids.tolist() for reply in replies(policy)] != [r.ids.tolist() for r in replies(greedy)]
    assert greedy.model is policy.model


def test_a_reply_ends_with_the_end_token_which_its_text_leaves_out(policy):
    ended = [reply for reply in replies(policy, 300, ["Ada"] * 16) if reply.finished]
    assert ended
    for reply in ended:
        assert reply.ids[-1] == END
        assert END not in reply.ids[:-1]
        assert reply.text == policy.tokenizer.decode(reply.ids[:-1], clean_up_tokenization_spaces=False)


def test_a_reply_that_reaches_its_limit_is_not_finished(policy):
    found = policy.sample([policy.encode(text) for text in TEXTS], rngs(), [1, 2, 3, 4, 0])
    assert [len(reply.ids) for reply in found] == [1, 2, 3, 4, 0]
    assert not any(reply.finished for reply in found)


def test_a_reply_ends_at_the_window(policy):
    prompts = [np.full(length, 100) for length in (1020, 1024, 1030, 5)]
    found = policy.sample(prompts, rngs(4), 20)
    assert [len(reply.ids) for reply in found] == [4, 0, 0, 20]
    assert not found[0].finished


def test_a_stop_string_ends_a_reply(policy, model):
    stop = ["e", "\ufffd"]  # likely in any text
    stopping = HFPolicy(model, policy.tokenizer, chat=False, sampling_params=SamplingParams(stop=stop))
    for cut, whole in zip(replies(stopping), replies(policy), strict=True):
        assert cut.finished
        assert cut.ids.tolist() == whole.ids[: len(cut.ids)].tolist()
        assert any(one in cut.text for one in stop)
        before = policy._tokens.decode(cut.ids[:-1])
        assert "e" not in before


def test_logits_that_are_not_numbers_are_refused_in_one_line(policy, model):
    sick = transformers.Qwen3ForCausalLM(model.config)
    found = HFPolicy(sick, policy.tokenizer, chat=False)
    with torch.no_grad():
        sick.model.norm.weight.fill_(float("nan"))
    with pytest.raises(FloatingPointError, match="not numbers at token 0 of a reply"):
        replies(found)


def test_sampling_keeps_the_mode_of_the_model(policy, model):
    model.train()
    replies(HFPolicy(model, policy.tokenizer))
    assert model.training
    model.eval()


def test_forward_is_flat_over_response_tokens_in_order(policy):
    a, b = policy.encode("Ada Lovelace wrote"), policy.encode("Who wrote the first program?")
    masks = [np.arange(len(a)) == len(a) - 1, np.isin(np.arange(len(b)), [1, 3])]
    said = policy.forward([a, b], masks).logprobs.detach().numpy()
    alone = np.concatenate(
        [plain_logprobs(policy.model, TokenPair(ids[:1].tolist(), ids[1:].tolist())) for ids in (a, b)]
    )
    wanted = alone[[len(a) - 2, len(a) - 1 + 0, len(a) - 1 + 2]]  # token t of a sequence stands at t - 1
    np.testing.assert_allclose(said, wanted, rtol=0, atol=1e-4)


def test_entropy_is_that_of_the_distribution_before_each_token(policy, model):
    warm = HFPolicy(model, policy.tokenizer, chat=False, sampling_params=SamplingParams(temperature=2.0))
    ids = policy.encode("Ada Lovelace wrote")
    mask = np.arange(len(ids)) == 2
    with torch.no_grad():
        logits = model(torch.from_numpy(ids)[None]).logits[0, 1].double() / 2
    wanted = torch.distributions.Categorical(logits=logits).entropy().item()
    found = warm.forward([ids], [mask], entropy=True).entropy
    assert found.item() == pytest.approx(wanted, abs=1e-4)
    assert warm.forward([ids], [mask]).entropy is None


def test_values_are_those_of_the_state_before_a_token(policy, model):
    ids = policy.encode("Ada Lovelace wrote")
    with torch.no_grad():
        hidden = model.model(torch.from_numpy(ids)[None]).last_hidden_state[0]
        wanted = policy.value_head(hidden)[:, 0]
        found = policy.forward([ids], [np.arange(len(ids)) > 0]).values
    np.testing.assert_allclose(found, wanted[:-1], rtol=0, atol=1e-5)
    assert len(set(found.tolist())) == len(found)


def test_forward_of_no_sequences_is_empty(policy):
    assert policy.forward([], []).logprobs.shape == (0,)
    ids = policy.encode("Ada Lovelace")
    assert policy.forward([ids], [np.zeros(len(ids), bool)]).values.shape == (0,)


def test_a_saved_policy_comes_back_whole(policy, tmp_path):
    params = SamplingParams(temperature=0.7, top_p=0.9, stop=["</a>"])
    first = HFPolicy(policy.model, policy.tokenizer, sampling_params=params, chat=True).add_value_head(seed=3)
    first.save(tmp_path / "policy")
    again = HFPolicy.load(tmp_path / "policy", device="cpu")
    assert (again.sampling_params, again.chat) == (first.sampling_params, True)
    same(replies(first), replies(again))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_loading_takes_other_settings_than_those_saved(policy, tmp_path):
    policy.save(tmp_path / "policy")
    assert HFPolicy.load(tmp_path / "policy", temperature=0.0, device="cpu").sampling_params.temperature == 0


def test_saving_again_replaces_the_whole_folder(policy, tmp_path):
    policy.save(tmp_path / "policy")
    (tmp_path / "policy" / "left-over").touch()
    policy.save(tmp_path / "policy")
    assert not (tmp_path / "policy" / "left-over").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]


def test_saving_does_not_replace_a_folder_of_other_files(policy, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ValueError, match="no policy"):
        policy.save(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_save_that_fails_leaves_the_old_policy(policy, tmp_path, monkeypatch):
    policy.save(tmp_path / "policy")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(policy.tokenizer, "save_pretrained", fail)
    with pytest.raises(OSError, match="no space"):
        policy.save(tmp_path / "policy")
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
    HFPolicy.load(tmp_path / "policy", device="cpu")


def test_a_value_head_starts_near_0_and_depends_on_its_seed(policy, model):
    heads = [HFPolicy(model, policy.tokenizer).add_value_head(seed).value_head.weight for seed in (0, 0, 1)]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])
    assert heads[0].abs().max() < 0.1  # 64 draws of std 1/65


@pytest.mark.parametrize(
    "settings", [{"temperature": -1.0}, {"top_p": 0.0}, {"stop": "</search>"}, {"stop": [""]}]
)
def test_sampling_parameters_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        SamplingParams(**settings)
