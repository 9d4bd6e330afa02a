"""Gymnasium environments for language agents that must remember, with credit for every turn.

Importing registers the environments: `gym.make("MemChunkQA-v0")`. Without an import the module's name does
it: `gym.make("memenvs:MemChunkQA-v0")`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

from memenvs.core.optional import check_links

check_links(Path(__file__).parent)

from memenvs.core.asynchronous import AsyncTextEnv  # noqa: E402  # after the check, as the others
from memenvs.core.env import TextEnv  # noqa: E402
from memenvs.core.spaces import UnicodeText  # noqa: E402
from memenvs.core.state import get_state, set_state  # noqa: E402
from memenvs.core.vector import TextVectorEnv  # noqa: E402
from memenvs.tasks.taskset import Task, TaskSet, open_tasks  # noqa: E402

if TYPE_CHECKING:
    from memenvs.evaluation.run import evaluate
    from memenvs.rollout.collect import collect

__version__ = "0.1.0"

__all__ = [
    "ENV_IDS",
    "AsyncTextEnv",
    "Task",
    "TaskSet",
    "TextEnv",
    "TextVectorEnv",
    "UnicodeText",
    "collect",
    "evaluate",
    "get_state",
    "open_tasks",
    "set_state",
]

register("MemChunkQA-v0", "memenvs.envs.chunk_qa:ChunkQAEnv")
register("MemNIAH-v0", "memenvs.envs.chunk_qa:NIAHEnv", kwargs={"tasks": "niah"})

register("MemSokoban-v0", "memenvs.envs.sokoban:SokobanEnv")
register("MemSokobanImage-v0", "memenvs.envs.sokoban:SokobanImageEnv")
register(
    "MemSokobanGrid-v0",
    "memenvs.envs.sokoban_grid:SokobanGridEnv",
    vector_entry_point="memenvs.envs.sokoban_grid:SokobanVectorEnv",
)

register("MemSearchQA-v0", "memenvs.envs.search_qa:SearchQAEnv")
register("MemToolQA-v0", "memenvs.envs.tool_qa:ToolQAEnv")

ENV_IDS = (
    *("MemChunkQA-v0", "MemNIAH-v0", "MemSearchQA-v0", "MemToolQA-v0"),
    *("MemSokoban-v0", "MemSokobanImage-v0"),
)
"""Ids of the environments whose actions are texts."""


def __getattr__(name: str) -> Any:
    """`collect` and `evaluate`, which load the modules of policies when they are first named."""
    if name == "collect":
        from memenvs.rollout.collect import collect

        return collect
    if name == "evaluate":
        from memenvs.evaluation.run import evaluate

        return evaluate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
