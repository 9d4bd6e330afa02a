"""Processes that train together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from memenvs.core.batching import lexicographic_order
from memenvs.core.episode import Ids
from memenvs.models.loading import own_device

T = TypeVar("T")


class ProcessGroup:
    """The processes that `accelerate launch` or `torchrun` started, from the variables that both set.

    Every process holds the whole model. Rollouts are shared by groups and updates by samples; gradients are
    summed. No random number depends on the rank: a run gives the same curve on any number of processes.

    Attributes:
        rank: number of this process.
        size: number of processes.
        is_main: whether this process writes logs and checkpoints.
        device: this process's device of torch.

    Args:
        device: device of torch; None: `own_device()`.
    """

    def __init__(self, device: str | None = None) -> None:
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.is_main = self.rank == 0
        self.device = device or own_device()
        cuda = self.device.startswith("cuda")
        if cuda and self.size > 1:
            torch.cuda.set_device(self.device)
        if self.size > 1 and not torch.distributed.is_initialized():
            # Imported after the group it would keep it, as a default argument, beyond `close`: its threads
            # would live on at exit, where they abort the process now and then.
            from torch.distributed import nn  # noqa: F401

            # Objects are gathered through gloo: they never need a GPU.
            torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")

    def shard(self, items: Sequence[T]) -> list[T]:
        """This process's share of the items."""
        return list(items[self.rank :: self.size])

    def gather(self, items: Sequence[T]) -> list[T]:
        """The items of all processes, in the order that they had before `shard`."""
        if self.size == 1:
            return list(items)
        parts: list[list[T]] = [[] for _ in range(self.size)]
        torch.distributed.all_gather_object(parts, list(items))
        longest = max(map(len, parts))
        return [part[i] for i in range(longest) for part in parts if i < len(part)]

    def sum(self, *numbers: float) -> list[float]:
        """The sums of numbers over all processes."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return [float(value) for value in total]

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace each gradient by its sum over all processes."""
        if self.size == 1:
            return
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                torch.distributed.all_reduce(parameter.grad)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return self.sum(float(flag))[0] > 0

    def close(self) -> None:
        """Leave the group."""
        if self.size > 1:
            torch.distributed.destroy_process_group()


def share(sequences: Sequence[Ids], processes: ProcessGroup | None) -> list[int]:
    """The indices of this process's sequences: neighbours in the order of their ids, which share prefixes.

    All processes have about the same number of tokens.
    """
    order = lexicographic_order(sequences)
    if processes is None or processes.size == 1:
        return order
    ends = np.cumsum([len(sequences[i]) for i in order], dtype=np.int64)
    owners = (ends - 1) * processes.size // max(1, sum(map(len, sequences)))
    return [i for i, owner in zip(order, owners, strict=True) if owner == processes.rank]
