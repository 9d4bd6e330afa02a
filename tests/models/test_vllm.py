"""The vLLM policy against a real engine on a CPU; `make test-vllm` runs it."""

from __future__ import annotations

import numpy as np
import pytest
from model_families import build
from tiny_model import joined, save_tiny_model

pytest.importorskip("vllm", reason="no vLLM here: `make test-vllm`")

from memenvs.models import HFPolicy, LoRA, SamplingParams, VLLMPolicy

pytestmark = pytest.mark.filterwarnings("ignore")  # vLLM and what it imports warn of their own business

GREEDY, WARM = SamplingParams(temperature=0.0), SamplingParams(temperature=1.5)
ENGINE = {"dtype": "float32", "enforce_eager": True}
TEXTS = ("Ada", "Ada Lovelace wrote the first program", "Who? " * 40, "Ada")


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    """Its head has weights of its own: vLLM on a CPU cannot renew a tied one."""
    return save_tiny_model(tmp_path_factory.mktemp("models") / "untied", tied=False)


@pytest.fixture(scope="module")
def policy(tiny_model):
    return VLLMPolicy(str(tiny_model), chat=False, engine=ENGINE)


@pytest.fixture
def model(tiny_model):
    return HFPolicy(str(tiny_model), chat=False, device="cpu")


def rngs(count, seed=0):
    return [np.random.default_rng([seed, i]) for i in range(count)]


def replies(policy, limit=40, texts=TEXTS):
    return policy.sample([policy.encode(text) for text in texts], rngs(len(texts)), limit)


def evaluated(model, found, texts=TEXTS):
    """What transformers says of replies."""
    whole = joined([model.encode(text) for text in texts], found)
    return model.forward(*whole).logprobs.detach().numpy()


def check(model, found):
    logprobs = np.concatenate([reply.logprobs for reply in found])
    np.testing.assert_allclose(logprobs, evaluated(model, found), rtol=0, atol=1e-3)


def test_logprobs_are_those_of_transformers(policy, model):
    found = replies(policy)
    assert [len(reply.ids) for reply in found if not reply.finished]
    check(model, found)


def test_a_reply_depends_on_its_own_generator_alone(policy):
    together = replies(policy)
    alone = [policy.sample([policy.encode(text)], [rngs(4)[i]], 40)[0] for i, text in enumerate(TEXTS)]
    assert [reply.ids.tolist() for reply in together] == [reply.ids.tolist() for reply in alone]
    assert together[0].ids.tolist() != together[3].ids.tolist()


def test_both_policies_make_the_same_prompts(tiny_model, policy, model):
    chatting = VLLMPolicy(policy.llm)
    other = HFPolicy(str(tiny_model), device="cpu")
    reply = np.array([100, 2])
    assert policy.encode("Who?").tolist() == model.encode("Who?").tolist()
    assert chatting.encode("Who?").tolist() == other.encode("Who?").tolist()
    assert chatting.encode_feedback("No.", reply).tolist() == other.encode_feedback("No.", reply).tolist()


def streamed(policy, count, limits):
    """Replies by `submit` and `completed`, each begun when the one before it is under way."""
    found = {}
    for i in range(count):
        policy.submit(i, policy.encode(TEXTS[i]), rngs(count)[i], limits[i])
    while len(found) < count:
        ready = policy.completed()
        assert ready
        found |= dict(ready)
    return found


def test_a_streamed_reply_is_the_one_of_a_batch(policy):
    found = streamed(policy, 4, [40] * 4)
    assert [found[i].ids.tolist() for i in range(4)] == [reply.ids.tolist() for reply in replies(policy)]
    assert policy.completed() == []


def test_the_shortest_streamed_reply_is_given_first(policy):
    assert next(iter(streamed(policy, 2, [40, 1]))) == 1


def test_cancelled_replies_are_not_given_to_the_next_caller(policy):
    policy.submit(7, policy.encode("Ada"), rngs(1)[0], 40)
    policy.cancel()
    assert [r.ids.tolist() for r in replies(policy, 5)] == [r.ids.tolist() for r in replies(policy, 5)]
    assert policy.completed() == []


def test_a_reply_ends_with_the_end_token_which_its_text_leaves_out(policy):
    ended = [reply for reply in replies(policy, 300, ["Ada"] * 64) if reply.finished]
    assert ended
    for reply in ended:
        assert reply.ids[-1] == 2
        assert policy.spans(reply.ids)[-1].tolist() == [len(reply.text)] * 2


def test_a_stop_string_ends_a_reply_with_the_token_that_completes_it(policy):
    stopping = VLLMPolicy(policy.llm, chat=False, sampling_params=SamplingParams(stop=["e"]))
    for cut, whole in zip(replies(stopping), replies(policy), strict=True):
        assert cut.finished
        assert cut.ids.tolist() == whole.ids[: len(cut.ids)].tolist()
        assert "e" in cut.text
        assert "e" not in policy._tokens.decode(cut.ids[:-1])


def test_a_reply_ends_at_its_limit_and_at_the_window(policy):
    found = policy.sample([np.full(n, 100) for n in (1020, 1024, 1030, 5, 5)], rngs(5), [9, 9, 9, 3, 0])
    assert [len(reply.ids) for reply in found] == [4, 0, 0, 3, 0]
    assert not any(reply.finished for reply in found)


def test_no_temperature_takes_the_likeliest_token(policy, model):
    greedy = VLLMPolicy(policy.llm, chat=False, sampling_params=GREEDY)
    wanted = HFPolicy(model.model, model.tokenizer, chat=False, sampling_params=GREEDY)
    assert [r.ids.tolist() for r in replies(greedy)] == [r.ids.tolist() for r in replies(wanted)]
    check(wanted, replies(greedy))


def test_weights_are_loaded_after_an_update(policy, model, tiny_model):
    import torch

    before = replies(policy)
    with torch.no_grad():
        for weight in model.parameters():  # every one: a part that stays as it was is seen
            weight.mul_(0.9)
    policy.load_weights(model)
    after = replies(policy)
    check(model, after)
    policy.load_weights(HFPolicy(str(tiny_model), chat=False, device="cpu"))
    assert [r.ids.tolist() for r in replies(policy)] == [r.ids.tolist() for r in before]
    assert [r.ids.tolist() for r in after] != [r.ids.tolist() for r in before]


@pytest.mark.parametrize("lora", [None, LoRA(2)])
def test_new_weights_of_a_mixture_are_refused_on_a_cpu(policy, tiny_model, lora):
    size = {"head_dim": 16, "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2}
    mixture = HFPolicy(build("Qwen3Moe", vocab_size=4096, **size), str(tiny_model), chat=False, lora=lora)
    with pytest.raises(ValueError, match="does not pack the experts of a mixture again"):
        policy.load_weights(mixture)


def test_an_engine_that_gives_other_logprobs_is_refused(policy):
    with pytest.raises(ValueError, match="make it with logprobs_mode='processed_logprobs'"):
        VLLMPolicy(policy.llm, sampling_params=SamplingParams(temperature=0.7))
    with pytest.raises(ValueError, match="use temperature 1, or none of the three"):
        VLLMPolicy(policy.llm, sampling_params=SamplingParams(temperature=0.7, top_p=0.9))


def test_logprobs_are_those_at_the_temperature(tiny_model, model):
    warm = VLLMPolicy(str(tiny_model), chat=False, sampling_params=WARM, engine=ENGINE)
    check(
        HFPolicy(model.model, model.tokenizer, chat=False, sampling_params=WARM),
        replies(warm),
    )


@pytest.mark.parametrize("params", [GREEDY, SamplingParams()], ids=["greedy", "sampled"])
def test_an_id_that_no_token_has_is_never_sampled(tmp_path, params):
    folder = save_tiny_model(tmp_path / "padded", tied=False, spare_rows=1024)
    padded = VLLMPolicy(str(folder), chat=False, sampling_params=params, engine=ENGINE)
    assert max(reply.ids.max() for reply in replies(padded)) < 4096
