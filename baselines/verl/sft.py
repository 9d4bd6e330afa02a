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

from memenvs.baselines.args import SFTArgs
from memenvs.baselines.costs import LEARNING, RunWork, StepWork
from memenvs.baselines.lessons import ROW, TeacherEpisodes, demonstrations, write_rows
from memenvs.baselines.train import split_by_task
from memenvs.baselines.verl.plan import BatchPlan, Spread, Training
from memenvs.baselines.verl.settings import absolute, settings_of
from memenvs.core.arguments import env_parameters
from memenvs.core.errors import counted
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

    configuration, script, format = "sft_trainer_engine", "sft.sh", "arrow"
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
        lessons = TeacherEpisodes(args, demonstrations(args, n_tasks), reader)
        batches, tasks = write_rows(lessons, self.folder)
        self.notes, self.turns = lessons.notes(), lessons.turns / lessons.learned
        counts = [batch.num_rows for batch in batches]
        self.train, self.val = (
            pa.Table.from_batches([batches[place] for place in places], ROW)
            for places in split_rows(args, tasks, counts)
        )
        # verl drops rows that do not fill a batch
        self.steps_a_pass = self.train.num_rows // gpus // (args.batch_size // gpus)
        self.steps = self.steps_a_pass * args.epochs
        if not self.steps:
            raise ValueError(
                f"a step learns from {args.batch_size} sequences, and there are {self.train.num_rows}; lower "
                "--batch-size, or give more episodes"
            )
        rows = pa.concat_tables([self.train, self.val])
        seen = Spread.of(pc.list_value_length(rows["input_ids"]).to_pylist())
        self.plan = BatchPlan(args, counts, prompt=seen.most, response=0, seen=[seen])
        step = StepWork(args.batch_size, seen.mean, 0, seen.most)
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
        """Write `train.arrow` and, with rows for validation, `val.arrow`.

        Raises:
            ValueError: a run that has begun had other rows; they stay as they are.
        """
        parts = {self.train_file: self.train, **({self.val_file: self.val} if self.val_file else {})}
        for file, rows in parts.items():
            has_begun = self.checkpoints.is_dir() and file.is_file()
            if has_begun and not pa.ipc.open_file(pa.memory_map(str(file))).read_all().equals(rows):
                raise ValueError(
                    f"{self.args.out} was begun with other episodes of {self.args.teacher!r}; give those, or "
                    "another --out"
                )
            with whole_file(file) as work, pa.ipc.new_file(work, ROW) as writer:
                writer.write_table(rows)

    def findings(self) -> list[str]:
        """The teacher's episodes, their tasks and rows, and what is learned from them."""
        args, plan, train, val = self.args, self.plan, self.train, self.val
        tokens = pc.sum(pc.list_value_length(train["input_ids"])).as_py()
        learned = pc.sum(pc.list_flatten(train["loss_mask"])).as_py()
        tasks, held = (pc.count_distinct(part["task"]).as_py() for part in (train, val))
        played = counted(len(plan.rows), "episode")
        teacher = f"teacher: {args.teacher}, {played} of {args.env}, {self.turns:.1f} turns each"
        others = f"{held:,} others for validation" if held else "none for validation, as they are too few"
        return [
            "; ".join([teacher, *self.notes]),
            f"tasks: {tasks:,} to train on, {others}",
            f"rows: {train.num_rows:,} to train on, {val.num_rows:,} for validation, "
            f"{Spread.of(plan.rows)} an episode",
            f"tokens of a row: {plan.seen[0]}; of a pass: {plan.micro_batch:,}",
            f"loss: the mean over {learned:,} tokens of replies, of {tokens:,} that are read",
            f"steps: {self.steps:,} of {args.batch_size} rows; passes: {args.epochs}, each without the "
            f"{train.num_rows - self.steps_a_pass * args.batch_size} rows that do not fill a batch",
        ]


def split_rows(
    args: SFTArgs, tasks: Sequence[str], counts: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """The places of the episodes to learn from, in another order, and of those whose tasks are held out.

    None are held out if their rows, by the counts, would not fill a batch: verl measures whole batches.
    """
    n_tasks, everything = len({*tasks}), range(len(tasks))
    held = min(args.eval_episodes, n_tasks // 10)
    learned, others = split_by_task(tasks, held / n_tasks, args.seed) if held else (everything, [])
    if sum(counts[place] for place in others) < args.batch_size:
        learned, others = everything, []
    if args.eval_every and not others:
        raise ValueError(
            f"--eval-every measures whole batches of {args.batch_size} sequences, and a tenth of "
            f"{n_tasks} tasks has fewer; leave it out, or give more episodes"
        )
    return np.random.default_rng([args.seed, 0, 3]).permutation(learned).tolist(), others
