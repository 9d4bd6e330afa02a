"""`--engine verl` writes runs that the real verl composes and whose loops play."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("verl", reason="verl is not installed; `make test-trainers` installs it")
import peft
import pyarrow.parquet as pq
import torch
import yaml
from omegaconf import OmegaConf
from tiny_model import save_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl_stub import compose

from memenvs.baselines import grpo, mt_ppo
from memenvs.baselines.advantages import read_credit
from memenvs.baselines.flags import recipe_flags, recipe_names
from memenvs.baselines.verl import hydra_value, merge_adapter, unresolved
from memenvs.core.optional import import_object
from memenvs.wrappers.registry import make_methods

MAINS = {"grpo": grpo, "mt_ppo": mt_ppo}
OF_GRPO = [
    name
    for name in recipe_names()
    if not name.startswith("mt_ppo") and not name.endswith(("sft", "star", "kd"))
]
TABLES = Path(__file__).parents[2] / "examples" / "tables"
SCRIPTS = [  # the rows of models that one GPU cannot train; the other rows train the recipes
    path
    for table in ("mempo", "mt_grpo", "mt_ppo")
    for path in sorted((TABLES / table).glob("*.sh"))
    if re.search(r"^train (grpo|mt_ppo)", path.read_text(), re.MULTILINE)
]
SMALL = ["--env", "MemChunkQA-v0", "--env-args", "chunk_size=300", "n_documents=4", "--max-new-tokens", "64"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("verl") / "model", window=40000)


@pytest.fixture
def write(model, tmp_path, capsys):
    """Write a run, and start nothing; its folder, or the line of its refusal."""

    def written(learner, *flags):
        out = tmp_path / "run"
        argv = ["--model", str(model), "--out", str(out), "--engine", "verl", "--dry-run", *flags]
        if MAINS[learner].main(argv) == 2:
            return capsys.readouterr().err
        return out

    return written


def overrides(out):
    """The settings of a run's script, with those for a machine without flash-attn."""
    lines = (out / "run.sh").read_text().replace("\\\n", " ").splitlines()
    attention = shlex.split(lines[-2].rpartition("attention=(")[2].rstrip(")"))
    return [*shlex.split(lines[-1])[3:-2], *attention]


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
    assert config.algorithm.adv_estimator == "memenvs_as_paid"
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
    read_credit(loop["credit"], methods)
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


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_verl_composes_the_rows_of_7b_in_the_papers_tables(script, model, tmp_path, monkeypatch):
    for name in ("RETRIEVER", "TEACHER"):
        monkeypatch.setenv(name, "none:")
    monkeypatch.setenv("PRINT", "1")
    shown = subprocess.run(["bash", script], capture_output=True, text=True, check=True).stdout
    commands = [shlex.split(line)[2:] for line in shown.splitlines()]
    ((learner, *flags),) = [words for words in commands if words[0] in MAINS and "--merge" not in words]
    assert flags[flags.index("--engine") + 1] == "verl"
    flags = [re.sub(r"tasks=.*", "tasks=world-train", word) for word in flags if word != "retriever=none:"]
    flags = [*flags, "--model", str(model), "--out", str(tmp_path / "run"), "--dry-run"]
    assert MAINS[learner].main(flags) == 0


def test_a_critic_is_refused_where_prompts_are_rewritten(write):
    assert "memory_mode=react" in write("mt_ppo", *SMALL)


def test_the_check_is_ten_lines(write, capsys):
    write("grpo", *SMALL, "--reward", "tamtrl", "--groups", "4")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10


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
        (["--groups", "900"], "--groups"),
        (["--vllm", "tensor_parallel_size=3"], "tensor_parallel_size"),
    ],
)
def test_what_verl_cannot_carry_is_refused_in_a_line(write, flags, named):
    assert named in write("grpo", *SMALL, *flags)


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
    assert grpo.main(argv) == 0
    actor = out / "checkpoints" / "global_step_7" / "actor"
    trained = AutoModelForCausalLM.from_pretrained(model)
    trained.config.save_pretrained(actor / "huggingface")
    AutoTokenizer.from_pretrained(model).save_pretrained(actor / "huggingface")
    torch.save(trained.state_dict(), actor / "model_world_size_1_rank_0.pt")
    (actor / "fsdp_config.json").write_text('{"FSDP_version": 2, "world_size": 1}')
    (model / "README.md").write_text("---\nbase_model: some/base\nlicense: mit\n---\n")
    assert grpo.main(["--out", str(out), "--merge", "0"]) == 2
    assert "merge" in capfd.readouterr().err
    assert grpo.main(["--out", str(out), "--merge", "8"]) == 2
    error = capfd.readouterr().err
    assert "step 8" in error
    assert "one of 7" in error
    assert grpo.main(["--out", str(out), "--merge", "7"]) == 0
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
