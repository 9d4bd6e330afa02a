"""`--engine verl` writes runs that the real verl composes and whose loops play."""

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed; `make test-trainers` installs it")
import peft
import pyarrow.parquet as pq
import torch
import yaml
from omegaconf import OmegaConf
from packaging.requirements import Requirement
from tiny_model import save_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel
from verl.trainer.ppo import rollout_corr_helper
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl_stub import compose, overrides

from memenvs.baselines.advantages import read_comparison
from memenvs.baselines.flags import main as learn
from memenvs.baselines.flags import recipe_flags, recipe_names
from memenvs.baselines.verl import merge_adapter
from memenvs.baselines.verl.settings import hydra_value, unresolved
from memenvs.core.optional import import_object
from memenvs.wrappers.registry import make_methods

OF_GRPO = [
    name
    for name in recipe_names()
    if not name.startswith("mt_ppo") and not name.endswith(("sft", "star", "kd"))
]
SMALL = ["--env", "MemChunkQA-v0", "--env-args", "chunk_size=300", "n_documents=4", "--max-new-tokens", "64"]
GROWING = ["--env", "MemSearchQA-v0", "--env-args", "max_turns=3", "--max-new-tokens", "64"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("verl") / "model", window=40000)


@pytest.fixture
def write(model, tmp_path, capsys):
    """Write a run, and start nothing; its folder, or the line of its refusal."""

    def written(learner, *flags):
        out = tmp_path / "run"
        argv = ["--model", str(model), "--out", str(out), "--engine", "verl", "--dry-run", *flags]
        if learn([learner, *argv]) == 2:
            return capsys.readouterr().err
        return out

    return written


def composed(out):
    """The configuration that verl makes of a run's script, which verl has checked."""
    config = compose(overrides(out))
    validate_config(config, need_reference_policy(config), need_critic(config))
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    return config


def rows(file):
    return [row["extra_info"]["task"] for row in pq.read_table(file).to_pylist()]


@pytest.mark.parametrize("recipe", OF_GRPO)
def test_verl_composes_every_recipe_of_grpo(write, recipe):
    flags, chat = recipe_flags(recipe), []
    if "--chat-args" in flags:  # the tiny model's template has no thoughts to switch off
        chat = ["--chat-args", "{}"]
    out = write(
        "grpo",
        "--recipe",
        recipe,
        *chat,
        "--env-args",
        "tasks=world-train",
        "--eval-env-args",
        "tasks=world-test",
    )
    config, args = composed(out), json.loads((out / "args.json").read_text())
    actor = config.actor_rollout_ref.actor
    by_row = "_by_row" if args["loss_agg_mode"].startswith("seq-mean") else ""
    assert config.algorithm.adv_estimator == "memenvs_as_paid" + by_row
    assert (config.data.train_batch_size, config.actor_rollout_ref.rollout.n) == (
        args["groups"],
        args["group_size"],
    )
    assert actor.optim.lr == args["lr"]
    assert (actor.clip_ratio_low, actor.clip_ratio_high) == (args["clip"][0], args["clip"][-1])
    assert actor.kl_loss_coef == args["kl_coef"] if args["kl_coef"] else not actor.use_kl_loss
    assert actor.ppo_mini_batch_size * args["group_size"] % (8 * 1) == 0
    (loop, validation) = yaml.safe_load((out / "loops.yaml").read_text())
    methods = make_methods(loop["methods"]) if loop["methods"] else []
    read_comparison(methods=methods, **loop["comparison"])
    import_object(loop["_target_"].replace(".EpisodeLoop", ":EpisodeLoop"))
    assert validation["settings"]["tasks"] == "world-test"


@pytest.mark.parametrize("recipe", ["mt_ppo_search", "mt_ppo_sokoban"])
def test_verl_composes_every_recipe_of_mt_ppo_with_a_critic(write, recipe):
    tasks = ["--env-args", "tasks=world-train"] if recipe == "mt_ppo_search" else []
    out = write("mt_ppo", "--recipe", recipe, *tasks)
    config, args = composed(out), json.loads((out / "args.json").read_text())
    assert need_critic(config)
    assert (config.algorithm.adv_estimator, config.algorithm.gamma, config.algorithm.lam) == ("gae", 1.0, 1.0)
    assert config.critic.optim.lr == pytest.approx(1e-5 if recipe == "mt_ppo_search" else 10 * args["lr"])
    assert config.critic.cliprange_value == (args["value_clip"] or 1e6)
    assert config.algorithm.use_kl_in_reward == (args["kl_in"] == "reward")
    assert yaml.safe_load((out / "loops.yaml").read_text())[0]["placement"] == "turn"


def test_a_plan_does_not_depend_on_the_seed(write):
    plans = []
    for seed in ("0", "1"):
        out = write("grpo", *SMALL, "--groups", "4", "--minibatches", "2", "--seed", seed)
        plans.append([line for line in overrides(out) if "length" in line or "mini_batch" in line])
        shutil.rmtree(out)
    assert plans[0] == plans[1]
    assert plans[0]


def test_requirements_leave_flash_attn_to_a_build_that_sees_torch(write):
    out = write("grpo", *SMALL)
    packages = [Requirement(line) for line in (out / "requirements.txt").read_text().splitlines()[:-1]]
    assert {"verl", "ray", "torch"} <= {package.name for package in packages}
    assert not any(package.name == "flash-attn" for package in packages)
    subprocess.run(["bash", "-n", out / "install.sh"], check=True)
    assert "--no-build-isolation flash-attn==" in (out / "install.sh").read_text()


@pytest.mark.skipif(find_spec("flash_attn") is not None, reason="flash-attn is installed")
def test_a_run_with_a_critic_ends_in_one_line_without_flash_attn(write):
    out = write("mt_ppo", *GROWING)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run = ["bash", str(out / "run.sh")]
    ended = subprocess.run(run, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "flash-attn" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_the_policy_first_learns_after_the_warm_up_of_its_critic(write):
    config = composed(write("mt_ppo", *GROWING, "--critic-warmup", "2"))
    # The condition of `_step_once` in verl's trainer.
    learns = [config.trainer.critic_warmup <= step for step in (1, 2, 3)]
    assert learns == [False, False, True]


def test_a_model_that_verl_cannot_load_is_refused(model, tmp_path, capsys):
    config = GPT2Config(vocab_size=64, n_embd=8, n_layer=1, n_head=1)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "model")
    AutoTokenizer.from_pretrained(model).save_pretrained(tmp_path / "model")
    argv = ["--model", str(tmp_path / "model"), "--out", str(tmp_path / "run"), *SMALL]
    assert learn(["grpo", *argv, "--engine", "verl", "--dry-run"]) == 2
    assert "num_key_value_heads" in capsys.readouterr().err


def test_a_critic_is_refused_where_prompts_are_rewritten(write):
    assert "memory_mode=react" in write("mt_ppo", *SMALL)


def test_rows_name_each_task_once_and_never_one_of_the_others(write):
    out = write("grpo", *SMALL, "--eval-env-args", "tasks=world-train", "--groups", "16")
    train, val = rows(out / "train.parquet"), rows(out / "val.parquet")
    assert len({*train, *val}) == len(train) + len(val) == 512
    assert len(val) == 51


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--reward", "turn", "--tree-turns", "1"], "--tree-turns 1"),
        (["--lr-end", "0.5"], "--lr-end 0.5"),
        (["--stop", "x"], "--stop"),
        (["--kl-coef", "0.1", "--ref-sync-steps", "5"], "--ref-sync-steps 5"),
        (["--groups", "900"], "--groups"),
        (["--vllm", "tensor_parallel_size=3"], "tensor_parallel_size"),
        (["--methods", "Judge", "url=http://me:secret@127.0.0.1:1", "model=m"], "secrets of an address"),
    ],
)
def test_what_verl_cannot_carry_is_refused_in_a_line(write, flags, named):
    assert named in write("grpo", *SMALL, *flags)


@pytest.mark.parametrize(
    ("flags", "level", "bounds"),
    [
        (["--importance-cap", "2"], "token", (2.0, None)),
        (["--importance-cap", "5", "--importance-floor", "0.5"], "token", (5.0, 0.5)),
        (["--importance-cap", "2", "--importance-level", "sequence"], "sequence", (2.0, None)),
    ],
)
def test_verl_reads_the_bounds_of_importance_weights(write, flags, level, bounds):
    correction = composed(write("grpo", *SMALL, *flags)).algorithm.rollout_correction
    assert correction.rollout_is == level
    assert rollout_corr_helper._parse_rollout_is_threshold(correction.rollout_is_threshold) == bounds


def test_verl_reads_every_text_as_it_is():
    texts = [
        "a b, {c}",
        "é",
        "007",
        "1e5",
        "true",
        "Null",
        "C:\\data\\x",
        "a\\",
        "it's \\' so",
        "${x}",
        "\\${x}",
        "a=b:c",
        "",
    ]
    nested = {"a": texts, "b": [0.5, None, True]}
    config = compose([f"+texts={hydra_value(texts)}", f"+nested={hydra_value(nested)}"])
    assert OmegaConf.to_container(config.texts, resolve=True) == texts
    assert OmegaConf.to_container(config.nested, resolve=True) == nested


def test_the_loops_read_every_text_as_it_is(tmp_path):
    loops = [{"settings": {"prompts": {"main": "${x} for ${y:z}"}}, "methods": [["A", {"b": "\\${x}"}]]}]
    (tmp_path / "loops.yaml").write_text(yaml.safe_dump(unresolved(loops)))
    assert OmegaConf.to_container(OmegaConf.load(tmp_path / "loops.yaml"), resolve=True) == loops


def test_a_run_that_was_written_with_other_flags_is_not_overwritten(write):
    write("grpo", *SMALL, "--lr", "1e-6")
    error = write("grpo", *SMALL, "--lr", "2e-6")
    assert "lr 1e-06" in error
    assert "2e-06" in error


def test_a_checkpoint_becomes_a_model_that_transformers_loads(model, tmp_path, capfd):
    out = tmp_path / "run"
    argv = ["--model", str(model), "--out", str(out), "--engine", "verl", "--dry-run", *SMALL]
    assert learn(["grpo", *argv]) == 0
    actor = out / "checkpoints" / "global_step_7" / "actor"
    trained = AutoModelForCausalLM.from_pretrained(model)
    trained.config.save_pretrained(actor / "huggingface")
    AutoTokenizer.from_pretrained(model).save_pretrained(actor / "huggingface")
    torch.save(trained.state_dict(), actor / "model_world_size_1_rank_0.pt")
    (actor / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 1}')
    (model / "README.md").write_text("---\nbase_model: some/base\nlicense: mit\n---\n")
    assert learn(["grpo", "--out", str(out), "--merge", "0"]) == 2
    assert "merge" in capfd.readouterr().err
    assert learn(["grpo", "--out", str(out), "--merge", "8"]) == 2
    error = capfd.readouterr().err
    assert "step 8" in error
    assert "one of 7" in error
    assert learn(["grpo", "--out", str(out), "--merge", "7"]) == 0
    merged = out / "models" / "step-7"
    assert f"vllm serve {merged}" in capfd.readouterr().out
    assert json.loads((merged / "policy.json").read_text())["temperature"] == 1.0
    card = (merged / "README.md").read_text()
    assert "\nbase_model: some/base\nlicense: mit\n" in card
    assert "--env MemChunkQA-v0" in card
    assert str(model.parent) not in card
    weights = AutoModelForCausalLM.from_pretrained(merged).state_dict()
    for name, weight in trained.state_dict().items():
        torch.testing.assert_close(weights[name].float(), weight.bfloat16().float())


def test_an_adapter_beside_a_merged_model_is_added_to_its_weights(model, tmp_path):
    merged = tmp_path / "step-1"
    base = AutoModelForCausalLM.from_pretrained(model)
    base.save_pretrained(merged)
    ids = torch.tensor([[5, 6, 7, 8]])
    settings = peft.LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    adapted = peft.get_peft_model(base, settings)
    adapted.save_pretrained(merged / "lora_adapter")
    merge_adapter(merged)
    assert not (merged / "lora_adapter").exists()
    now = AutoModelForCausalLM.from_pretrained(merged)
    torch.testing.assert_close(now(ids).logits, adapted(ids).logits, rtol=1e-3, atol=1e-4)
