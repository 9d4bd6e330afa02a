"""Supervised fine-tuning in verl: `memenvs train sft … --engine verl`.

The rows are the token ids and masks that our learner trains on, so verl's loss is over the same tokens.
"""

from __future__ import annotations

import functools
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memenvs.baselines.sft import SFTArgs, read_lessons
from memenvs.baselines.train import split_by_task
from memenvs.baselines.verl import (
    CHECKPOINTS,
    TRAIN,
    EpisodeShape,
    Place,
    VerlRun,
    compose,
    micro_batch,
    model_path,
    reasons,
    same,
    set_adamw,
    set_adapter,
    set_warmup,
    start,
)
from memenvs.baselines.verl import n_tasks as count_tasks
from memenvs.core.episode import Episode, Sample
from memenvs.core.optional import require
from memenvs.models.chat import ChatPolicy
from memenvs.models.hf import chat_tokens

ROWS = "memenvs.adapters.verl_sft"
"""The module of the data set that verl reads the rows with."""

SFT: Mapping[str, Place] = {
    **TRAIN,
    "keep": same("trainer.max_ckpt_to_keep", "keep"),
    "model": Place("`model.path`", lambda args, shape: {"model.path": model_path(args)}),
    "lora_rank": Place(
        "`model.lora_rank`, `lora_alpha` twice as much", lambda args, shape: set_adapter("model", args)
    ),
    "micro_batch_tokens": Place(
        "`data.max_token_len_per_gpu`, at least a row",
        lambda args, shape: {
            "data.use_dynamic_bsz": True,
            "data.max_token_len_per_gpu": micro_batch(args, shape),
        },
    ),
    "lr": same("optim.lr", "lr"),
    "lr_warmup": Place(
        "`optim.lr_warmup_steps` or `lr_warmup_steps_ratio`",
        lambda args, shape: set_warmup("optim", args.lr_warmup),
    ),
    "adamw": Place(
        "`optim.weight_decay`, `betas`, `override_optimizer_config`",
        lambda args, shape: set_adamw("optim", args.adamw),
    ),
    "max_grad_norm": same("optim.clip_grad", "max_grad_norm"),
    "batch_size": same("data.train_batch_size", "batch_size"),
    "epochs": same("trainer.total_epochs", "epochs"),
    "eval_every": Place(
        "`trainer.test_freq`, which measures the loss on `val.parquet`: verl's trainer plays nothing",
        lambda args, shape: {"trainer.test_freq": args.eval_every or -1},
    ),
    "shuffle": Place("`True` only: verl's sampler shuffles", None, lambda args: not args.shuffle),
    "temperature": Place("`1` only: verl's log-probabilities", None, lambda args: args.temperature != 1),
    "teacher": Place(
        "`train.parquet`; not `self`: play the model with `memenvs evaluate run --policy openai:URL --out "
        "FOLDER`, and give FOLDER/episodes.jsonl",
        None,
        lambda args: args.teacher == "self",
    ),
    **reasons(
        seed="the order of the rows, which verl's sampler then permutes by a seed of its own",
        chat_args="the token ids of `train.parquet`",
        split_special_tokens="the token ids of `train.parquet`",
        system_prompt="the token ids of `train.parquet`",
        stop="the token ids of `train.parquet`: a reply that ends in one has no end token",
        env="the teacher's, before verl starts",
        env_args="the teacher's, before verl starts",
        episodes="the rows of `train.parquet` and `val.parquet`",
        learn_from="the rows of `train.parquet` and `val.parquet`",
        workers="play the teacher's episodes, before verl starts",
        eval_episodes="most tasks of `val.parquet`, at most a tenth of the teacher's",
        eval_env_args="nothing is played; `val.parquet` holds tasks of the teacher's that are not trained on",
        eval_temperature="nothing is sampled",
        max_model_len="longer sequences are not in `train.parquet`",
        max_new_tokens="nothing is sampled",
        num_envs="nothing is sampled",
        vllm="nothing is sampled",
        save_episodes="nothing is sampled",
    ),
}
"""Every flag's place in verl, or the reason why it has none."""


class TokenReader(ChatPolicy):
    """Reads episodes as token ids as the learner's model would, without its weights.

    Args:
        args: the learner's arguments.
        window: tokens that the model can read.
    """

    def __init__(self, args: SFTArgs, window: int | None) -> None:
        super().__init__(chat_tokens(args.model, **args.chat_settings))
        self.window, self._stop = window, args.stop

    def encode_reply(self, text: str) -> Any:
        """A given reply (T,), with an end token unless it ends in a stop string."""
        return self._tokens.reply(text, self._stop)


class VerlSFTRun(VerlRun):
    """A run of verl's trainer for supervised fine-tuning.

    Attributes:
        train: the rows to learn from.
        val: rows of other tasks; none if they would not fill a batch, since verl measures whole batches.

    Args:
        args: the learner's arguments.

    Raises:
        ValueError: verl cannot carry a flag, or there is not enough to learn from.
    """

    args: SFTArgs
    offload = ("engine.offload_policy",)

    def __init__(self, args: SFTArgs) -> None:
        super().__init__(args, "sft", SFT)

    def open(self) -> None:
        """Play or read the teacher's episodes, and hold out some tasks."""
        args, gpus = self.args, self.args.gpus * self.args.nodes
        if args.batch_size % gpus:
            raise ValueError(
                f"each of {gpus} GPUs learns from an equal share of a batch; give a --batch-size that is a "
                f"multiple of {gpus}, got {args.batch_size}"
            )
        n_tasks = count_tasks(args.env, self.env_args)
        self.episodes, self.notes = read_lessons(args, TokenReader(args, self.window), n_tasks)
        self.train, self.val = self._split()
        if not self.steps:
            raise ValueError(
                f"a step learns from {args.batch_size} sequences, and there are {len(self.train)}; lower "
                "--batch-size, or give more episodes"
            )
        by_episode = [episode.samples for episode in self.episodes]
        samples = [sample for parts in by_episode for sample in parts]
        prompt = max(int(np.argmax(sample.response_mask)) for sample in samples)
        longest = max(len(sample.ids) for sample in samples)
        rows, most_rows = len(samples) / len(by_episode), max(map(len, by_episode))
        self.shape = EpisodeShape(rows=rows, most_rows=most_rows, prompt=prompt, response=longest - prompt)

    def _split(self) -> tuple[list[tuple[str, Sample]], list[tuple[str, Sample]]]:
        """The rows to learn from and those of tasks that are held out, each with its task."""
        args = self.args
        count = len({episode.task for episode in self.episodes})
        held = min(args.eval_episodes, count // 10)
        parts = split_by_task(self.episodes, held / count, args.seed) if held else (self.episodes, [])
        if len(_rows(parts[1])) < args.batch_size:
            parts = (self.episodes, [])
        if args.eval_every and not parts[1]:
            raise ValueError(
                f"--eval-every measures whole batches of {args.batch_size} sequences, and a tenth of "
                f"{count} tasks has fewer; leave it out, or give more episodes"
            )
        order = np.random.default_rng([args.seed, 0, 3]).permutation(len(parts[0]))
        return _rows([parts[0][i] for i in order.tolist()]), _rows(parts[1])

    @property
    def steps(self) -> int:
        """Number of the last step. In each pass verl drops the rows that do not fill a batch."""
        gpus = self.args.gpus * self.args.nodes
        return len(self.train) // gpus // (self.args.batch_size // gpus) * self.args.epochs

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """Every setting of the run in verl's names."""
        return super().settings | {
            "data.train_files": str(self.out / "train.parquet"),
            "data.val_files": str(self.out / "val.parquet") if self.val else None,
            "data.custom_cls.path": f"pkg://{ROWS}",
            "data.custom_cls.name": "TokenRows",
            "engine.strategy": "fsdp2",
        }

    @property
    def models(self) -> list[str]:
        """The names of verl's settings of the models."""
        return ["model"]

    def compose(self, overrides: Sequence[str]) -> Any:
        """The configuration that verl makes of settings, its parts made as the trainer makes them."""
        config: Any = require("verl.utils.config", "verl")

        def check(composed: Any) -> None:
            for part in ("engine", "optim", "checkpoint"):
                config.omega_conf_to_dataclass(composed[part])

        return compose("sft_trainer_engine", overrides, check)

    def write_data(self) -> None:
        """Write the rows.

        Raises:
            ValueError: the run has checkpoints, and was begun with other rows.
        """
        pq: Any = require("pyarrow.parquet", "verl")
        fresh = [(self.out / f".{name}.parquet", rows) for name, rows in self._parts]
        for file, rows in fresh:
            write_samples(file, rows)
        for file, _ in fresh:
            kept = file.with_name(file.name[1:])
            begun = kept.is_file() and (self.out / CHECKPOINTS).is_dir()
            if begun and not pq.read_table(kept).equals(pq.read_table(file)):
                for written, _ in fresh:
                    written.unlink()
                raise ValueError(
                    f"{self.args.out} was begun with other episodes of {self.args.teacher!r}; give those, or "
                    "another --out"
                )
        for file, _ in fresh:
            file.replace(file.with_name(file.name[1:]))

    @property
    def _parts(self) -> list[tuple[str, list[tuple[str, Sample]]]]:
        return [("train", self.train), *([("val", self.val)] if self.val else [])]

    @property
    def launch(self) -> list[str]:
        """The lines of `run.sh` that prepare verl's trainer, and the start of the command."""
        args = self.args
        several = [
            "# Run this on every machine, with the address of the first one: MASTER=HOST:29500 bash run.sh",
            f': "${{MASTER:?run this on each of {args.nodes} machines, as MASTER=HOST:29500 bash run.sh}}"',
        ]
        meet = f'--rdzv-backend=c10d --rdzv-endpoint="$MASTER" --rdzv-id={shlex.quote(self.out.name)}'
        return [
            "# More settings of verl may follow the command.",
            "set -e",
            *(several if args.nodes > 1 else []),
            f"cd {shlex.quote(str(Path.cwd()))}",
            f"export TENSORBOARD_DIR={shlex.quote(str(self.out))}",
            f"torchrun {meet if args.nodes > 1 else '--standalone'} --nnodes={args.nodes} "
            f"--nproc-per-node={args.gpus} -m verl.trainer.sft_trainer",
        ]

    def findings(self) -> list[str]:
        """What the check says of the teacher's episodes, of the rows made of them, and of the loss."""
        args, rows = self.args, len(self.train)
        tokens = sum(len(sample.ids) for _, sample in self.train)
        learned = sum(int(sample.response_mask.sum()) for _, sample in self.train)
        tasks, held = (len({task for task, _ in part}) for part in (self.train, self.val))
        turns = np.mean([len(episode.turns) for episode in self.episodes])
        return [
            f"teacher: {args.teacher}, {len(self.episodes):,} episodes of {args.env}, {turns:.1f} turns each"
            + "".join(f"; {note}" for note in self.notes),
            f"tasks: {tasks:,} to train on, "
            + (f"{held:,} others for validation" if held else "none for validation, as they are too few"),
            f"rows: {rows:,} to train on, {len(self.val):,} for validation, {self.shape.rows:.1f} an "
            f"episode, to {self.shape.prompt + self.shape.response:,} tokens",
            f"loss: the mean over {learned:,} tokens of replies, of {tokens:,} that are read",
            f"steps: {self.steps:,} of {args.batch_size} rows; passes: {args.epochs}, each without the "
            f"{rows - self.steps // args.epochs * args.batch_size} rows that do not fill a batch",
        ]


def write_samples(file: Path, rows: Sequence[tuple[str, Sample]]) -> None:
    """Write training sequences as rows of Parquet: `task`, `input_ids` and `loss_mask`.

    Args:
        file: to be written.
        rows: the sequences, each with its task.
    """
    pa, pq = require("pyarrow", "verl"), require("pyarrow.parquet", "verl")
    ids, masks = [sample.ids for _, sample in rows], [sample.response_mask for _, sample in rows]
    columns = {
        "task": pa.array([task for task, _ in rows], pa.string()),
        "input_ids": pa.array(ids, pa.large_list(pa.int32())),
        "loss_mask": pa.array(masks, pa.large_list(pa.bool_())),
    }
    pq.write_table(pa.table(columns), file)


def start_sft(args: SFTArgs) -> int:
    """Check a run, write its folder, and start it in verl; its exit status."""
    return start(args, lambda: VerlSFTRun(args))


def _rows(episodes: list[Episode]) -> list[tuple[str, Sample]]:
    return [(episode.task, sample) for episode in episodes for sample in episode.samples]
