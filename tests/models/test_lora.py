"""LoRA: adapters start at zero, are saved alone, and share the weights of their model."""

import json
import os
import shutil
import sys

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

import huggingface_hub
import peft
import torch
import transformers
from model_families import build
from tiny_model import joined

from memenvs import evaluate
from memenvs.baselines.args import SFTArgs
from memenvs.baselines.flags import read_args
from memenvs.models import HFPolicy, LoRA
from memenvs.models.hub import snapshot
from memenvs.models.lora import (
    MergedModel,
    add_adapter,
    expert_weights,
    has_adapter,
    model_reference,
    twin,
    without_adapter,
)
from memenvs.models.packaged import base_of, split_revision
from memenvs.models.settings import ModelOptions
from memenvs.models.small_gpt import save_small_gpt
from memenvs.wrappers.scorers import HFScorer, ScoreRequest

TEXTS = ("Ada", "Ada Lovelace wrote the first program", "Who? " * 40)


EXPERTS = {
    "Qwen3Moe": {"head_dim": 16, "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2},
    "GptOss": {
        **{"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16},
        "layer_types": ["sliding_attention", "full_attention"],
    },
}


def save_mixture(folder, family, tiny_model):
    """Save a small mixture of experts with the tiny model's tokenizer."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    build(family, vocab_size=len(tokenizer), **EXPERTS[family]).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def policy(tiny_model):
    return HFPolicy(str(tiny_model), chat=False, device="cpu", lora=LoRA(4))


@pytest.fixture(params=["qwen3", "gpt2", "Qwen3Moe", "GptOss"])
def any_policy(request, tiny_model, tmp_path):
    """An adapter on a model of linear layers, of GPT-2's turned ones, and of experts, once turned."""
    name = tiny_model
    if request.param == "gpt2":
        name = save_small_gpt(tmp_path / "gpt", ["go"], width=64)
    elif request.param in EXPERTS:
        name = save_mixture(tmp_path / "mixture", request.param, tiny_model)
    return HFPolicy(str(name), chat=False, device="cpu", lora=LoRA(4))


def learned(policy, size=0.1, seed=0):
    """The policy with an adapter that says something."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in policy.model_parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) * size)
    return policy


def sequences(policy):
    ids = [policy.encode(text) for text in TEXTS]
    return ids, [np.arange(len(one)) > 0 for one in ids]


def logprobs(policy):
    with torch.no_grad():
        return policy.forward(*sequences(policy)).logprobs


def test_a_fresh_adapter_computes_as_its_model_to_the_last_bit(any_policy):
    plain = HFPolicy(without_adapter(any_policy.model), any_policy.tokenizer, chat=False)
    assert torch.equal(logprobs(any_policy), logprobs(plain))


def test_a_fresh_adapter_depends_on_its_seed_alone(tiny_model):
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32")
    before = torch.random.get_rng_state()
    one, same, other = (add_adapter(model, LoRA(4, seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    weights = [
        [weight for weight in adapted.parameters() if weight.requires_grad] for adapted in (one, same, other)
    ]
    assert all(torch.equal(a, b) for a, b in zip(weights[0], weights[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights[0], weights[2], strict=True))
    assert not has_adapter(model)


def test_all_linear_layers_but_the_head_get_an_adapter(policy):
    # 7 linear layers in each of 2 blocks, A and B of each
    assert len(policy.model_parameters()) == 2 * 7 * 2
    assert all(".lora_" in name for name, w in policy.model.named_parameters() if w.requires_grad)


@pytest.mark.parametrize("family", EXPERTS)
def test_the_weights_of_each_expert_change_by_a_product_of_the_rank(family, tiny_model, tmp_path):
    name = save_mixture(tmp_path / "mixture", family, tiny_model)
    policy = learned(HFPolicy(str(name), chat=False, device="cpu", lora=LoRA(1)))
    whole, plain = policy.merged().model, without_adapter(policy.model)
    assert (
        expert_weights(policy.model) == expert_weights(plain) == ["experts.down_proj", "experts.gate_up_proj"]
    )
    for part in ("gate_up_proj", "down_proj"):
        before, after = (getattr(m.model.layers[1].mlp.experts, part) for m in (plain, whole))
        ranks = torch.linalg.matrix_rank(after - before, rtol=1e-4)
        assert ranks.tolist() == [1] * 4  # of 4 experts


def test_the_change_is_scaled_by_two(tiny_model):
    # W x + alpha / r B A x by its definition with alpha = 2 r, at one layer
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32")
    layer = add_adapter(model, LoRA(4)).model.layers[1].self_attn.o_proj
    down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    with torch.no_grad():
        up.normal_(generator=torch.Generator().manual_seed(0))
        x = torch.randn(3, down.shape[1], generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(layer(x), x @ layer.base_layer.weight.T + 2 * x @ down.T @ up.T)


def test_an_adapter_is_saved_alone_and_comes_back_whole(any_policy, tmp_path):
    saved = learned(any_policy)
    saved.save(tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    again = HFPolicy.load(tmp_path / "adapter", device="cpu")
    assert torch.equal(logprobs(again), logprobs(saved))
    assert len(again.model_parameters()) == len(saved.model_parameters())
    again.save(tmp_path / "again")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "adapter" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_card_names_base_model_licence_environment_and_arguments(any_policy, tmp_path):
    run = {
        "model": "smollm2",
        "env": "MemChunkQA-v0",
        "env_args": {"tasks": str(tmp_path / "mine"), "chunk_size": 500},
        "methods": ["TAMTRL"],
    }
    any_policy.save(tmp_path / "adapter", run)
    assert "\nlibrary_name: peft\n" in (tmp_path / "adapter" / "README.md").read_text()
    any_policy.merged().save(tmp_path / "whole", run)
    card = (tmp_path / "whole" / "README.md").read_text()
    assert "\nlicense: apache-2.0\n" in card.split("---")[1]
    assert "SmolLM2-135M-Instruct" in card
    assert """--env MemChunkQA-v0 --env-args '{"tasks": "mine", "chunk_size": 500}'""" in card
    assert "TAMTRL" in card
    assert str(tmp_path) not in card
    any_policy.merged().save(tmp_path / "hub", {**run, "model": "Qwen/Qwen3-0.6B"})
    assert "\nbase_model: Qwen/Qwen3-0.6B\n" in (tmp_path / "hub" / "README.md").read_text()
    any_policy.merged().save(tmp_path / "further", {**run, "model": str(tmp_path / "hub")})
    assert "\nbase_model: Qwen/Qwen3-0.6B\n" in (tmp_path / "further" / "README.md").read_text()


def test_a_tokenizer_that_is_not_the_models_is_saved_beside_the_adapter(tiny_model, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.add_tokens(["<mine>"])
    tokenizer.save_pretrained(tmp_path / "mine")
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32")
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.save_pretrained(tmp_path / "larger")
    made = HFPolicy(str(tmp_path / "larger"), str(tmp_path / "mine"), chat=False, device="cpu", lora=LoRA(2))
    made.save(tmp_path / "adapter")
    assert HFPolicy.load(tmp_path / "adapter", device="cpu").encode("<mine>").tolist() == [len(tokenizer) - 1]


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")  # peft asks for it
@pytest.mark.filterwarnings("ignore:Unsupported layer type")  # of peft 0.18
def test_peft_reads_what_is_saved(any_policy, tmp_path):
    saved = learned(any_policy)
    saved.save(tmp_path / "adapter")
    base = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"]
    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype="float32")
    by_peft = peft.PeftModel.from_pretrained(model, tmp_path / "adapter").eval()
    ids = torch.from_numpy(saved.encode(TEXTS[1]))[None]
    with torch.no_grad():
        torch.testing.assert_close(by_peft(ids).logits, saved.model(ids).logits, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")  # peft asks for it
def test_what_peft_saved_is_read(tiny_model, tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32")
    config = peft.LoraConfig(r=3, target_modules=["q_proj", "up_proj"], init_lora_weights=False)
    made = peft.get_peft_model(model, config).eval()
    made.save_pretrained(tmp_path / "adapter")
    policy = HFPolicy(str(tmp_path / "adapter"), chat=False, device="cpu")
    ids = torch.from_numpy(policy.encode(TEXTS[1]))[None]
    with torch.no_grad():
        torch.testing.assert_close(policy.model(ids).logits, made(ids).logits)


def test_scorers_read_an_adapters_folder(policy, tmp_path):
    learned(policy).save(tmp_path / "adapter")
    requests = [ScoreRequest("Ada Lovelace", " wrote the first program")]
    (live,) = HFScorer(policy.model, policy.tokenizer).logprobs(requests)
    (read,) = HFScorer(str(tmp_path / "adapter"), device="cpu").logprobs(requests)
    np.testing.assert_allclose(read, live, atol=1e-4)


def test_replies_are_sampled_with_the_adapter(any_policy):
    learned(any_policy)
    for seed in (0, 1):  # the second time with other weights: what samples is renewed
        learned(any_policy, seed=seed)
        prompts = [any_policy.encode(text) for text in TEXTS]
        replies = any_policy.sample(prompts, [np.random.default_rng(i) for i in range(3)], 12)
        with torch.no_grad():
            wanted = any_policy.forward(*joined(prompts, replies)).logprobs.numpy()
        np.testing.assert_allclose(np.concatenate([r.logprobs for r in replies]), wanted, rtol=0, atol=1e-3)


def test_a_merged_policy_is_a_whole_model(policy, tmp_path):
    learned(policy).merged().save(tmp_path / "whole")
    whole = HFPolicy.load(tmp_path / "whole", device="cpu")
    assert not has_adapter(whole.model)
    torch.testing.assert_close(logprobs(whole), logprobs(policy), rtol=0, atol=1e-3)


def test_merging_does_not_change_the_model_in_training(policy):
    before = [weight.clone() for weight in learned(policy).model.parameters()]
    MergedModel(policy.model)
    assert all(torch.equal(one, other) for one, other in zip(before, policy.model.parameters(), strict=True))


def test_a_twin_shares_the_weights_and_has_an_adapter_of_its_own(policy):
    other = twin(policy.model)
    for (name, one), two in zip(policy.model.named_parameters(), other.parameters(), strict=True):
        assert (one is two) == (".lora_" not in name)
    assert has_adapter(other)


def test_an_adapter_of_another_model_is_one_line(policy, tiny_model, tmp_path):
    policy.save(tmp_path / "adapter")
    gpt = save_small_gpt(tmp_path / "gpt", ["go"], width=64)
    path = tmp_path / "adapter" / "adapter_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "base_model_name_or_path": str(gpt)}))
    with pytest.raises(ValueError, match="Target modules"):
        HFPolicy.load(tmp_path / "adapter", device="cpu")
    path.write_text(json.dumps({**config, "r": 8}))
    with pytest.raises(ValueError, match=r"is of another model, .*: \S+ is \(\d+, \d+\) there"):
        HFPolicy.load(tmp_path / "adapter", device="cpu")


def damage_header(file):
    with file.open("r+b") as opened:
        opened.seek(8)
        opened.write(b"?")  # the header is JSON from there on


def test_damaged_weights_of_a_model_and_of_an_adapter_are_one_line(policy, tiny_model, tmp_path):
    policy.save(tmp_path / "adapter")
    damage_header(tmp_path / "adapter" / "adapter_model.safetensors")
    with pytest.raises(ValueError, match="adapter are damaged"):
        HFPolicy(tmp_path / "adapter")
    model = shutil.copytree(tiny_model, tmp_path / "model")
    damage_header(model / "model.safetensors")
    with pytest.raises(ValueError, match="model are damaged"):
        HFPolicy(model)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")  # peft asks for it
def test_an_adapter_of_more_than_two_matrices_a_layer_is_refused(tiny_model, tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32")
    config = peft.LoraConfig(r=3, target_modules=["q_proj"], use_dora=True)
    peft.get_peft_model(model, config).save_pretrained(tmp_path / "adapter")
    with pytest.raises(ValueError, match="or not plain LoRA"):
        HFPolicy(str(tmp_path / "adapter"), chat=False, device="cpu")


def test_an_adapter_without_peft_is_one_line(tiny_model, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r"peft.*pip install.*\[lm\]"):
        HFPolicy(str(tiny_model), chat=False, device="cpu", lora=LoRA(4))


def test_an_adapter_names_a_folder_by_its_absolute_path_and_a_packaged_model_by_its_name(
    tiny_model, monkeypatch
):
    monkeypatch.chdir(tiny_model.parent)
    assert model_reference(tiny_model.name) == str(tiny_model)
    assert model_reference("smollm2") == "smollm2"
    assert model_reference("someone/model") == "someone/model"


@pytest.fixture
def hub(tiny_model, tmp_path, monkeypatch):
    """The hub's cache with a model of two commits, of which a tag names the first and a branch the second."""
    place = tmp_path / "hub" / "models--someone--tiny"
    commits = {"v1": "1" * 40, "main": "2" * 40}
    for number, (name, commit) in enumerate(commits.items()):
        folder = shutil.copytree(tiny_model, place / "snapshots" / commit)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder)
        with torch.no_grad():
            model.get_input_embeddings().weight += number
        model.save_pretrained(folder)
        (place / "refs").mkdir(exist_ok=True)
        (place / "refs" / name).write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    snapshot.cache_clear()
    yield commits
    snapshot.cache_clear()


def test_a_revision_of_a_hub_model_is_loaded_and_recorded_in_cards_and_adapters(hub, tmp_path):
    def first(policy):
        return policy.model.get_input_embeddings().weight[0, 0].item()

    def load(name, **settings):
        return HFPolicy(name, chat=False, device="cpu", **settings)

    one, two = load("someone/tiny@v1"), load("someone/tiny@main")
    assert first(two) == pytest.approx(first(one) + 1)
    adapted = load("someone/tiny@v1", lora=LoRA(2))
    adapted.save(tmp_path / "adapter", {"model": "someone/tiny@v1"})
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("someone/tiny", hub["v1"])
    assert not (tmp_path / "adapter" / "tokenizer.json").exists()
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert "\nbase_model: someone/tiny\n" in card
    assert "someone/tiny at revision v1." in card
    # the base is the commit, also where the tag has moved since
    (tmp_path / "hub" / "models--someone--tiny" / "refs" / "v1").write_text(hub["main"])
    snapshot.cache_clear()
    assert first(load("someone/tiny@v1")) == first(two)
    again = HFPolicy.load(tmp_path / "adapter", device="cpu")
    assert first(again) == first(one)
    again.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "adapter_config.json").read_text()) == config
    with pytest.raises(FileNotFoundError, match=r"no model 'someone/tiny' of revision 'v9'"):
        load("someone/tiny@v9")
    with pytest.raises(FileNotFoundError, match=r"no model 'someone/tiny' of revision 'a branch'"):
        load("someone/tiny@a branch")


@pytest.mark.parametrize("model", ["someone/tiny", "someone/tiny@main"])
def test_the_flag_of_a_revision_names_the_commit(model, hub):
    args = read_args(SFTArgs, ["--model", model, "--revision", "v1", "--env", "MemSokoban-v0"], "train sft")
    assert (args.model, args.revision) == (f"someone/tiny@{hub['v1']}", "")


@pytest.mark.parametrize("model", ["someone", "someone/tiny", "/nowhere/tiny", "smollm2", "smollm2-reader"])
def test_a_revision_is_of_no_folder_or_packaged_model(model, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where a folder has the name of a model of the hub
    (tmp_path / "someone" / "tiny").mkdir(parents=True)
    with pytest.raises(ValueError, match=f"--revision is for a model of the hub, got model '{model}'"):
        read_args(SFTArgs, ["--model", model, "--revision", "v1", "--env", "MemSokoban-v0"], "train sft")


def test_a_folder_with_an_at_is_a_folder(tiny_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(tiny_model, tmp_path / "model@v1")
    assert split_revision("model@v1") == ("model@v1", "")
    assert model_reference("model@v1") == str(folder)
    HFPolicy("model@v1", chat=False, device="cpu", lora=LoRA(2)).save(tmp_path / "adapter")
    assert base_of(tmp_path / "adapter") == str(folder)


def test_an_evaluation_of_an_adapter_is_one_of_its_model_too(tiny_model, tmp_path):
    model = shutil.copytree(tiny_model, tmp_path / "model")
    HFPolicy(str(model), chat=False, device="cpu", lora=LoRA(2)).save(tmp_path / "adapter")

    def run():
        options = ModelOptions(max_new_tokens=2)
        policy = f"hf:{tmp_path / 'adapter'}"
        return evaluate("MemSokoban-v0", policy, tasks=[0], options=options, out=tmp_path / "run")

    assert run().to_json() == run().to_json()
    weights = model / "model.safetensors"
    os.utime(weights, ns=(weights.stat().st_atime_ns, weights.stat().st_mtime_ns + 10**9))
    with pytest.raises(ValueError, match="was begun with files"):
        run()
