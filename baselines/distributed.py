"""Training in several processes (torch.distributed)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from memenvs.core.optional import require

T = TypeVar("T")


class World:
    """The processes that `accelerate launch` or `torchrun` started, by the variables that both set.

    Every process holds the whole model. Rollouts are dealt out by groups and updates by samples; gradients
    are added up. Nothing is drawn by rank, so that a run gives the same curve on any number of processes.

    Attributes:
        rank: number of this process.
        size: of processes.
        device: of torch, this process's own.
    """

    def __init__(self, device: str | None = None) -> None:
        torch = require("torch", "train")
        self.rank, self.size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        cuda = torch.cuda.is_available() if device is None else device.startswith("cuda")
        local = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if cuda else "cpu"
        self.device = device if device and self.size == 1 else local
        if cuda and self.size > 1:
            torch.cuda.set_device(self.device)
        if self.size > 1 and not torch.distributed.is_initialized():
            # Imported after the group it would keep it, as a default argument, beyond `close`: its threads
            # would live on at exit, where they abort the process now and then.
            require("torch.distributed.nn", "train")
            # Objects are gathered through gloo: they never need a GPU.
            torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")

    @property
    def first(self) -> bool:
        """Whether this process writes logs and checkpoints."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """This process's part of the work."""
        return list(items[self.rank :: self.size])

    def gather(self, items: Sequence[T]) -> list[T]:
        """The items of all processes, dealt back as `share` dealt them."""
        if self.size == 1:
            return list(items)
        parts: list[list[T]] = [[] for _ in range(self.size)]
        require("torch.distributed", "train").all_gather_object(parts, list(items))
        longest = max(map(len, parts))
        return [part[i] for i in range(longest) for part in parts if i < len(part)]

    def add(self, *numbers: float) -> list[float]:
        """The sums of numbers over all processes."""
        if self.size == 1:
            return list(numbers)
        torch = require("torch", "train")
        total = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        torch.distributed.all_reduce(total)
        return [float(value) for value in total]

    def add_gradients(self, parameters: Iterable[Any]) -> None:
        """Add the gradients of all processes up, in each."""
        if self.size == 1:
            return
        torch = require("torch", "train")
        for parameter in parameters:
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                torch.distributed.all_reduce(parameter.grad)

    def any(self, flag: bool) -> bool:
        """Whether the flag is up in any process."""
        return self.add(float(flag))[0] > 0

    def close(self) -> None:
        """Part from the others."""
        if self.size > 1:
            require("torch.distributed", "train").destroy_process_group()
