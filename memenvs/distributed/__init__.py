"""Text environments in Ray actors, on this machine or many; see docs/trainers.md."""

from memenvs.distributed.pool import WorkerDied
from memenvs.distributed.vector import RayTextVectorEnv

__all__ = ["RayTextVectorEnv", "WorkerDied"]
