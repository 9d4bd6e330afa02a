"""Each recipe has the numbers of its paper, and the command line overrides them."""

import importlib.resources
import re
from typing import get_type_hints

import gymnasium as gym
import pytest

pytest.importorskip("torch")
pytest.importorskip("tyro")
pytest.importorskip("tensorboard")

import memenvs  # noqa: F401
from memenvs.baselines.flags import main as learn
from memenvs.baselines.flags import read_args, recipe_names
from memenvs.wrappers.registry import read_methods

READING = {"chunk_size": 5000, "max_memory": 1024, "max_answer": 1024, "metric": "boxed_em"}  # TAMTRL 6.1
NO_THINKING = {"enable_thinking": False}
MEMPO = {"memory_mode": "rewrite", "max_turns": 15}  # 5.3: 16 rounds, the last one for the answer; 5.4
# The numbers are from the text of the papers, not from the recipes.
PAPERS = {
    ("mt_ppo", "mt_ppo_search"): {  # MT-PPO 5.2, 6.1, 6.2, D.1.3
        "env": "MemSearchQA-v0",
        "env_args": {"k": 3, "max_turns": 4 - 1, "final_answer_turn": True, "max_information": 500},
        "methods": [["SearchRewards", {"search_cost": 0.1}]], "reward": "turn", "gamma": 1.0, "lam": 1.0,
        "groups": 512, "group_size": 1, "minibatches": 512 // 256, "steps": 500, "lr": 1e-6,
        "lr_warmup": 0.285, "critic": "separate", "critic_lr": 1e-5, "critic_lr_warmup": 0.015,
        "clip": (0.2,), "kl_coef": 0.001, "kl_in": "reward", "loss_agg_mode": "seq-mean-token-mean",
        "max_new_tokens": 500, "max_model_len": 4096, "temperature": 1.0, "gradient_checkpointing": True,
        "value_clip": 0.5, "entropy_coef": 0.001,  # ppo_trainer.yaml of Search-R1
    },
    ("mt_ppo", "mt_ppo_sokoban"): {  # MT-PPO appendix E
        "env": "MemSokoban-v0",
        "env_args": {"max_turns": 3, "max_actions": 3, "max_steps": 100, "min_solution": 5,
                     "rewards": "mt_ppo"},
        "reward": "turn", "steps": 300, "value_clip": None, "max_model_len": 4096,
    },
    ("grpo", "mt_grpo_tool"): {  # MT-GRPO 5.2, config_utils.py of its public code
        "env": "MemToolQA-v0", "env_args": {"k": 1}, "methods": ["ToolRewards"], "reward": "turn",
        "group_size": 21, "groups": 12 * 4 * 7 // 21, "epochs": 2, "steps": 300 // 2, "lr": 1e-6,
        "lr_warmup": 20 // 2, "adamw": {"betas": [0.9, 0.99]}, "max_grad_norm": 0.1,
        "kl_coef": 0.0, "loss_agg_mode": "seq-mean-token-mean", "max_new_tokens": 1024,
    },
    ("grpo", "tamtrl_reading"): {  # TAMTRL 6.1, B.2; where it says "as MemAgent", run_memory_7B.sh
        "env": "MemChunkQA-v0", "env_args": READING, "chat_args": NO_THINKING,
        "reward": "tamtrl", "group_size": 8, "groups": 32,
        "minibatches": 32 // 8, "dual_clip": 3.0, "loss_agg_mode": "token-mean", "steps": 800, "lr": 1e-6,
        "lr_warmup": 20, "adamw": {"betas": [0.9, 0.95], "weight_decay": 0.01}, "kl_coef": 0.001,
        "entropy_coef": 0.0, "max_new_tokens": 1024,
    },
    ("sft", "tamtrl_sft"): {  # TAMTRL B.2, table A1
        "env": "MemChunkQA-v0", "env_args": READING, "chat_args": NO_THINKING,
        "episodes": 25600, "learn_from": "success", "epochs": 5,
        "lr": 1e-5,
    },
    ("sft", "tamtrl_star"): {  # TAMTRL B.2, table A1
        "env": "MemChunkQA-v0", "env_args": READING, "chat_args": NO_THINKING,
        "teacher": "self", "episodes": 8 * 25600,
        "learn_from": "success", "epochs": 5, "lr": 1e-5,
    },
    ("distill", "tamtrl_kd"): {  # TAMTRL 6.1, B.2, B.3, table A1
        "env": "MemChunkQA-v0", "env_args": READING, "chat_args": NO_THINKING,
        "teacher_model": "Qwen/Qwen3-8B", "rollouts": "teacher",
        "view": "student", "divergence": "forward", "groups": 25600 // 800, "group_size": 1, "steps": 800,
        "epochs": 5, "lr": 1e-5, "max_new_tokens": 1024,
    },
    ("grpo", "infomem_reading"): {  # InfoMem table 4, A.3, C.5
        "env": "MemChunkQA-v0",
        "env_args": {"chunk_size": 5000, "max_memory": 1024, "metric": "boxed_em"}, "reward": "infomem",
        "reward_args": {"beta": 0.2}, "group_size": 8, "groups": 256, "minibatches": 256 // 64,
        "epochs": 1, "clip": (0.2,), "lr": 1e-6, "lr_warmup": 2, "kl_coef": 0.001, "steps": 120,
        "temperature": 1.0, "max_new_tokens": 1024, "eval_every": 2, "eval_episodes": 128,
        "eval_env_args": {"tasks": "data/hotpot200-holdout"}, "eval_temperature": 0.0,
    },
    ("grpo", "memagent_reading"): {  # its public run_memory_7B.sh, and the ppo_trainer.yaml that it builds on
        "env": "MemChunkQA-v0",
        "env_args": READING,
        "reward": "outcome", "reward_args": {"scale": "none"}, "group_size": 16, "groups": 128,
        "minibatches": 128 // 8, "epochs": 1, "loss_agg_mode": "token-mean", "clip": (0.2, 0.2),
        "dual_clip": 3.0, "kl_coef": 0.001, "entropy_coef": 0.0, "lr": 1e-6, "lr_warmup": 20,
        "adamw": {"weight_decay": 0.01}, "temperature": 1.0, "max_new_tokens": 1024,
        "gradient_checkpointing": True, "eval_every": 5,
    },
    ("grpo", "mempo_search"): {  # MemPO 5.3, 5.4
        "env": "MemSearchQA-v0", "env_args": MEMPO,
        "reward": "mempo", "group_size": 16, "groups": 128, "lr": 1e-6,
        "kl_coef": 0.001,  # eq. 10; the weight is that of MEM1's train_ppo.sh
        "max_new_tokens": 2048,  # a memory of 1024 tokens and more
    },
    ("grpo", "research_search"): {  # its public scripts/train/train.sh, re_search.py and vllm_rollout.py
        "env": "MemSearchQA-v0",
        "env_args": {"form": "research", "metric": "f1", "k": 5, "max_information": 2000, "max_turns": 16},
        "methods": [["FormatGate", {"improper": 0.0, "wrong": 0.1}]], "reward": "outcome",
        "group_size": 5, "groups": 256, "minibatches": 256 // 256, "lr": 1e-6, "kl_coef": 0.001,
        "gradient_checkpointing": True,
    },
    ("grpo", "deep_researcher_search"): {  # its public train_grpo.sh, ppo_trainer.yaml and format_and_f1.py
        "env": "MemSearchQA-v0",
        "env_args": {"form": "deep_researcher", "metric": "set_f1", "k": 10, "max_information": 2000,
                     "max_turns": 10, "final_answer_turn": False},
        "methods": [["FormatGate", {"improper": -1.0}]], "reward": "outcome", "group_size": 16,
        "groups": 256, "minibatches": 256 * 16 // 4096, "lr": 1e-6, "clip": (0.2,), "kl_coef": 0.001,
        "entropy_coef": 0.001, "temperature": 1.0, "max_new_tokens": 2000,
    },
    ("sft", "mempo_sft"): {  # MemPO 3.3, 5.3
        "env": "MemSearchQA-v0", "env_args": MEMPO,
        "episodes": 10000, "learn_from": "success", "epochs": 1,
    },
}  # fmt: skip
each = pytest.mark.parametrize(("learner", "recipe"), PAPERS, ids=lambda name: name)


def read(learner, *argv):
    return read_args(
        get_type_hints(importlib.import_module(f"memenvs.baselines.{learner}").train)["args"], argv, learner
    )


def test_every_shipped_recipe_is_compared_with_its_paper():
    assert recipe_names() == sorted(recipe for _, recipe in PAPERS)


@each
def test_a_recipe_has_the_numbers_of_its_paper(learner, recipe):
    args = read(learner, "--recipe", recipe)
    wanted = PAPERS[learner, recipe]
    found = {name: getattr(args, name) for name in wanted}
    assert {name: read_methods(v) if name == "methods" else v for name, v in found.items()} == wanted


def test_arguments_beside_a_recipe_win_name_by_name():
    args = read("grpo", "--recipe", "mempo_search", "--env-args", "k=5", "tasks=mine")
    assert args.env_args == {**MEMPO, "k": 5, "tasks": "mine"}


def test_an_empty_object_beside_a_recipe_leaves_no_arguments():
    assert read("grpo", "--recipe", "infomem_reading", "--reward-args", "{}").reward_args == {}


@each
def test_the_environment_and_methods_of_a_recipe_open(learner, recipe):
    args = read(learner, "--recipe", recipe)
    gym.make(args.env, disable_env_checker=True, **args.env_args).reset(seed=0)
    read_methods(getattr(args, "methods", ()))
    if learner in ("grpo", "distill"):
        assert args.num_envs % args.group_size == 0


@pytest.mark.parametrize("argv", ["--recipe mt_ppo_search --steps 7", "--steps=7 --recipe=mt_ppo_search"])
def test_a_flag_on_the_command_line_wins_before_and_after_the_recipe(argv):
    args = read("mt_ppo", *argv.split())
    assert (args.steps, args.groups) == (7, 512)


def test_a_switch_of_a_recipe_can_be_turned_off():
    assert not read(
        "mt_ppo", "--recipe", "mt_ppo_search", "--no-gradient-checkpointing"
    ).gradient_checkpointing


def test_a_recipe_may_be_a_file(tmp_path):
    (tmp_path / "mine.txt").write_text(
        "# mine\n\n--env MemSokoban-v0 --steps 3   # few\n--stop '</a>' '# b'\n--dtype bfloat16\n"
    )
    args = read("mt_ppo", "--recipe", str(tmp_path / "mine.txt"))
    assert (args.steps, args.stop, args.dtype) == (3, ("</a>", "# b"), "bfloat16")


@pytest.mark.parametrize("content", [b"--env M\xe9m", b"--system-prompt 'not closed"])
def test_a_recipe_that_cannot_be_read_is_named(tmp_path, content):
    file = tmp_path / "mine.txt"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(str(file))):
        read("grpo", "--recipe", str(file))


def test_an_unknown_recipe_is_one_line(tmp_path, capsys):
    assert learn(["mt_ppo", "--recipe", str(tmp_path / "mine.txt")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert repr(str(tmp_path / "mine.txt")) in line
    assert all(name in line for name in recipe_names())
    assert learn(["grpo", "--recipe", "infomem_readin"]) == 2
    assert "did you mean infomem_reading?" in capsys.readouterr().err


def test_a_recipe_of_another_learner_is_refused_with_an_unknown_flag(capsys):
    with pytest.raises(SystemExit):
        learn(["grpo", "--recipe", "mt_ppo_search"])
    assert "--gamma" in capsys.readouterr().err
