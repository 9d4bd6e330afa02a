"""The arithmetic of a step in verl, which counts rows: texts that the model reads, each with its replies."""

from __future__ import annotations

import functools
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from memenvs.baselines.costs import MEMORY, ModelSize, RunWork
from memenvs.baselines.verl.settings import CHECKPOINTS, model_path
from memenvs.core.episode import Episode

SERVER = "actor_rollout_ref.rollout.tensor_model_parallel_size"
"""verl's name of the number of GPUs that a vLLM server has."""
OFFLOAD = {
    "actor_rollout_ref.model": "actor_rollout_ref.actor.fsdp_config.offload_policy",
    "critic.model": "critic.fsdp.offload_policy",
    "model": "engine.offload_policy",
}
"""By verl's name of a model, the setting that moves what is sharded of it to the host's memory."""


class Spread(NamedTuple):
    """What one of many episodes or rows has."""

    mean: float
    usual: float  # at most, in 95% of them
    most: int

    @classmethod
    def of(cls, counts: Sequence[int]) -> Spread:
        """Of the counts of all."""
        return cls(float(np.mean(counts)), float(np.percentile(counts, 95)), max(counts))

    def __str__(self) -> str:
        return f"{self.mean:,.1f} (95% to {self.usual:,.0f}, most {self.most:,})"


class BatchPlan(NamedTuple):
    """A run's arguments, what an episode is to verl, and the sizes of batches that follow from both."""

    args: Any
    rows: Sequence[int]  # of each episode that was played
    prompt: int  # most tokens of a fresh prompt
    response: int  # most tokens of what follows it in a row
    seen: Sequence[Spread] = ()  # tokens of the prompts and of what followed them
    read: float = 0.0  # tokens of an episode, the mean
    written: float = 0.0  # of its replies

    @classmethod
    def of(cls, args: Any, episodes: Sequence[Episode], window: int | None) -> BatchPlan:
        """The plan for a run whose episodes are like these.

        Limits have room for other tasks: a tenth more of what is read, and 256 tokens of a fresh prompt.
        """
        by_episode = [episode.sequences() for episode in episodes]
        sequences = [sequence for parts in by_episode for sequence in parts]
        prompts = [len(sequence[0].reply.read) for sequence in sequences]
        feedback = [len(turn.reply.read) for sequence in sequences for turn in sequence[1:]]
        turns = max(len(sequence) for sequence in sequences)
        response = turns * args.max_new_tokens + math.ceil(1.1 * (turns - 1) * max(feedback, default=0))
        prompt = 256 + 256 * math.ceil(1.1 * max(prompts) / 256)
        if window is not None:  # room for a reply before room for longer prompts
            prompt = min(prompt, max(window - args.max_new_tokens, *prompts))
            response = min(response, max(window - prompt, 1))
        followed = [
            sum(len(turn.reply.ids) for turn in sequence) + sum(len(turn.reply.read) for turn in sequence[1:])
            for sequence in sequences
        ]
        seen = Spread.of(prompts), Spread.of(followed)
        written = sum(len(turn.reply.ids) for sequence in sequences for turn in sequence) / len(episodes)
        read = (sum(prompts) + sum(followed)) / len(episodes) - written
        return cls(args, [len(parts) for parts in by_episode], prompt, response, seen, read, written)

    @property
    def all_gpus(self) -> int:
        """GPUs of all nodes."""
        return int(self.args.gpus * self.args.nodes)

    @property
    def row(self) -> int:
        """Most tokens of a row."""
        return self.prompt + self.response

    @property
    def micro_batch(self) -> int:
        """Most tokens of a forward pass on a GPU, at least those of a row."""
        return max(int(self.args.micro_batch_tokens), self.row)

    @property
    def episode_rows(self) -> int:
        """Most rows of an episode; of several a tenth more, for other tasks."""
        most = max(self.rows)
        return most if most == 1 else math.ceil(1.1 * most)

    @property
    def mini_batch(self) -> int:
        """Rows of an optimizer step divided by `group_size`; a step's rows are a multiple of the GPUs.

        Where a step has several of them, our agent loop gives every episode as many rows, some of which weigh
        nothing, so that it has the recipe's number whatever was played. verl fills up a single one.
        """
        args = self.args
        unit = self.all_gpus // math.gcd(self.all_gpus, args.group_size)
        return max(1, math.ceil(args.groups * self.episode_rows / args.minibatches / unit)) * unit

    @property
    def optimizer_steps(self) -> str:
        """How many a step has, of how many rows each."""
        count = math.ceil(self.args.groups * self.episode_rows / self.mini_batch)
        return f"{count} of {self.mini_batch * self.args.group_size:,} rows"


class Training:
    """A run of one of verl's trainers: its settings, what it reads besides them, and what its check says."""

    configuration: str  # verl's name of the trainer's configuration
    script: str  # the template of run.sh in this folder
    format = "parquet"  # of its data
    words: Mapping[str, Any] = {}  # what only this template has a place for
    models: Sequence[str]  # verl's names of those in training
    plan: BatchPlan
    work: RunWork
    steps: int  # number of the last
    settings: dict[str, Any]  # all, in verl's names
    extras: Sequence[str] = ()  # of this package, for verl's workers
    reference = False  # whether the GPUs also hold a model that is not trained
    sampler = 0.0  # share of a GPU's memory that a vLLM server takes

    def __init__(self, args: Any) -> None:
        self.args, self.folder = args, args.out.resolve()
        self.checkpoints = self.folder / CHECKPOINTS
        self.train_file = self.folder / f"train.{self.format}"
        self.val_file: Path | None = self.folder / f"val.{self.format}"
        self.config: Any = transformers.AutoConfig.from_pretrained(model_path(args.model))
        self.text_config: Any = self.config.get_text_config()
        if not hasattr(self.text_config, "num_key_value_heads"):  # which verl reads of every model
            raise ValueError(
                f"verl cannot load {args.model}: its configuration ({self.config.model_type}) has no "
                "num_key_value_heads; use another model, or leave --engine verl out"
            )
        limits = getattr(self.text_config, "max_position_embeddings", None), args.max_model_len
        self.window: int | None = min(filter(None, limits), default=None)

    @functools.cached_property
    def parameters(self) -> int:
        """Number of the model's parameters; it is not loaded."""
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(self.config)
        return sum(weight.numel() for weight in model.parameters())

    def needs(self) -> list[str]:
        """The memory of a run, its checkpoints and its costs in three lines, computed and not measured.

        Trained weights are in float32 with their gradients and two moments, 16 bytes a parameter, sharded
        over all GPUs. With LoRA almost all parameters only have their weights. A GPU also holds what vLLM
        takes or, at other times, a pass: logits in float32, three times, and activations in bfloat16.
        """
        args, text, billions = self.args, self.text_config, self.parameters / 1e9
        of_trained = 4 if args.lora_rank else 16
        of_reference = 4 if self.reference else 0
        states = (len(self.models) * of_trained + of_reference) * billions / self.plan.all_gpus
        of_token = 3 * 4 * text.vocab_size + 2 * text.hidden_size * text.num_hidden_layers
        a_pass = self.plan.micro_batch * of_token / 1e9
        card, remark = MEMORY / 1e9, " (no card here)"
        if torch.cuda.is_available():
            card, remark = float(torch.cuda.get_device_properties(0).total_memory) / 1e9, ""
        sampler, beside = self.sampler * card, f"{a_pass:.1f} GB"
        if sampler:
            beside = f"the larger of {sampler:.1f} GB for vLLM and {beside}"
        advice = ""
        if max(sampler, a_pass) > card:
            advice = "; it does NOT fit: a row is too long; shorten prompts or replies"
        elif states + max(sampler, a_pass) > card:
            offload = " ".join(f"{OFFLOAD[model]}=True" for model in self.models)
            advice = f"; it does NOT fit: append {offload} to the run.sh command, or use more GPUs"
        work, free = self.work, shutil.disk_usage(self.folder).free / 1e9
        checkpoint = work.trained * work.saved * billions
        kept = work.kept * checkpoint
        size, servers = ModelSize.of(text, self.parameters), self.settings.get(SERVER, 1)
        try:
            costs = str(work.cost(size, self.plan.all_gpus, servers, vllm=self.sampler or 0.5))
        except ValueError as error:
            costs = f"not known, as {error}"
        room = "" if kept <= free else "; they do NOT fit: lower --keep, or give another --out"
        return [
            f"memory per GPU (computed): {states:.1f} GB of states and {beside} for a pass, of {card:.0f} GB"
            f"{remark}{advice}",
            f"checkpoints: {checkpoint:.1f} GB each, {kept:.1f} GB at most, {free:.0f} GB free{room}",
            f"costs (computed for H100s, without scoring): {costs}",
        ]
