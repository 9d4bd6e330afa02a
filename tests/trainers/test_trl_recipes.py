"""Every TRL recipe in the docs runs for two steps, with a tiny model in place of the one it names."""

import functools
import re
from pathlib import Path

import pytest
from tiny_model import save_tiny_model

pytest.importorskip("trl", reason="TRL is not installed; `make test-trainers` installs it")
import trl
from transformers import AutoTokenizer
from trl.chat_template_utils import qwen3_chat_template

PAGE = (Path(__file__).parents[2] / "docs" / "trainers" / "trl.md").read_text()
RECIPES = re.findall(r"^```py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
(DIFF,) = re.findall(r"^```diff\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
BEFORE, AFTER = (
    "\n".join(line[1:] for line in DIFF.splitlines() if line[:1] != left_out) for left_out in "+-"
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are using '(rollout_func|environment_factory)':UserWarning"),
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing:FutureWarning"),  # TRL's own words
]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = save_tiny_model(tmp_path_factory.mktemp("models") / "tiny", window=8192)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = qwen3_chat_template
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("code", [BEFORE, AFTER, *RECIPES])
def test_a_recipe_runs(code, model, tmp_path, monkeypatch):
    if "peft" in code:
        pytest.importorskip("peft")
    small = {"use_cpu": True, "bf16": False, "max_steps": 2, "report_to": [], "disable_tqdm": True}
    monkeypatch.setattr(trl, "GRPOConfig", functools.partial(trl.GRPOConfig, save_strategy="no", **small))
    monkeypatch.chdir(tmp_path)
    code = code.replace("Qwen/Qwen3-0.6B", str(model)).replace("smollm2-caller", str(model))
    code = re.sub(r"max_completion_length=\d+", "max_completion_length=8", code)
    code = code.replace("num_generations=8", "num_generations=2, per_device_train_batch_size=2")
    code = code.replace('-v0", 8', '-v0", 2').replace("group_size=8", "group_size=2")
    code = code.replace('"MemChunkQA-v0", 2', '"MemChunkQA-v0", 2, chunk_size=300, n_documents=4')
    names = {"__name__": "__main__"}
    exec(compile(code, "recipe", "exec"), names)
    assert names["trainer"].state.global_step == 2
