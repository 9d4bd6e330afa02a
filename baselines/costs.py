"""What a run costs, computed from its rows, its tokens and the throughput of an H100, and not measured.

The minutes of a step of an 8B model on eight GPUs, two of them to a vLLM server, and 800 such steps:

>>> size = ModelSize(parameters=8.19e9, layers=36, kv_heads=8, head_dim=128)
>>> work = StepWork(episodes=256, read=44_268, written=8_192, row=7_348)
>>> round(work.seconds(size, gpus=8, gpus_a_server=2) / 60)
10
>>> print(RunWork(work, steps=800, evaluated=2_000).cost(size, gpus=8, gpus_a_server=2))
9.9 minutes a step, 1,055 GPU-hours of training and 3 of evaluation, 115 GB of disk
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

MEMORY, FLOPS, BANDWIDTH = 80e9, 0.4 * 989e12, 3.35e12
"""An H100's memory in bytes, 40% of its peak in bfloat16, and the bytes a second of its memory."""
PLAYING, LEARNING = 1, 4
"""Times that 2 FLOP a parameter are spent on a token: sampling 1, and training 4 (forward 1, recomputed 1,
backward 2)."""
PASSES, CRITIC = PLAYING + 2 + LEARNING, 1 + LEARNING
"""Those of a policy, with old and reference log-probabilities 2, and of a critic, with its values 1."""
CHECKPOINT, ADAPTER, MODEL = 12, 4, 2
"""Bytes a parameter: of a checkpoint (weights and two moments in float32, with LoRA almost only the weights),
and of a model in bfloat16."""


class ModelSize(NamedTuple):
    """What decides a model's time: the number of its parameters, and the size of its cache."""

    parameters: float
    layers: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, config: Any, parameters: float) -> ModelSize:
        """The size of a model by its text configuration, as transformers has it."""
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return cls(parameters, config.num_hidden_layers, config.num_key_value_heads, head_dim)

    def cache(self, tokens: float) -> float:
        """Bytes of keys and values in bfloat16."""
        return 2 * self.layers * self.kv_heads * self.head_dim * 2 * tokens


class StepWork(NamedTuple):
    """What a step plays, in tokens of an episode."""

    episodes: float
    read: float  # prompts and what follows replies
    written: float  # replies
    row: float  # of a prompt and its reply
    scored: float = 0.0  # by the model, for a reward method

    def seconds(
        self, size: ModelSize, gpus: int, gpus_a_server: int, *, vllm: float = 0.5, passes: float = PASSES
    ) -> float:
        """Seconds of a step on H100s, without attention, activations, environments and transfers.

        Args:
            size: the model.
            gpus: all that train and sample.
            gpus_a_server: tensor parallelism of vLLM.
            vllm: share of a GPU's memory that vLLM takes.
            passes: times that 2 FLOP a parameter are spent on a token.

        Raises:
            ValueError: the weights leave no room for a cache.
        """
        parallel = min(gpus, gpus_a_server)
        share = self.episodes * parallel / gpus  # rollouts a server
        room = vllm * MEMORY * parallel - 2 * size.parameters
        if room <= 0:
            raise ValueError(
                f"{size.parameters / 1e9:.1f}B parameters need more than {parallel} GPUs a server"
            )
        cache = size.cache(self.row)
        at_once = min(share, room / cache)
        tokens = self.episodes * (passes * (self.read + self.written) + self.scored)
        compute = 2 * size.parameters * tokens / gpus / FLOPS
        # Every token of those that are sampled at once reads the weights and all caches.
        reads = share / at_once * self.written
        return compute + reads * (2 * size.parameters + at_once * cache) / parallel / BANDWIDTH


class RunCost(NamedTuple):
    """What a run costs on H100s."""

    step: float  # seconds
    training: float  # GPU-hours
    evaluation: float  # GPU-hours
    disk: float  # bytes of the checkpoints at most, and of the model that is made of one
    asked: tuple[float, float]  # tokens that a judge or a teacher reads and writes

    def __str__(self) -> str:
        read, written = (tokens / 1e6 for tokens in self.asked)
        asked = (
            f"; a judge or teacher reads {read:,.1f} and writes {written:,.1f} million tokens" if read else ""
        )
        return (
            f"{self.step / 60:,.1f} minutes a step, {self.training:,.0f} GPU-hours of training and "
            f"{self.evaluation:,.0f} of evaluation, {self.disk / 1e9:,.0f} GB of disk{asked}"
        )


class RunWork(NamedTuple):
    """What a run does: its steps, and what is played, asked and kept beside them."""

    step: StepWork
    steps: int
    evaluated: float = 0  # episodes for validation, or of a table's columns
    asked: tuple[float, float] = (0, 0)  # tokens that a judge or a teacher reads and writes
    passes: float = PASSES  # `LEARNING` where nothing is played
    trained: int = 1  # models: a critic is the second
    kept: int = 1  # checkpoints at a time
    saved: float = CHECKPOINT  # bytes a parameter of a checkpoint

    @classmethod
    def of(
        cls,
        args: Any,
        step: StepWork,
        steps: int,
        held: int = 0,
        asked: Sequence[float] = (0, 0),
        **others: Any,
    ) -> RunWork:
        """The work of a learner's arguments: `held` episodes a validation, `asked` tokens an episode."""
        evaluated = steps // args.eval_every * held if args.eval_every else 0
        # While a checkpoint is written, all those that are kept are still there.
        kept = min(args.keep + 1, math.ceil(steps / args.save_every))
        saved = ADAPTER if args.lora_rank else CHECKPOINT
        read, written = (step.episodes * steps * tokens for tokens in asked)
        return cls(step, steps, evaluated, (read, written), kept=kept, saved=saved, **others)

    def cost(self, size: ModelSize, gpus: int, gpus_a_server: int, *, vllm: float = 0.5) -> RunCost:
        """What it costs; for the arguments and errors see `StepWork.seconds`."""
        passes, hours = self.passes + (self.trained - 1) * CRITIC, gpus / 3600
        step = self.step.seconds(size, gpus, gpus_a_server, vllm=vllm, passes=passes) if self.steps else 0.0
        played = self.step._replace(episodes=self.evaluated, scored=0.0)
        evaluation = played.seconds(size, gpus, gpus_a_server, passes=PLAYING) if self.evaluated else 0.0
        checkpoints = self.kept * self.trained * self.saved if self.steps else 0
        disk = size.parameters * (checkpoints + MODEL)
        return RunCost(step, self.steps * step * hours, evaluation * hours, disk, self.asked)
