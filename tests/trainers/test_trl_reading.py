"""The script for several GPUs trains on this CPU; TRL and accelerate accept its commands on docs/scale.md."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("trl", reason="TRL is not installed; `make test-trainers` installs it")
from accelerate.commands.config.config_args import load_config_from_file
from tiny_model import save_tiny_model
from trl import GRPOConfig, ModelConfig, TrlParser
from trl.scripts.vllm_serve import ScriptArguments

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "trl_reading.py"
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8").partition("## The same with TRL")[2]
FILES = dict(re.findall(r"^`(\S+\.yaml)`:\n\n```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing:FutureWarning"),
]


def test_the_script_trains_a_step(tmp_path, monkeypatch):
    model = save_tiny_model(tmp_path / "model", window=8192)
    options = "--tasks world-test --chunk_size 2500 --max_memory 60 --scorer lexical --use_cpu --bf16 false"
    options += " --max_steps 1 --num_generations 2 --per_device_train_batch_size 2 --max_completion_length 8"
    options += f" --model_name_or_path {model} --output_dir {tmp_path / 'run'} --report_to none"
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *shlex.split(options)])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert (tmp_path / "run" / "model.safetensors").exists()


def words(command):
    return shlex.split(command.replace("\\\n", " "))


def test_every_command_is_taken_by_trl_and_accelerate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)
    reading = runpy.run_path(str(SCRIPT))["ReadingArgs"]
    seen = {"launch": 0, "serve": 0}
    for line in (line for block in COMMANDS for line in block.replace("\\\n", " ").splitlines() if line):
        given = [word for word in words(line) if word != "&" and "=" not in word.partition("-")[0]]
        if given[:2] == ["trl", "vllm-serve"]:
            (arguments,) = TrlParser([ScriptArguments]).parse_args_and_config(given[2:])
            assert arguments.model.startswith("Qwen/")
            seen["serve"] += 1
        elif given[:2] == ["accelerate", "launch"]:
            file = given[given.index("--config_file") + 1]
            assert load_config_from_file(file).num_processes == yaml.safe_load(FILES[file])["num_processes"]
            options = [*given[given.index("examples/trl_reading.py") + 1 :], "--use_cpu"]
            parser = TrlParser((reading, GRPOConfig, ModelConfig))
            task, config, _ = parser.parse_args_and_config(options)
            rows = config.per_device_train_batch_size * config.steps_per_generation
            assert rows % config.num_generations == 0
            assert task.tasks == "data/train"
            seen["launch"] += 1
    assert seen == {"launch": 6, "serve": 3}
