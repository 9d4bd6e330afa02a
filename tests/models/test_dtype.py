"""bfloat16 and float32: which one a model is computed in, and how much their numbers differ."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from command_line import evaluate as main  # noqa: E402
from tiny_model import joined  # noqa: E402

from memenvs.models import HFPolicy, hf, loading  # noqa: E402
from memenvs.models.loading import computes_fast, load_model, own_device  # noqa: E402
from memenvs.wrappers.registry import make_scorer  # noqa: E402
from memenvs.wrappers.scorers import HFScorer, ScoreRequest  # noqa: E402

PROMPTS = ["Where does Ada Lovelace work?", "A moth", "London is in England. Where is London?"]
REQUESTS = [ScoreRequest(prompt, " the engine of Babbage, 1843.") for prompt in PROMPTS]
# bfloat16 keeps 8 bits of a number. Measured, of log-probabilities from -14 to -6: at most 0.08 nats a token
# and 0.024 in the mean.
MOST_NATS, MEAN_NATS = 0.2, 0.06


@pytest.fixture(scope="module")
def stored(tiny_model, tmp_path_factory):
    """The tiny model in a dtype of its checkpoint."""

    def store(dtype):
        folder = tmp_path_factory.mktemp(dtype)
        model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model, dtype=dtype)
        model.save_pretrained(folder)
        transformers.AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
        return folder

    return {dtype: store(dtype) for dtype in ("bfloat16", "float16", "float32")}


def instructions(monkeypatch, *, avx512=False, amx=False):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)


@pytest.mark.parametrize("fast", [{"avx512": True}, {"amx": True}])
def test_auto_is_the_checkpoints_dtype_where_the_cpu_has_instructions_for_it(stored, monkeypatch, fast):
    instructions(monkeypatch, **fast)
    assert load_model(stored["bfloat16"], "cpu").dtype == torch.bfloat16
    assert load_model(stored["float32"], "cpu").dtype == torch.float32


def test_auto_is_float32_on_a_cpu_without_them(stored, monkeypatch):
    instructions(monkeypatch)
    model = load_model(stored["bfloat16"], "cpu")
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


def test_auto_is_float32_for_float16_on_a_cpu(stored, monkeypatch):
    instructions(monkeypatch, avx512=True)
    assert load_model(stored["float16"], "cpu").dtype == torch.float32


def test_a_gpu_computes_fast_in_bfloat16_unless_it_emulates_it(monkeypatch):
    native = True
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    assert computes_fast("cuda:0", torch.bfloat16)
    native = False
    assert not computes_fast("cuda:0", torch.bfloat16)
    assert computes_fast("cuda:0", torch.float16)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_dtype_that_is_given_is_that_of_the_weights(stored, dtype):
    for folder in stored.values():
        assert load_model(folder, "cpu", dtype).dtype == getattr(torch, dtype)


def test_an_evaluation_plays_in_the_dtype_that_is_given_and_keeps_it(tiny_model, tmp_path, monkeypatch):
    made = []
    real = loading.load_model
    monkeypatch.setattr(hf, "load_model", lambda *args, **more: made.append(real(*args, **more)) or made[-1])
    arguments = ["--env", "MemSokoban-v0", "--policy", f"hf:{tiny_model}", "--task", "0"]
    arguments += ["--max-new-tokens", "2"]
    assert main([*arguments, "--dtype", "bfloat16", "--out", str(tmp_path)]) == 0
    assert [model.dtype for model in made] == [torch.bfloat16]
    assert json.loads((tmp_path / "setting.json").read_text())["dtype"] == "bfloat16"


def test_a_scorers_settings_can_be_given_as_json(tiny_model):
    settings = json.dumps(["hf", {"model": str(tiny_model), "device": "cpu", "dtype": "bfloat16"}])
    assert make_scorer(settings).model.dtype == torch.bfloat16
    for text in ('["hf", {"model": ', '["hf"]', '["hf", "model"]'):
        with pytest.raises(ValueError, match="a scorer is "):
            make_scorer(text)


def test_scores_in_bfloat16_are_near_those_in_float32(tiny_model):
    exact, near = (HFScorer(tiny_model, device="cpu", dtype=dtype) for dtype in ("float32", "bfloat16"))
    apart = np.concatenate(near.logprobs(REQUESTS)) - np.concatenate(exact.logprobs(REQUESTS))
    assert 0 < np.abs(apart).max() < MOST_NATS
    assert np.abs(apart).mean() < MEAN_NATS


def test_log_probabilities_of_a_policy_in_bfloat16_are_near_those_in_float32(tiny_model):
    exact, near = (HFPolicy(tiny_model, device="cpu", dtype=dtype) for dtype in ("float32", "bfloat16"))
    sequences, masks = joined(*sampled(exact))
    with torch.no_grad():
        apart = near.forward(sequences, masks).logprobs - exact.forward(sequences, masks).logprobs
    assert 0 < apart.abs().max() < MOST_NATS
    assert apart.abs().mean() < MEAN_NATS


def test_sampled_log_probabilities_in_bfloat16_are_those_of_forward(tiny_model):
    policy = HFPolicy(tiny_model, device="cpu", dtype="bfloat16")
    prompts, replies = sampled(policy)
    with torch.no_grad():
        again = policy.forward(*joined(prompts, replies)).logprobs.numpy()
    # Sampling reads behind a cache and `forward` at once, which rounds differently.
    np.testing.assert_allclose(np.concatenate([r.logprobs for r in replies]), again, atol=MOST_NATS)


def sampled(policy):
    """The prompts, and twelve tokens behind each."""
    prompts = [policy.encode(prompt) for prompt in PROMPTS]
    return prompts, policy.sample(prompts, [np.random.default_rng(i) for i in range(3)], 12)


GPUS = [(None, "cuda:1"), ("0", "cuda:0"), ("3", "cuda:3"), ("5", "cuda:1")]


@pytest.mark.parametrize(("rank", "found"), GPUS)
def test_a_process_has_the_gpu_of_its_local_rank(rank, found, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if rank:
        monkeypatch.setenv("LOCAL_RANK", rank)
    assert own_device() == found
