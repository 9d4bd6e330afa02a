"""Supervised fine-tuning in verl: `memenvs train sft … --engine verl`.

The rows are the token ids and masks that our learner trains on, so verl's loss is over the same tokens.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memenvs.baselines.args import SFTArgs
from memenvs.baselines.costs import LEARNING, RunWork, StepWork
from memenvs.baselines.lessons import read_lessons
from memenvs.baselines.train import split_by_task
from memenvs.baselines.verl.plan import BatchPlan, Training
from memenvs.baselines.verl.settings import absolute, settings_of
from memenvs.core.arguments import env_parameters
from memenvs.core.episode import Episode
from memenvs.core.files import whole_file
from memenvs.core.optional import require
from memenvs.models.chat import ChatPolicy
from memenvs.models.hf import chat_tokens
from memenvs.rollout.collect import count_tasks


class SFTTraining(Training):
    """A run of verl's trainer for supervised fine-tuning.

    Raises:
        ValueError: there is not enough to learn from, or too little for the arguments.
    """

    configuration, script = "sft_trainer_engine", "sft.sh"
    models = ("model",)

    def __init__(self, args: SFTArgs) -> None:
        gpus = args.gpus * args.nodes
        if args.batch_size % gpus:
            raise ValueError(
                f"each of {gpus} GPUs learns from an equal share of a batch; give a --batch-size that is a "
                f"multiple of {gpus}, got {args.batch_size}"
            )
        n_tasks = count_tasks(args.env, absolute(args.env_args, env_parameters(args.env)))
        super().__init__(args)
        reader = ChatPolicy(chat_tokens(args.model, args.chat_settings), args.stop, self.window)
        self.episodes, self.notes = read_lessons(args, reader, n_tasks)
        self.train, self.val = split_rows(args, self.episodes)
        # verl drops rows that do not fill a batch
        self.steps_a_pass = self.train.num_rows // gpus // (args.batch_size // gpus)
        self.steps = self.steps_a_pass * args.epochs
        if not self.steps:
            raise ValueError(
                f"a step learns from {args.batch_size} sequences, and there are {self.train.num_rows}; lower "
                "--batch-size, or give more episodes"
            )
        by_episode = [episode.samples for episode in self.episodes]
        samples = [sample for parts in by_episode for sample in parts]
        prompt = max(int(np.argmax(sample.response_mask)) for sample in samples)
        response = max(len(sample.ids) for sample in samples) - prompt
        self.plan = BatchPlan(args, [len(parts) for parts in by_episode], prompt, response)
        read = float(np.mean([len(sample.ids) for sample in samples]))
        step = StepWork(args.batch_size, read, 0, self.plan.row)
        self.work = RunWork.of(args, step, self.steps, passes=LEARNING)
        if not self.val.num_rows:
            self.val_file = None
        self.settings = settings_of("sft", self)
        machines, meeting = "", "--standalone"
        if args.nodes > 1:
            command = "MASTER=HOST:29500 bash run.sh"
            machines = (
                f"# Run this on every machine, with the address of the first one: {command}\n"
                f': "${{MASTER:?run this on each of {args.nodes} machines, as {command}}}"\n'
            )
            run_id = shlex.quote(self.folder.name)
            meeting = f'--rdzv-backend=c10d --rdzv-endpoint="$MASTER" --rdzv-id={run_id}'
        self.words = {"machines": machines, "meeting": meeting, "nodes": args.nodes, "gpus": args.gpus}

    def check(self, config: Any) -> None:
        """Make the parts as the trainer makes them."""
        for part in ("engine", "optim", "checkpoint"):
            require("verl.utils.config", "verl").omega_conf_to_dataclass(config[part])

    def write(self) -> None:
        """Write `train.parquet` and, with rows for validation, `val.parquet`.

        Raises:
            ValueError: a run that has begun had other rows; they stay as they are.
        """
        parts = {self.train_file: self.train}
        if self.val_file is not None:
            parts[self.val_file] = self.val
        earlier = [file for file in parts if self.checkpoints.is_dir() and file.is_file()]
        if not all(pq.read_table(file).equals(parts[file]) for file in earlier):
            raise ValueError(
                f"{self.args.out} was begun with other episodes of {self.args.teacher!r}; give those, or "
                "another --out"
            )
        for file, rows in parts.items():
            with whole_file(file) as work:
                pq.write_table(rows, work)

    def findings(self) -> list[str]:
        """The teacher's episodes, their tasks and rows, and what is learned from them."""
        args, train, val = self.args, self.train, self.val
        tokens = len(pc.list_flatten(train["input_ids"]))
        learned = pc.sum(pc.list_flatten(train["loss_mask"])).as_py()
        tasks, held = (pc.count_distinct(part["task"]).as_py() for part in (train, val))
        turns = np.mean([len(episode.turns) for episode in self.episodes])
        teacher = (
            f"teacher: {args.teacher}, {len(self.episodes):,} episodes of {args.env}, {turns:.1f} turns each"
        )
        others = f"{held:,} others for validation" if held else "none for validation, as they are too few"
        return [
            "; ".join([teacher, *self.notes]),
            f"tasks: {tasks:,} to train on, {others}",
            f"rows: {train.num_rows:,} to train on, {val.num_rows:,} for validation, "
            f"{np.mean(self.plan.rows):.1f} an episode, to {self.plan.row:,} tokens",
            f"loss: the mean over {learned:,} tokens of replies, of {tokens:,} that are read",
            f"steps: {self.steps:,} of {args.batch_size} rows; passes: {args.epochs}, each without the "
            f"{train.num_rows - self.steps_a_pass * args.batch_size} rows that do not fill a batch",
        ]


def split_rows(args: SFTArgs, episodes: list[Episode]) -> tuple[pa.Table, pa.Table]:
    """The rows to learn from, and those of tasks that are held out: `task`, `input_ids` and `loss_mask`.

    None are held out if they would not fill a batch, since verl measures whole batches.
    """
    count = len({episode.task for episode in episodes})
    held = min(args.eval_episodes, count // 10)
    learned, others = split_by_task(episodes, held / count, args.seed) if held else (episodes, [])
    if sum(len(episode.samples) for episode in others) < args.batch_size:
        learned, others = episodes, []
    if args.eval_every and not others:
        raise ValueError(
            f"--eval-every measures whole batches of {args.batch_size} sequences, and a tenth of "
            f"{count} tasks has fewer; leave it out, or give more episodes"
        )
    order = np.random.default_rng([args.seed, 0, 3]).permutation(len(learned)).tolist()
    return rows_of([learned[i] for i in order]), rows_of(others)


def rows_of(episodes: Sequence[Episode]) -> pa.Table:
    """The training sequences of episodes, each with its task."""
    rows = [(episode.task, sample) for episode in episodes for sample in episode.samples]
    masks = pa.array([sample.response_mask for _, sample in rows], pa.large_list(pa.bool_()))
    ids = pa.array([sample.ids for _, sample in rows], pa.large_list(pa.int32()))
    tasks = pa.array([task for task, _ in rows], pa.string())
    return pa.table({"task": tasks, "input_ids": ids, "loss_mask": masks})
