"""How long a step of GRPO takes on GPUs, computed and not measured.

The minutes of an 8B model on eight GPUs, two of them to a vLLM server:

>>> size = ModelSize(parameters=8.19e9, layers=36, kv_heads=8, head_dim=128)
>>> work = StepWork(episodes=256, read=44_268, written=8_192, row=7_348)
>>> round(work.seconds(size, gpus=8, gpus_a_server=2) / 60)
10
"""

from __future__ import annotations

from typing import NamedTuple

MEMORY, FLOPS, BANDWIDTH = 80e9, 0.4 * 989e12, 3.35e12
"""An H100's memory in bytes, 40% of its peak in bfloat16, and the bytes a second of its memory."""
PASSES = 7
"""Times that 2 FLOP a parameter are spent on a token: sampling 1, old and reference log-probabilities 2,
training 4 (forward 1, recomputed 1, backward 2)."""


class ModelSize(NamedTuple):
    """What decides a model's time: the number of its parameters, and the size of its cache."""

    parameters: float
    layers: int
    kv_heads: int
    head_dim: int

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

    def seconds(self, size: ModelSize, gpus: int, gpus_a_server: int, *, vllm: float = 0.5) -> float:
        """Seconds of a step on H100s, without attention, activations, environments and transfers.

        Args:
            size: the model.
            gpus: all that train and sample.
            gpus_a_server: tensor parallelism of vLLM.
            vllm: share of a GPU's memory that vLLM takes.

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
        tokens = self.episodes * (PASSES * (self.read + self.written) + self.scored)
        compute = 2 * size.parameters * tokens / gpus / FLOPS
        # Every token of those that are sampled at once reads the weights and all caches.
        reads = share / at_once * self.written
        return compute + reads * (2 * size.parameters + at_once * cache) / parallel / BANDWIDTH
