"""`train sft --engine verl` writes rows that verl's trainer learns from as our learner does."""

import json
import os
import shlex
import subprocess
import sys

import pytest

pytest.importorskip("verl", reason="verl is not installed; `make test-trainers` installs it")
import pyarrow as pa
import torch
import transformers
from tiny_model import CHAT_TEMPLATE, save_tiny_model
from verl.trainer.sft_trainer import create_sft_dataset
from verl.utils import tensordict_utils
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.dataset.dataset_utils import SFTTensorCollator
from verl.workers.utils.losses import sft_loss

from memenvs import evaluate
from memenvs.baselines.args import SFTArgs
from memenvs.baselines.flags import main as learn
from memenvs.baselines.flags import read_args
from memenvs.baselines.lessons import TeacherEpisodes, demonstrations
from memenvs.baselines.scoring import evaluate_in
from memenvs.baselines.verl import compose
from memenvs.commands import main
from memenvs.core.episode_file import EpisodeWriter, read_episodes
from memenvs.models import HFPolicy, SamplingParams
from memenvs.rollout.collect import count_tasks

READING = ["--env", "MemChunkQA-v0", "--env-args", "chunk_size=300", "n_documents=4", "--teacher", "careful"]
SOKOBAN = ["--env", "MemSokoban-v0", "--teacher", "gold"]
SEARCH = ["--env", "MemSearchQA-v0", "--env-args", "memory_mode=rewrite", "tasks=world-train"]
SMALL = ["--gpus", "2", "--batch-size", "4", "--episodes", "12"]
OPENING = "{%- if add_generation_prompt -%}{{ '<think>\\n' }}{%- endif -%}"
DROPPING = CHAT_TEMPLATE.replace(  # as Qwen3's does: the thoughts of earlier replies are not shown again
    "{{ message['content'] + '<|im_end|>' }}",
    "{{ (message['content'] if loop.last else message['content'].split('</think>')[-1]) + '<|im_end|>' }}",
)
TEMPLATES = {"chat": CHAT_TEMPLATE, "opens thoughts": CHAT_TEMPLATE + OPENING, "drops thoughts": DROPPING}


@pytest.fixture(scope="module")
def model_of(tmp_path_factory):
    """The folder of a tiny model with a chat template."""
    folders = {}

    def make(name):
        if name not in folders:
            folders[name] = save_tiny_model(tmp_path_factory.mktemp("verl") / "model", window=40000)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folders[name])
            tokenizer.chat_template = TEMPLATES[name]
            tokenizer.save_pretrained(folders[name])
        return folders[name]

    return make


@pytest.fixture
def model(model_of):
    return model_of("chat")


@pytest.fixture
def write(model, tmp_path, capsys):
    """Write a run, and start nothing; its folder, or the line of its refusal."""

    def written(*flags, model=model):
        out = tmp_path / "run"
        argv = ["--model", str(model), "--out", str(out), "--engine", "verl", "--dry-run", *flags]
        return out if learn(["sft", *argv]) == 0 else capsys.readouterr().err

    return written


def args_of(out):
    return read_args(SFTArgs, ["--out", str(out), "--resume"], "memenvs train sft")


def overrides(out):
    """The settings of a run's script."""
    words = shlex.split((out / "run.sh").read_text().replace("\\\n", " ").splitlines()[-1])
    return words[words.index("verl.trainer.sft_trainer") + 1 : -2]


def composed(out):
    """The configuration that verl makes of a run's script."""
    return compose("sft_trainer_engine", overrides(out), list)


def rows_of(out, config, part="train"):
    """The rows as verl's trainer reads them."""
    return create_sft_dataset(str(out / f"{part}.arrow"), config.data, None, None)


def tasks_of(out, part="train"):
    """The task of each row."""
    return pa.ipc.open_file(str(out / f"{part}.arrow")).read_all()["task"].to_pylist()


def as_tokens(ids, mask):
    return tuple(map(int, ids)), tuple(map(int, mask))


@pytest.mark.parametrize("recipe", ["tamtrl_sft", "mempo_sft"])
def test_verl_composes_every_recipe_of_sft(write, recipe):
    # The tiny model's template has no thoughts to switch off.
    teacher = ["careful", "--chat-args", "{}"] if recipe == "tamtrl_sft" else ["gold"]
    tasks = ["--env-args", "tasks=world-train"]
    out = write("--recipe", recipe, *tasks, "--episodes", "10", "--batch-size", "8", "--teacher", *teacher)
    config, args = composed(out), json.loads((out / "args.json").read_text())
    assert (config.trainer.n_gpus_per_node, config.trainer.nnodes) == (8, 1)
    assert (config.trainer.total_epochs, config.data.train_batch_size) == (args["epochs"], 8)
    assert (config.optim.lr, config.optim.clip_grad) == (args["lr"], args["max_grad_norm"])
    assert (config.trainer.save_freq, config.trainer.max_ckpt_to_keep) == (args["save_every"], args["keep"])
    assert omega_conf_to_dataclass(config.model).path == args["model"]
    assert omega_conf_to_dataclass(config.engine).strategy == "fsdp2"
    lengths = [len(row["input_ids"]) for row in rows_of(out, config)]
    assert max(lengths) <= config.data.max_token_len_per_gpu


@pytest.mark.parametrize(
    ("flags", "template"),
    [
        (SOKOBAN, "chat"),
        (SOKOBAN, "opens thoughts"),
        (SOKOBAN, "drops thoughts"),
        (READING, "chat"),
        (READING, "opens thoughts"),
        ([*SEARCH, "--teacher", "gold", "--stop", "</search>", "--split-special-tokens"], "chat"),
    ],
)
def test_rows_have_the_tokens_and_masks_of_our_learner(write, model_of, flags, template):
    folder = model_of(template)
    out = write(*SMALL, *flags, model=folder)
    args = args_of(out)
    params = SamplingParams(stop=args.stop)
    policy = HFPolicy(str(folder), sampling_params=params, chat_settings=args.chat_settings)
    shown = demonstrations(args, count_tasks(args.env, args.env_args))
    samples = [sample for episode in TeacherEpisodes(args, shown, policy) for sample in episode.samples]
    rows = rows_of(out, composed(out))
    assert sorted(as_tokens(row["input_ids"], row["loss_mask"]) for row in rows) == sorted(
        as_tokens(sample.ids, sample.response_mask) for sample in samples
    )
    collated = SFTTensorCollator("no_padding")([rows[i] for i in range(4)])
    batch = tensordict_utils.get_tensordict(
        collated, {"dp_size": 1, "batch_num_tokens": int(collated["loss_mask"].values().sum())}
    )
    parts = [
        policy.model(ids[None]).logits[0].log_softmax(-1).gather(1, ids.roll(-1)[:, None])[:, 0]
        for ids in batch["input_ids"].unbind()
    ]
    output = {"log_probs": torch.nested.as_nested_tensor(parts, layout=torch.jagged)}
    loss, _ = sft_loss(None, output, batch)
    by_tokens = {as_tokens(sample.ids, sample.response_mask): sample for sample in samples}
    ours = [
        by_tokens[as_tokens(row["input_ids"], row["loss_mask"])] for row in map(rows.__getitem__, range(4))
    ]
    torch.testing.assert_close(loss, -evaluate_in(policy, ours).logprobs.mean(), rtol=1e-4, atol=1e-4)


def test_tasks_are_held_out_whole(write):
    out = write(*READING, *SMALL, "--episodes", "60", "--eval-every", "2")
    train, val = tasks_of(out), tasks_of(out, "val")
    assert len(val) >= 4
    assert not {*train} & {*val}
    assert composed(out).trainer.test_freq == 2


def test_a_file_teaches_what_has_succeeded(write, tmp_path):
    evaluate("MemSokoban-v0", "gold", tasks="0:9", out=tmp_path / "played")
    file = tmp_path / "played" / "episodes.jsonl"
    right = list(read_episodes(file))
    with EpisodeWriter(tmp_path / "traces.jsonl") as writer:
        for number, episode in enumerate(right):
            episode.metrics = {**episode.metrics, "success": float(number > 0)}
            writer.write(episode)
    out = write("--env", "MemSokoban-v0", "--teacher", str(tmp_path / "traces.jsonl"), *SMALL)
    assert sorted(tasks_of(out)) == sorted(episode.task for episode in right[1:])


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--teacher", "self"], "episodes.jsonl"),
        (["--no-shuffle"], "shuffle"),
        (["--temperature", "0.7"], "temperature"),
        (["--lr-end", "0.5"], "--lr-end 0.5"),
        (["--batch-size", "5"], "a multiple of 2"),
        (["--batch-size", "400"], "there are"),
        (["--eval-every", "3"], "--eval-every"),
    ],
)
def test_what_verl_cannot_learn_from_is_refused_in_a_line(write, flags, named):
    (line,) = write(*SOKOBAN, *SMALL, *flags).splitlines()
    assert named in line


def test_a_begun_run_keeps_its_episodes(write, tmp_path):
    evaluate("MemSokoban-v0", "gold", tasks="0:8", out=tmp_path / "played")
    file = tmp_path / "played" / "episodes.jsonl"
    flags = ["--env", "MemSokoban-v0", "--teacher", str(file), *SMALL]
    out = write(*flags)
    (out / "checkpoints").mkdir()
    assert write(*flags) == out
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    before = (out / "train.arrow").read_bytes()
    assert "other episodes" in write(*flags)
    assert (out / "train.arrow").read_bytes() == before


def test_a_run_resumes_without_the_learners_name_and_with_its_own_values_alone(write, capsys):
    out = write(*SOKOBAN, *SMALL)
    before = json.loads((out / "args.json").read_text())
    assert main(["train", "--resume", "--dry-run", "--out", str(out)]) == 0
    assert json.loads((out / "args.json").read_text()) == {**before, "resume": True}
    assert main(["train", "--resume", "--dry-run", "--out", str(out), "--lr", "0.5"]) == 2
    assert "lr" in capsys.readouterr().err.splitlines()[-1]


def test_the_script_starts_torchrun_and_asks_for_the_first_of_several_machines(write, tmp_path):
    out = write(*SOKOBAN, *SMALL, "--nodes", "2", "--gpus", "1")
    stub = tmp_path / "torchrun"
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("MASTER", None)

    def start(**more):
        command = ["bash", str(out / "run.sh"), "trainer.save_freq=7"]
        return subprocess.run(command, env={**environment, **more}, capture_output=True, text=True)

    assert "MASTER=HOST" in start().stderr
    words = start(MASTER="one:29500").stdout.splitlines()
    assert words[:5] == [
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=one:29500",
        "--rdzv-id=run",
        "--nnodes=2",
        "--nproc-per-node=1",
    ]
    assert words[5:7] == ["-m", "verl.trainer.sft_trainer"]
    assert words[7 : 7 + len(overrides(out))] == overrides(out)
    assert words[-1] == "trainer.save_freq=7"


def test_a_run_starts_with_the_python_that_wrote_it(model, tmp_path, monkeypatch):
    for name, text in (("python", "exit 1"), ("torchrun", f"touch {tmp_path}/started")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    flags = ["--model", str(model), "--out", str(tmp_path / "run"), "--engine", "verl", *SOKOBAN, *SMALL]
    assert learn(["sft", *flags]) == 0
    assert (tmp_path / "started").exists()


def test_a_checkpoint_becomes_a_model_that_transformers_loads(write, model):
    out = write(*SOKOBAN, *SMALL)
    checkpoint = out / "checkpoints" / "global_step_7"
    trained = transformers.AutoModelForCausalLM.from_pretrained(model)
    trained.config.save_pretrained(checkpoint / "huggingface")
    transformers.AutoTokenizer.from_pretrained(model).save_pretrained(checkpoint / "huggingface")
    torch.save(trained.state_dict(), checkpoint / "model_world_size_1_rank_0.pt")
    (checkpoint / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 1}')
    assert main(["train", "--merge", "7", "--out", str(out)]) == 0
    weights = transformers.AutoModelForCausalLM.from_pretrained(out / "models" / "step-7").state_dict()
    for name, weight in trained.state_dict().items():
        torch.testing.assert_close(weights[name].float(), weight.bfloat16().float())
