"""The same run in verl, which shards a model over GPUs: `memenvs train … --engine verl`.

A run's folder gets the tasks, the agent loops, a script with every setting in verl's names, and the packages
that verl's own metadata pins. The script is all that runs afterwards.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import importlib.util
import io
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, get_args, get_origin

import numpy as np

from memenvs.baselines.advantages import AS_PAID, group_advantages, read_comparison, read_credit
from memenvs.baselines.flags import ARGS, EngineArgs
from memenvs.baselines.rollout import evaluation_args, evaluation_command
from memenvs.build.write import RowSplit, task_row
from memenvs.core.arguments import REQUIRED, Parameter, check_env_arguments, env_parameters, parameters_of
from memenvs.core.env import check_text_observations, text_env_of
from memenvs.core.episode import Episode, Reply, valid
from memenvs.core.errors import error_line
from memenvs.core.files import read_json, write_json, write_text
from memenvs.core.optional import require
from memenvs.data import bundled_names
from memenvs.models import SamplingParams
from memenvs.models.chat import ChatPolicy
from memenvs.models.hf import SETTINGS, chat_tokens, model_card, named_ends
from memenvs.models.packaged import resolve
from memenvs.rollout.collect import Loop, maker
from memenvs.rollout.order import draw_tasks
from memenvs.rollout.policy import Request, TurnPolicy, prompt_of
from memenvs.tasks.metrics import METRICS
from memenvs.tasks.taskset import CARD
from memenvs.wrappers import RewardMethod
from memenvs.wrappers.registry import make_methods, make_scorer, plain_method, read_methods

ADAPTER = "memenvs.adapters.verl"
"""The module that verl loads in every process: the agent loop, and the estimator of its advantages."""
CHECKPOINTS, LOOPS, SCRIPT, REQUIREMENTS = "checkpoints", "loops.yaml", "run.sh", "requirements.txt"
HYDRA = "hydra"
"""The folder where Hydra, which reads verl's settings, logs each start."""
HYDRA_WORDS = ("null", "true", "false", "nan", "inf")
"""Words that Hydra does not read as text."""
FAR = 1e6
"""A bound that nothing reaches, where verl has a limit and the run has none."""
GPU_BYTES = 80e9
"""Memory of a GPU in bytes, assumed where this machine has none."""
WORKER_ENV = "+ray_kwargs.ray_init.runtime_env.env_vars"
"""The environment of Ray's workers."""
EXTRAS = ("vllm", "fsdp")
"""verl's own extras whose pinned packages a run needs."""

A = "actor_rollout_ref.actor"
R = "actor_rollout_ref.rollout"
M = "actor_rollout_ref.model"

PAID = {"turn": "the reward of each turn", "merged": "the sum of all rewards", "outcome": "the outcome"}
"""The rewards that mt_ppo places, by `--reward`."""

Settings = Mapping[str, Any]
"""Settings by verl's names; `+` begins a name that verl's configuration does not have."""


class EpisodeShape(NamedTuple):
    """What an episode is to verl, which holds a row for each text that the model reads.

    Attributes:
        rows: mean number of rows of an episode.
        most_rows: most rows of an episode.
        prompt: most tokens of a fresh prompt.
        response: most tokens of what follows it in a row.
    """

    rows: float
    most_rows: int
    prompt: int
    response: int


@dataclass(frozen=True)
class Place:
    """Where a flag goes in verl.

    Attributes:
        where: its place as the page names it; or, without `settings`, why verl needs none.
        settings: verl's settings for the arguments and the shape of an episode; None: it has none.
        refuses: whether a value cannot be carried over, although it changes what is learned.
    """

    where: str
    settings: Callable[[Any, EpisodeShape], Settings] | None = None
    refuses: Callable[[Any], bool] | None = None


def same(where: str, flag: str) -> Place:
    """A flag that verl has under another name."""
    shown = where.replace("actor_rollout_ref.", "…")
    return Place(f"`{shown}`", lambda args, shape: {where: getattr(args, flag)})


def set_warmup(where: str, steps: float) -> Settings:
    """Settings of the warm-up."""
    share = 0 < steps < 1
    return {f"{where}.lr_warmup_steps_ratio": steps} if share else {f"{where}.lr_warmup_steps": int(steps)}


def set_adamw(where: str, adamw: Mapping[str, Any]) -> Settings:
    """Settings of the optimizer."""
    others = {name: value for name, value in adamw.items() if name not in ("betas", "weight_decay")}
    betas = {f"{where}.betas": list(adamw["betas"])} if "betas" in adamw else {}
    more = {f"{where}.override_optimizer_config": others} if others else {}
    return {f"{where}.weight_decay": adamw.get("weight_decay", 0.0), **betas, **more}


def _clip(args: Any, shape: EpisodeShape) -> Settings:
    low, high = args.clip[0], args.clip[-1]
    return {f"{A}.clip_ratio": low, f"{A}.clip_ratio_low": low, f"{A}.clip_ratio_high": high}


def _kl(args: Any, shape: EpisodeShape) -> Settings:
    if not args.kl_coef:
        return {}
    if args.kl_in_loss:
        return {f"{A}.use_kl_loss": True, f"{A}.kl_loss_coef": args.kl_coef}
    return {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.kl_coef": args.kl_coef}


def _importance(args: Any, shape: EpisodeShape) -> Settings:
    if args.importance_cap is None:
        return {}
    place = "algorithm.rollout_correction"
    return {f"{place}.rollout_is": "token", f"{place}.rollout_is_threshold": args.importance_cap}


def _eval_temperature(args: Any, shape: EpisodeShape) -> Settings:
    """Validation samples as training does, unless the run says otherwise."""
    temperature = args.temperature if args.eval_temperature is None else args.eval_temperature
    place = f"{R}.val_kwargs"
    return {f"{place}.temperature": temperature, f"{place}.do_sample": temperature > 0}


def _loss_agg(args: Any, shape: EpisodeShape) -> Settings:
    scaled = args.loss_agg_mode == "seq-mean-token-sum-norm"
    scale = {f"{A}.loss_scale_factor": args.max_new_tokens} if scaled else {}
    return {f"{A}.loss_agg_mode": args.loss_agg_mode, **scale}


def _minibatches(args: Any, shape: EpisodeShape) -> Settings:
    """Verl counts rows: an optimizer step reads `ppo_mini_batch_size * n` of them, a multiple of its GPUs.

    It fills the last one up, so one optimizer step has to hold the most rows that a step can have.
    """
    unit = args.gpus * args.nodes // math.gcd(args.gpus * args.nodes, args.group_size)
    if args.minibatches == 1:
        units = math.ceil(args.groups * shape.most_rows / unit)
    else:
        units = max(1, round(args.groups * shape.rows / args.minibatches / unit))
    return {f"{A}.ppo_mini_batch_size": units * unit}


def micro_batch(args: Any, shape: EpisodeShape) -> int:
    """Most tokens of a forward pass on a GPU, at least those of a row."""
    return max(int(args.micro_batch_tokens), shape.prompt + shape.response)


def _micro_batch(args: Any, shape: EpisodeShape) -> Settings:
    tokens = micro_batch(args, shape)
    return {f"{A}.use_dynamic_bsz": True, f"{A}.ppo_max_token_len_per_gpu": tokens}


def _lora(args: Any, shape: EpisodeShape) -> Settings:
    load = {f"{R}.load_format": "safetensors"} if args.lora_rank else {}
    return {**set_adapter(M, args), **load}


def set_adapter(model: str, args: Any) -> Settings:
    """Settings of a new LoRA adapter of a model, if there is one; its scale is that of our learners."""
    if not args.lora_rank:
        return {}
    return {f"{model}.lora_rank": args.lora_rank, f"{model}.lora_alpha": 2 * args.lora_rank}


def _vllm(args: Any, shape: EpisodeShape) -> Settings:
    known = ("gpu_memory_utilization", "tensor_parallel_size", "max_num_seqs", "enforce_eager")
    names = {"tensor_parallel_size": "tensor_model_parallel_size"}
    settings = {}
    for name, value in (args.vllm or {}).items():
        place = f"{R}.{names.get(name, name)}" if name in known else f"+{R}.engine_kwargs.vllm.{name}"
        settings[place] = value
    return settings


def _filter(args: Any, shape: EpisodeShape) -> Settings:
    if not args.dynamic_sampling:
        return {}
    comparison, _ = read_comparison(args.reward, args.reward_args)
    metric = "success" if comparison.needs_both_answers or args.reward == "outcome" else "return"
    return {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": metric}


def reasons(**of_flags: str) -> dict[str, Place]:
    """Flags that have no setting, each with the reason."""
    return {flag: Place(reason) for flag, reason in of_flags.items()}


TRAIN: Mapping[str, Place] = {
    **reasons(
        recipe="the flags that it holds are here one by one",
        engine="this page",
        dry_run="checks what is written, and starts nothing",
        merge="verl's `model_merger`, into `OUT/models/step-N`",
        resume="the same command resumes from the newest checkpoint (`trainer.resume_mode=auto`)",
        dtype="verl keeps weights in float32 and computes in bfloat16",
        gradient_checkpointing="always on in verl",
    ),
    "lr_end": Place("`1` only: verl's rate stays or falls as a cosine", None, lambda args: args.lr_end < 1),
    "out": Place(
        "`trainer.default_local_dir`",
        lambda args, shape: {
            "trainer.default_local_dir": str((args.out / CHECKPOINTS).resolve()),
            "trainer.project_name": "memenvs",
            "trainer.experiment_name": args.out.resolve().name,
        },
    ),
    "save_every": same("trainer.save_freq", "save_every"),
    "track": Place("`trainer.logger`", lambda args, shape: {"trainer.logger": ["console", *args.track]}),
    "gpus": same("trainer.n_gpus_per_node", "gpus"),
    "nodes": same("trainer.nnodes", "nodes"),
}
"""Flags of every training."""

PLAY: Mapping[str, Place] = {
    **TRAIN,
    "keep": Place(
        "`trainer.max_actor_ckpt_to_keep`, `trainer.max_critic_ckpt_to_keep`",
        lambda args, shape: {f"trainer.max_{model}_ckpt_to_keep": args.keep for model in ("actor", "critic")},
    ),
    "seed": Place(
        "`data.seed`, `…rollout.seed`, and the order of the rows",
        lambda args, shape: {"data.seed": args.seed, f"{R}.seed": args.seed},
    ),
    "model": Place("`…model.path`", lambda args, shape: {f"{M}.path": model_path(args)}),
    "chat_args": Place(
        "`data.apply_chat_template_kwargs`",
        lambda args, shape: {
            f"+data.apply_chat_template_kwargs.{name}": value for name, value in args.chat_args.items()
        },
    ),
    "lora_rank": Place("`…model.lora_rank`, `lora_alpha` twice as much", _lora),
    "micro_batch_tokens": Place("`…actor.ppo_max_token_len_per_gpu`, at least a row", _micro_batch),
    "lr": same(f"{A}.optim.lr", "lr"),
    "lr_warmup": Place(
        "`…actor.optim.lr_warmup_steps` or `lr_warmup_steps_ratio`",
        lambda args, shape: set_warmup(f"{A}.optim", args.lr_warmup),
    ),
    "adamw": Place(
        "`…actor.optim.weight_decay`, `betas`, `override_optimizer_config`",
        lambda args, shape: set_adamw(f"{A}.optim", args.adamw),
    ),
    "max_grad_norm": same(f"{A}.optim.clip_grad", "max_grad_norm"),
    **reasons(
        env="`env` in `loops.yaml`",
        env_args="`settings` in `loops.yaml`, paths absolute",
        eval_env_args="`settings` of `memenvs_test` in `loops.yaml`",
        eval_episodes="the number of rows of `val.parquet`",
        save_episodes="`episodes` in `loops.yaml`, which keeps every episode",
        num_envs="verl's servers say how many are played at once",
        methods="`methods` in `loops.yaml`",
        scorer="`scorer` in `loops.yaml`; `policy` asks verl's servers",
        max_model_len="the most that `…rollout.max_model_len` and a row's lengths add up to",
        split_special_tokens="`split_special_tokens` in `loops.yaml`",
        system_prompt="`system_prompt` in `loops.yaml`, its text",
    ),
    "max_new_tokens": Place(
        "`max_new_tokens` in `loops.yaml`; rows by `data.max_prompt_length`, `data.max_response_length`",
        lambda args, shape: {
            "data.max_prompt_length": shape.prompt,
            "data.max_response_length": shape.response,
            f"{R}.max_model_len": shape.prompt + shape.response,
        },
    ),
    "temperature": same(f"{R}.temperature", "temperature"),
    "eval_temperature": Place("`…rollout.val_kwargs.temperature`, `do_sample`", _eval_temperature),
    "stop": Place("none only: verl's agent loops end a reply at its end token", None, lambda args: args.stop),
    "vllm": Place("`…rollout.gpu_memory_utilization` and its like, `engine_kwargs.vllm`", _vllm),
    "eval_every": Place(
        "`trainer.test_freq`", lambda args, shape: {"trainer.test_freq": args.eval_every or -1}
    ),
    "steps": same("trainer.total_training_steps", "steps"),
    "groups": same("data.train_batch_size", "groups"),
    "group_size": same(f"{R}.n", "group_size"),
    "epochs": same(f"{A}.ppo_epochs", "epochs"),
    "minibatches": Place("`…actor.ppo_mini_batch_size`, from the rows of an episode", _minibatches),
    "loss_agg_mode": Place("`…actor.loss_agg_mode`, `loss_scale_factor`", _loss_agg),
    "clip": Place("`…actor.clip_ratio_low`, `clip_ratio_high`", _clip),
    "dual_clip": Place(
        "`…actor.clip_ratio_c`; off is a bound that no ratio reaches",
        lambda args, shape: {f"{A}.clip_ratio_c": args.dual_clip or FAR},
    ),
    "kl_coef": Place("`…actor.kl_loss_coef` with `use_kl_loss`", _kl),
    "kl_estimator": same(f"{A}.kl_loss_type", "kl_estimator"),
    "importance_cap": Place(
        "`algorithm.rollout_correction.rollout_is_threshold`, with `rollout_is=token`", _importance
    ),
    "entropy_coef": same(f"{A}.entropy_coeff", "entropy_coef"),
}
"""Flags of the learners that play, with their rewards and their loss."""

GRPO: Mapping[str, Place] = {
    **PLAY,
    "reward": Place(
        f"`credit` in `loops.yaml`, with `algorithm.adv_estimator={AS_PAID}`",
        lambda args, shape: {"algorithm.adv_estimator": AS_PAID, "critic.enable": False},
    ),
    "mask_truncated": Place("`mask_truncated` in `loops.yaml`, which takes such replies out of the mask"),
    "reward_args": Place("`credit` and `methods` in `loops.yaml`"),
    "tree_turns": Place("`0` only: verl plays no trees", None, lambda args: args.tree_turns),
    "dynamic_sampling": Place("`algorithm.filter_groups`, which samples without a limit", _filter),
    "overlong": Place("`overlong` in `loops.yaml`"),
}

C = "critic"


def _critic(args: Any, shape: EpisodeShape) -> Settings:
    """A separate critic, which starts as a copy of the policy."""
    rate = 10 * args.lr if args.critic_lr is None else args.critic_lr
    return {
        f"{C}.strategy": "fsdp2",
        f"{C}.model.path": model_path(args),
        f"{C}.optim.lr": rate,
        **set_adamw(f"{C}.optim", args.adamw),
        f"{C}.optim.clip_grad": args.max_grad_norm,
        **set_adapter(f"{C}.model", args),
        f"{C}.ppo_max_token_len_per_gpu": micro_batch(args, shape),
    }


MT_PPO: Mapping[str, Place] = {
    **PLAY,
    "reward": Place(
        "`placement` in `loops.yaml`, with `algorithm.adv_estimator=gae`",
        lambda args, shape: {"algorithm.adv_estimator": "gae"},
    ),
    "mask_truncated": Place(
        "off only: verl's GAE skips every token that is not in the mask",
        None,
        lambda args: args.mask_truncated,
    ),
    "gae": Place("`token` only: verl's GAE takes a step a token", None, lambda args: args.gae != "token"),
    "gamma": same("algorithm.gamma", "gamma"),
    "turn_gamma": Place("none, as it belongs to `--gae both`"),
    "lam": same("algorithm.lam", "lam"),
    "kl_coef": Place("`…actor.kl_loss_coef`, or `algorithm.kl_ctrl.kl_coef`", _kl),
    "kl_in": Place("`…actor.use_kl_loss`, or `algorithm.use_kl_in_reward`, by k1"),
    "critic": Place(
        "`separate` only: verl's critic is a model of its own", _critic, lambda args: args.critic == "shared"
    ),
    "critic_lr": Place("`critic.optim.lr`"),
    "critic_lr_warmup": Place(
        "`critic.optim.lr_warmup_steps` or `lr_warmup_steps_ratio`",
        lambda args, shape: set_warmup(f"{C}.optim", args.critic_lr_warmup),
    ),
    "critic_warmup": same("trainer.critic_warmup", "critic_warmup"),
    "value_clip": Place(
        "`critic.cliprange_value`; None is a bound that no value reaches",
        lambda args, shape: {f"{C}.cliprange_value": args.value_clip or FAR},
    ),
    "value_coef": Place("`0.5` only: verl's weight", None, lambda args: args.value_coef != 0.5),
}

PLACES: Mapping[str, Mapping[str, Place]] = {"grpo": GRPO, "mt_ppo": MT_PPO}
"""By learner, every flag's place in verl, or the reason why it has none."""


def flag_table(tables: Mapping[str, Mapping[str, Place]]) -> str:
    """Every flag's place in verl as a Markdown table.

    Args:
        tables: by learner, every flag's place. Where a learner's differs from that of the learners before it,
            it is named.
    """
    lines = ["| flag | in verl, or why not |", "| --- | --- |"]
    for flag in dict.fromkeys(flag for table in tables.values() for flag in table):
        places: dict[str, list[str]] = {}
        for learner, table in tables.items():
            if flag in table:
                places.setdefault(table[flag].where, []).append(f"`{learner}`")
        first, *others = places
        texts = [first, *(f"in {' and '.join(places[where])} {where}" for where in others)]
        lines.append(f"| `--{flag.replace('_', '-')}` | {'; '.join(texts)} |")
    return "\n".join(lines)


@dataclass
class VerlRun:
    """A run in verl, made from a learner's arguments: what is written, and what the check reports.

    A subclass says what a learner of its kind reads, checks and starts.

    Attributes:
        out: the run's folder.
        shape: what an episode is to verl.
        offload: verl's settings that move what is sharded to the host's memory.

    Args:
        args: the arguments.
        learner: the learner's name.
        table: every flag's place in verl.

    Raises:
        ValueError: verl cannot carry a flag, or the arguments do not fit each other.
    """

    args: Any
    learner: str
    table: Mapping[str, Place]

    shape: EpisodeShape = field(init=False)
    offload: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        args = self.args
        args.check()
        for flag, place in self.table.items():
            if place.refuses is not None and place.refuses(args):
                name, reason = flag.replace("_", "-"), place.where.replace("`", "")
                raise ValueError(f"--engine verl cannot use --{name} {getattr(args, flag)!r}: {reason}")
        self.out = args.out.resolve()
        self._check_begun()
        self.env_args = absolute(args.env_args, env_parameters(args.env))
        self.open()

    def open(self) -> None:
        """Open what the run learns from, and find the shape of its episodes."""
        raise NotImplementedError

    @property
    def steps(self) -> int:
        """Number of the last step."""
        return int(self.args.steps)

    @property
    def trained(self) -> int:
        """Number of models in training."""
        return 1

    @property
    def reference(self) -> bool:
        """Whether the GPUs also hold a model that is not trained."""
        return False

    @property
    def sampler(self) -> float:
        """The share of a GPU's memory that a vLLM server takes."""
        return 0.0

    @property
    def extras(self) -> list[str]:
        """The extras of this package that verl's workers and trainer need."""
        return [name for name in self.args.track if name != "tensorboard"]

    @functools.cached_property
    def config(self) -> Any:
        """The model's configuration."""
        return require("transformers", "verl").AutoConfig.from_pretrained(model_path(self.args))

    @property
    def window(self) -> int | None:
        """Tokens that the model can read, and the run lets it."""
        text: Any = self.config.get_text_config()
        known = getattr(text, "max_position_embeddings", None), self.args.max_model_len
        return min(filter(None, known), default=None)

    @functools.cached_property
    def parameters(self) -> int:
        """Number of the model's parameters, counted without loading them."""
        torch, transformers = require("torch", "verl"), require("transformers", "verl")
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(self.config)
        return sum(weight.numel() for weight in model.parameters())

    def _check_begun(self) -> None:
        """Refuse a folder whose run has other arguments."""
        file = self.out / ARGS
        if not file.is_file():
            return
        begun = read_json(file, "give another --out")
        if begun.get("learner") != self.learner:
            raise ValueError(
                f"{self.args.out} is a run of {begun.get('learner')!r}, not of {self.learner!r}; give "
                "another --out"
            )
        self.args.check_begun(begun)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the flags in verl's names; a kind of run adds its own."""
        settings: dict[str, Any] = {}
        for place in self.table.values():
            if place.settings is not None:
                settings |= place.settings(self.args, self.shape)
        return settings | {"trainer.resume_mode": "auto"}

    @property
    def models(self) -> list[str]:
        """The names of verl's settings of the models."""
        raise NotImplementedError

    @property
    def attention(self) -> dict[str, Any]:
        """The settings that a run needs where flash-attn, verl's default, is not installed."""
        settings: dict[str, Any] = {}
        for model in self.models:
            settings[f"+{model}.override_config.attn_implementation"] = "sdpa"
            settings[f"{model}.use_remove_padding"] = False  # which needs flash-attn
        return settings

    def compose(self, overrides: Sequence[str]) -> Any:
        """The configuration that verl makes of settings, checked by verl.

        Raises:
            ValueError: verl refuses a setting; the message is its own.
        """
        raise NotImplementedError

    def write(self) -> None:
        """Write the run's folder."""
        self.out.mkdir(parents=True, exist_ok=True)
        self.write_data()
        write_json(self.out / ARGS, {"learner": self.learner, **self.args.plain()})
        write_text(self.out / REQUIREMENTS, "".join(f"{line}\n" for line in requirements(self.extras)))
        write_text(self.out / SCRIPT, self.script())

    def write_data(self) -> None:
        """Write what verl reads besides its settings."""
        raise NotImplementedError

    @property
    def launch(self) -> list[str]:
        """The lines of `run.sh` that prepare verl's trainer, and the start of the command."""
        raise NotImplementedError

    def script(self) -> str:
        """The text of `run.sh`."""
        *prepare, command = self.launch
        attention = " ".join(map(shlex.quote, overrides(self.attention)))
        lines = [
            "#!/usr/bin/env bash",
            *prepare,
            "attention=()",
            f"python -c 'import flash_attn' 2> /dev/null || attention=({attention})",
            f"{command} \\",
            f"  {shlex.quote(f'hydra.run.dir={hydra_value(str(self.out / HYDRA))}')} \\",
            *(f"  {shlex.quote(setting)} \\" for setting in overrides(self.settings)),
            '  "${attention[@]}" "$@"',
        ]
        return "\n".join([*lines, ""])

    def findings(self) -> list[str]:
        """What the check says of the run's data and of what is learned from it, in five lines."""
        raise NotImplementedError


class VerlPlayRun(VerlRun):
    """A run of a learner that plays in verl's agent loops."""

    offload = (f"{A}.fsdp_config.offload_policy", f"{C}.fsdp.offload_policy")

    def open(self) -> None:
        """Check the tasks, and play a group of the first one."""
        args, known = self.args, env_parameters(self.args.env)
        gpus, size = args.gpus * args.nodes, (args.vllm or {}).get("tensor_parallel_size", 1)
        if not isinstance(size, int) or size < 1 or gpus % size:
            raise ValueError(
                f"--vllm tensor_parallel_size must divide the number of GPUs, {gpus}, got {size!r}"
            )
        evaluated = evaluation_args(args.env, args.env_args, args.eval_env_args)
        self.eval_args = self.env_args if REQUIRED in evaluated.values() else absolute(evaluated, known)
        self.train_tasks, self.val_tasks = self._tasks()
        self.tokens = chat_tokens(args.model, **args.chat_settings)
        self.methods, self.credit = self._credit()
        self.episodes = self._play()
        self.shape = shape_of(self.episodes, args.max_new_tokens, self.window)
        if self.learner == "mt_ppo" and self.shape.rows > 1:
            raise ValueError(
                "verl's GAE runs within a row, and an episode whose prompts are rewritten has a row for each "
                "turn; use an environment whose prompts grow (memory_mode=react), or leave --engine verl out"
            )
        paying = [
            name
            for episode in self.episodes
            for name, credits in episode.credits.items()
            if any(credit.advantage and credit.known and credit.value for credit in credits)
        ]
        if self.learner == "mt_ppo" and paying:
            raise ValueError(f"verl's GAE cannot add the advantages of {paying[0]}; leave that method out")

    @property
    def trained(self) -> int:
        """Number of models in training, the critic included."""
        return 2 if self.learner == "mt_ppo" else 1

    @property
    def reference(self) -> bool:
        """Whether the GPUs also hold the initial model; with an adapter, its base model is that."""
        return bool(self.args.kl_coef and not self.args.lora_rank)

    @property
    def sampler(self) -> float:
        """The share of a GPU's memory that a vLLM server takes."""
        return float(self.settings.get(f"{R}.gpu_memory_utilization", 0.5))

    @property
    def extras(self) -> list[str]:
        """Also those of a judge, and of a search by vectors."""
        judge = any(name == "Judge" for name, _ in self.methods)
        vectors = str(self.env_args.get("retriever")).startswith("dense:")
        return super().extras + ["endpoint"] * judge + ["search"] * vectors

    @property
    def gpus_a_server(self) -> int:
        """GPUs that share a vLLM server, so that its weights in bfloat16 are at most a fifth of a card."""
        gpus = 1
        while 2 * self.parameters / gpus > GPU_BYTES / 5 and self.args.gpus % (2 * gpus) == 0:
            gpus *= 2
        return gpus

    @property
    def scorer(self) -> str | None:
        """What scores for the reward methods, with an absolute path."""
        scorer: str = self.args.scorer
        if scorer.lstrip().startswith("["):
            name, settings = json.loads(scorer)
            scorer = json.dumps([name, absolute(settings, None)])
        return absolute_path(scorer) if self.methods else None

    def _tasks(self) -> tuple[list[int], list[int]]:
        """The numbers of the tasks to train on and of those for validation, which are others."""
        args = self.args
        size = n_tasks(args.env, self.env_args)
        known = {parameter.name: parameter.default for parameter in env_parameters(args.env) or ()}
        both = [{**known, **values} for values in (self.env_args, self.eval_args)]
        if all(both[0].get(name) == both[1].get(name) for name in ("tasks", "levels", "level_split")):
            held = max(1, min(args.eval_episodes, size // 10))
            order = draw_tasks(size, [args.seed, 0], 0, min(size, args.steps * args.groups + held))
            train, val = order[:-held], order[-held:]
        else:
            train = draw_tasks(size, [args.seed, 0], 0, min(size, args.steps * args.groups))
            others = n_tasks(args.env, self.eval_args)
            val = draw_tasks(others, [args.seed, 1], 0, min(others, args.eval_episodes))
        if len(train) < args.groups:
            raise ValueError(
                f"a step plays {args.groups} tasks, and there are {len(train)}; lower --groups or "
                "give more tasks"
            )
        return train, val

    def _credit(self) -> tuple[list[Any], dict[str, Any] | None]:
        """`methods` and `credit` of the agent loop."""
        args = self.args
        named = read_methods(args.methods)
        specs = [_plain_method(method) for method in make_methods(named)] if named else []
        if self.learner != "grpo":
            return specs, None
        comparison, how = read_comparison(args.reward, args.reward_args)
        if isinstance(comparison, RewardMethod):
            specs.append(_plain_method(comparison))
        default = type(how)()
        differs = {field.name: getattr(how, field.name) for field in fields(how)}
        differs = {name: value for name, value in differs.items() if value != getattr(default, name)}
        return specs, {"reward": args.reward.lower(), **differs}

    def _play(self) -> list[Episode]:
        """A group of the first task, played by a scripted sampler, with its credit.

        Every second rollout knows the answer; the others write at the limit of their replies.
        """
        args, encoder = self.args, ChatPolicy(self.tokens)
        encoder.window = self.window
        filler = self.tokens.encode(" word" * args.max_new_tokens)

        def reply(request: Request) -> Reply:
            prompt = prompt_of(encoder, request, args.max_new_tokens)  # type: ignore[arg-type]
            if request.episode.member % 2 == 0:
                ids = self.tokens.reply(request.env.unwrapped.gold_reply())  # type: ignore[attr-defined]
            elif "<search>" in str(request.turn.text):
                ids = self.tokens.reply("<mem>word</mem><think>word</think><search>word</search>")
            else:
                ids = filler
            ids = ids[: max(prompt.room, 0)]
            return prompt.reply(Reply(self.tokens.reply_text(ids), ids, np.zeros(len(ids))))

        scorer = "lexical" if args.scorer == "policy" else args.scorer
        task, size = self.train_tasks[0], max(2, args.group_size)
        group = [Episode(seed=task, group=task, number=task, member=member) for member in range(size)]
        loop = Loop(
            maker(args.env, self.env_args),
            TurnPolicy(reply),
            self.methods,
            make_scorer(scorer),
            errors="raise",
        )
        loop.play_all([group])
        if self.credit is not None:
            usable, credit = valid(group), read_credit(self.credit, loop.methods)
            advantages = group_advantages(usable, encoder, *credit)  # type: ignore[arg-type]
            for episode, values in zip(usable, advantages, strict=True):
                episode.advantages = values
        return group

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """Every setting of the run in verl's names."""
        args = self.args
        settings = {f"{R}.tensor_model_parallel_size": self.gpus_a_server, **super().settings}
        epochs = math.ceil(args.steps / (len(self.train_tasks) // args.groups))
        settings |= {
            "data.train_files": str(self.out / "train.parquet"),
            "data.val_files": str(self.out / "val.parquet"),
            f"{A}.strategy": "fsdp2",
            f"{R}.name": "vllm",
            f"{R}.agent.agent_loop_config_path": str(self.out / LOOPS),
            "trainer.total_epochs": epochs + 1,  # the steps end the run
            "trainer.val_before_train": False,
            # Workers of a cluster have the environment of `ray start`, not that of run.sh.
            f"{WORKER_ENV}.VERL_USE_EXTERNAL_MODULES": ADAPTER,
            f"{WORKER_ENV}.TENSORBOARD_DIR": str(self.out),
        }
        return settings

    @property
    def models(self) -> list[str]:
        """The names of verl's settings of the models."""
        return [M, f"{C}.model"] if self.learner == "mt_ppo" else [M]

    def write_data(self) -> None:
        """Write the numbers of the tasks, and the agent loops."""
        write_rows(self.out / "train.parquet", self.train_tasks, "train")
        write_rows(self.out / "val.parquet", self.val_tasks, "test")
        loops = unresolved(self.loops)
        write_text(self.out / LOOPS, require("yaml", "verl").safe_dump(loops, sort_keys=False))

    @property
    def loops(self) -> list[dict[str, Any]]:
        """The agent loops: one to train, and one for validation in the environment of evaluations."""
        args = self.args
        loop: dict[str, Any] = {
            "name": "memenvs",
            "_target_": f"{ADAPTER}.EpisodeLoop",
            "env": args.env,
            "settings": self.env_args,
            "methods": self.methods,
            "scorer": self.scorer,
            "credit": self.credit,
            "max_new_tokens": args.max_new_tokens,
            "ends": named_ends(args.model),
        }
        if self.credit is None:
            loop["placement"] = args.reward
        others = {flag: getattr(args, flag, None) for flag in ("mask_truncated", "overlong")}
        others |= {flag: value for flag, value in args.chat_settings.items() if flag != "chat_args"}
        loop |= {flag: value for flag, value in others.items() if value}
        if args.save_episodes:
            loop["episodes"] = str(self.out / "episodes.jsonl")
        plain: list[dict[str, Any]] = json.loads(
            json.dumps([loop, {**loop, "name": "memenvs_test", "settings": self.eval_args}])
        )
        return plain

    @property
    def launch(self) -> list[str]:
        """The lines of `run.sh` that prepare verl's trainer, and the start of the command."""
        return [
            "# On a cluster start Ray on every node first (ray start --head, ray start --address=…), and run",
            "# this on the first one. More settings of verl may follow the command.",
            "set -e",
            f"cd {shlex.quote(str(Path.cwd()))}",
            f"export VERL_USE_EXTERNAL_MODULES={ADAPTER} TENSORBOARD_DIR={shlex.quote(str(self.out))}",
            "python -m verl.trainer.main_ppo",
        ]

    def compose(self, overrides: Sequence[str]) -> Any:
        """The configuration that verl makes of settings, checked by verl."""
        needs: Any = require("verl.trainer.ppo.utils", "verl")
        checks: Any = require("verl.utils.config", "verl")

        def check(config: Any) -> None:
            checks.validate_config(config, needs.need_reference_policy(config), needs.need_critic(config))

        return compose("ppo_trainer", overrides, check)

    def findings(self) -> list[str]:
        """What the check says of the tasks, of the group that it played, and of its credit."""
        args, group = self.args, self.episodes
        passes = args.steps / (len(self.train_tasks) // args.groups)
        credit = [episode.advantages for episode in group if len(episode.advantages)]
        moved = sum(bool(np.any(values)) for values in credit)
        names = ", ".join(name for name, _ in self.methods) or "none"
        return [
            f"tasks: {len(self.train_tasks):,} to train on ({args.steps:,} steps of {args.groups} are "
            f"{passes:.1f} passes), {len(self.val_tasks):,} others for validation",
            f"environment: {args.env}, {np.mean([len(episode.turns) for episode in group]):.1f} turns in a "
            f"scripted group of {len(group)}, successes {sum(bool(episode.success) for episode in group)}",
            f"rows: {self.shape.rows:.1f} an episode, prompts to {self.shape.prompt:,} tokens, what follows "
            f"to {self.shape.response:,}; an optimizer step reads "
            f"{self.settings[f'{A}.ppo_mini_batch_size'] * args.group_size:,} rows",
            f"methods: {names}; scorer: {self.scorer or 'none'}"
            + (" (lexical in this check)" if self.scorer == "policy" else ""),
            f"credit: {args.reward}, not 0 in {moved} of {len(group)} rollouts"
            if self.credit is not None
            else f"credit: verl's GAE over {PAID[args.reward]}",
        ]


def overrides(settings: Settings) -> list[str]:
    """Settings as verl's command line takes them."""
    return [f"{name}={hydra_value(value)}" for name, value in settings.items()]


def absolute(values: Mapping[str, Any], parameters: Sequence[Parameter] | None) -> dict[str, Any]:
    """Arguments with absolute paths, since verl's workers start in other folders.

    Args:
        values: the arguments. A text is a path if it names a file or folder, also after a kind and a colon,
            such as `lexical:FOLDER`.
        parameters: what takes them. A text that is one of a parameter's choices is not a path.
    """
    choices = {p.name: _choices(p.annotation) for p in parameters or ()}

    def made(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):  # prompts by their parts
            return absolute(value, None)
        return (
            absolute_path(value) if isinstance(value, str) and value not in choices.get(name, ()) else value
        )

    return {name: made(name, value) for name, value in values.items()}


def _plain_method(method: RewardMethod) -> list[Any]:
    """The name and the settings of a method, with absolute paths."""
    name, settings = plain_method(method)
    return [name, absolute(settings, parameters_of(type(method)))]


def model_path(args: EngineArgs) -> str:
    """The folder of a run's model as an absolute path, or its name on the hub."""
    return absolute_path(str(resolve(args.model)))


def _choices(annotation: Any) -> list[Any]:
    """The values that an annotation lists."""
    parts = get_args(annotation)
    return list(parts) if get_origin(annotation) is Literal else [c for part in parts for c in _choices(part)]


def absolute_path(text: str) -> str:
    """A path made absolute; a text that names no file or folder, or that has a meaning here, is unchanged."""
    is_name = text in bundled_names() and not Path(text, CARD).is_file()
    if is_name or text in METRICS:
        return text
    kind, colon, place = "", "", text
    if not os.path.exists(text):
        kind, colon, place = text.partition(":")
    return kind + colon + os.path.abspath(place) if place and os.path.exists(place) else text


def n_tasks(env: str, env_args: Mapping[str, Any]) -> int:
    """The number of tasks of an environment that a language model can play."""
    check_env_arguments(env, env_args)
    opened = maker(env, env_args)()
    n_tasks = int(text_env_of(opened).n_tasks)
    check_text_observations(opened)
    opened.close()
    return n_tasks


def shape_of(episodes: Sequence[Episode], max_new_tokens: int, window: int | None) -> EpisodeShape:
    """What episodes are to verl.

    Limits have room for other tasks: a tenth more of what is read, and 256 tokens of a fresh prompt.
    """
    by_episode = [episode.sequences() for episode in episodes]
    sequences = [sequence for parts in by_episode for sequence in parts]
    prompt = max(len(sequence[0].reply.read) for sequence in sequences)
    feedback = [len(turn.reply.read) for sequence in sequences for turn in sequence[1:]]
    turns = max(len(sequence) for sequence in sequences)
    response = turns * max_new_tokens + math.ceil(1.1 * (turns - 1) * max(feedback, default=0))
    prompt = 256 + 256 * math.ceil(1.1 * prompt / 256)
    if window is not None:
        response = min(response, max(window - prompt, 1))
    return EpisodeShape(len(sequences) / len(episodes), max(map(len, by_episode)), prompt, response)


def write_rows(file: Path, tasks: Sequence[int], split: RowSplit) -> None:
    """Write the rows of a data set of verl's: the tasks by their numbers."""
    pa, pq = require("pyarrow", "verl"), require("pyarrow.parquet", "verl")
    rows = [task_row(index, task, split) for index, task in enumerate(tasks)]
    pq.write_table(pa.Table.from_pylist(rows), file)


def hydra_value(value: Any) -> str:
    """A value as Hydra's command line reads it.

    >>> hydra_value([0.9, 0.95]), hydra_value({"eps": 1e-8}), hydra_value("a b"), hydra_value("7")
    ('[0.9,0.95]', '{eps:1e-08}', "'a b'", "'7'")
    """
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{hydra_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(hydra_value, value)) + "]"
    if not isinstance(value, str):
        return "null" if value is None else str(value)
    if re.fullmatch(r"[A-Za-z_/][\w./-]*", value, re.ASCII) and value.lower() not in HYDRA_WORDS:
        return value
    # Of a quoted text Hydra reads the backslashes before a quotation mark as escapes, and no others.
    escaped = re.sub(r"(\\*)('|$)", lambda end: 2 * end[1] + ("\\'" if end[2] else ""), unresolved(value))
    return f"'{escaped}'"


def unresolved(value: Any) -> Any:
    """A value in which OmegaConf does not resolve `${…}`."""
    if isinstance(value, Mapping):
        return {name: unresolved(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [unresolved(inner) for inner in value]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value


def requirements(extras: Sequence[str] = ()) -> list[str]:
    """The packages of a run: verl and what its metadata pins for vLLM and FSDP.

    Args:
        extras: extras of this package that the run needs, besides those to train in verl.
    """
    listed = importlib.metadata.requires("verl") or []

    def pins(extra: str) -> Iterator[str]:
        for line in listed:
            requirement, _, condition = line.partition(";")
            if f'extra == "{extra}"' not in condition:
                continue
            requirement = requirement.strip()
            if inner := re.fullmatch(r"verl\[(.+)\]", requirement):
                yield from pins(inner[1])
            elif "==" in requirement:
                yield requirement

    pinned = sorted({line for extra in EXTRAS for line in pins(extra)})
    memenvs_extras = ",".join(sorted({"train", "verl", *extras}))
    return [
        f"verl[{','.join(EXTRAS)}]=={importlib.metadata.version('verl')}",
        *pinned,
        f"memenvs[{memenvs_extras}]",
    ]


def has_flash_attention() -> bool:
    """Whether verl's default attention is installed."""
    return importlib.util.find_spec("flash_attn") is not None


def compose(name: str, overrides: Sequence[str], check: Callable[[Any], object]) -> Any:
    """A configuration of verl's with other settings.

    Args:
        name: the configuration's name.
        overrides: the settings.
        check: verl's check of the configuration.

    Raises:
        ValueError: verl refuses a setting; the message is its own.
    """
    hydra: Any = require("hydra", "verl")
    try:
        with hydra.initialize_config_module("verl.trainer.config", version_base=None):
            config = hydra.compose(name, overrides=list(overrides))
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(config)
    except (hydra.errors.HydraException, AssertionError) as error:
        raise ValueError(f"verl refuses the settings: {error_line(error)}") from error
    return config


class Sizes(NamedTuple):
    """What a run takes, computed and not measured; in bytes.

    Attributes:
        parameters: number of the model's parameters.
        states: weights, gradients and AdamW's moments on a GPU, of the critic too, and the reference model.
        sampler: what a vLLM server may take of a GPU.
        pass_: logits and kept activations of a micro-batch on a GPU.
        checkpoint: a checkpoint.
    """

    parameters: int
    states: float
    sampler: float
    pass_: float
    checkpoint: float


def sizes(run: VerlRun, card: float) -> Sizes:
    """The memory of a run on GPUs of `card` bytes, and of its checkpoints.

    Trained weights are in float32 with their gradients and two moments, 16 bytes a parameter, sharded over
    all GPUs; a checkpoint leaves out the gradients. With LoRA almost all parameters only have their weights.
    """
    parameters, args = run.parameters, run.args
    of_trained, saved = (4, 4) if args.lora_rank else (16, 12)
    reference = 4 if run.reference else 0
    text: Any = run.config.get_text_config()
    return Sizes(
        parameters,
        (run.trained * of_trained + reference) * parameters / (args.gpus * args.nodes),
        run.sampler * card,
        micro_batch(args, run.shape)
        * (3 * 4 * text.vocab_size + 2 * text.hidden_size * text.num_hidden_layers),
        run.trained * saved * parameters,
    )


def install_command(run: VerlRun) -> str:
    """The command that installs the packages of a run."""
    return f"pip install -r {shlex.quote(str(run.out / REQUIREMENTS))}"


def report(run: VerlRun) -> list[str]:
    """What the check of a run found, in ten lines for a person."""
    args, torch = run.args, require("torch", "verl")
    has_card = torch.cuda.is_available()
    card = float(torch.cuda.get_device_properties(0).total_memory) if has_card else GPU_BYTES
    needs, free = sizes(run, card), shutil.disk_usage(run.out).free
    gigabytes = [value / 1e9 for value in needs[1:]]
    peak = gigabytes[0] + max(gigabytes[1], gigabytes[2])
    kept = min(args.keep + 1, math.ceil(run.steps / args.save_every)) * gigabytes[3]
    fits, room = peak <= card / 1e9, kept <= free / 1e9
    advice = ""
    if not fits:
        others = max(gigabytes[1], gigabytes[2]) <= card / 1e9
        offload = " ".join(f"{name}=True" for name in run.offload[: run.trained])
        fix = (
            f"append {offload} to the run.sh command, or use more GPUs"
            if others
            else "a row is too long; shorten prompts or replies"
        )
        advice = f"; it does NOT fit: {fix}"
    attention = "flash-attn" if has_flash_attention() else "PyTorch's (sdpa) unless flash-attn is installed"
    beside = f"{gigabytes[2]:.1f} GB"
    if run.sampler:
        beside = f"the larger of {gigabytes[1]:.1f} GB for vLLM and {beside}"
    return [
        f"verl {importlib.metadata.version('verl')} accepts {len(run.settings)} settings: {run.out / SCRIPT}",
        *run.findings(),
        f"model: {needs.parameters / 1e9:.2f}B parameters on {args.nodes} x {args.gpus} GPUs, attention: "
        f"{attention}",
        f"memory per GPU (computed): {gigabytes[0]:.1f} GB of states and {beside} for a pass, of "
        f"{card / 1e9:.0f} GB" + ("" if has_card else " (no card here)") + advice,
        f"checkpoints: {gigabytes[3]:.1f} GB each, {kept:.1f} GB at most, {free / 1e9:.0f} GB free"
        + ("" if room else "; they do NOT fit: lower --keep, or give another --out"),
        f"next: {install_command(run)} && bash {shlex.quote(str(run.out / SCRIPT))}",
    ]


def merge(args: Any) -> int:
    """Turn a checkpoint of verl's into a model with a card; the exit status of verl's merger.

    Raises:
        ValueError: there is no such checkpoint.
    """
    checkpoints, model = args.out / CHECKPOINTS, args.out / "models" / f"step-{args.merge}"
    actor = checkpoints / f"global_step_{args.merge}"
    if (actor / "actor").is_dir():  # where a trainer may have a critic too
        actor /= "actor"
    if not actor.is_dir():
        steps = sorted(int(folder.name.rpartition("_")[2]) for folder in checkpoints.glob("global_step_*"))
        if not steps:
            raise ValueError(
                f"{args.out} has no checkpoint to merge yet; train first, then give --merge its step"
            )
        known = ", ".join(map(str, steps))
        raise ValueError(f"{args.out} has no checkpoint of step {args.merge}; give --merge one of {known}")
    merger = [sys.executable, "-m", "verl.model_merger", "merge", "--backend", "fsdp"]
    folders = ["--local_dir", str(actor), "--target_dir", str(model)]
    if status := subprocess.run([*merger, *folders], check=False).returncode:
        return status
    merge_adapter(model)
    sampling = SamplingParams(args.temperature, stop=args.stop)
    write_json(model / SETTINGS, {**asdict(sampling), **args.chat_settings})  # as `HFPolicy.save` does
    write_text(model / "README.md", model_card(args.plain(), sampling, licence=hub_licence(args.model)))
    commands, unknown = evaluation_command(args, str(model), served=True)
    other = ", with tasks that it has not trained on in place of …" if unknown else ""
    sys.stdout.write(f"the model is in {model}; serve it and evaluate it{other}:\n{commands}\n")
    return 0


def merge_adapter(model: Path) -> None:
    """Add a LoRA adapter to the weights that verl's merger has put beside it; nothing without one."""
    adapter = model / "lora_adapter"
    if not adapter.is_dir():
        return
    transformers, peft = require("transformers", "verl"), require("peft", "verl")
    base = transformers.AutoModelForCausalLM.from_pretrained(model, dtype="auto")
    peft.PeftModel.from_pretrained(base, adapter).merge_and_unload().save_pretrained(model)
    shutil.rmtree(adapter)


def hub_licence(model: str) -> str:
    """The licence that a model's card on the hub names; empty for a folder, or where no card can be read."""
    if Path(str(resolve(model))).is_dir():
        return ""
    try:
        return str(require("huggingface_hub", "verl").ModelCard.load(model).data.license or "")
    except (OSError, ValueError):
        return ""


def start(args: EngineArgs, make_run: Callable[[], VerlRun]) -> int:
    """Check a run, write its folder, and start it in verl; its exit status.

    The check composes the configuration by the real verl and plays before a model is loaded.

    Args:
        args: the arguments.
        make_run: makes the run from the arguments.
    """
    if args.merge:
        return merge(args)
    run = make_run()
    run.compose(overrides({**run.settings, **({} if has_flash_attention() else run.attention)}))
    run.write()
    sys.stdout.write("".join(f"{line}\n" for line in report(run)))
    if args.dry_run:
        return 0
    if run.sampler and importlib.util.find_spec("vllm") is None:
        raise ValueError(f"vllm is not installed here; {install_command(run)}")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    started = subprocess.run(["bash", str(run.out / SCRIPT)], env={**os.environ, "PATH": path}, check=False)
    return started.returncode


def start_player(args: EngineArgs, learner: str) -> int:
    """Start a run of a learner that plays; its exit status.

    Args:
        args: the arguments.
        learner: the learner's name.
    """
    return start(args, lambda: VerlPlayRun(args, learner, PLACES[learner]))
