"""Gymnasium environments for language agents that must remember, with credit for every turn.

Importing registers the environments: `gym.make("MemChunkQA-v0")`. Without an import the module's name does
it: `gym.make("memenvs:MemChunkQA-v0")`.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium.envs.registration import register

from memenvs.core.links import check_links

check_links(Path(__file__).parent)

if TYPE_CHECKING:
    from memenvs.core.asynchronous import AsyncTextEnv
    from memenvs.core.env import TextEnv
    from memenvs.core.spaces import UnicodeText
    from memenvs.core.state import get_state, set_state
    from memenvs.core.vector import TextVectorEnv
    from memenvs.evaluation.run import evaluate
    from memenvs.logs.files import read_conversations
    from memenvs.rollout.collect import collect
    from memenvs.tasks.taskset import Task, TaskSet, open_tasks

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
    "read_conversations",
    "set_state",
]

register("MemChunkQA-v0", "memenvs.envs.chunk_qa:ChunkQAEnv")
register("MemNIAH-v0", "memenvs.envs.chunk_qa:NIAHEnv", kwargs={"tasks": "niah"})

register("MemSokoban-v0", "memenvs.sokoban.environments:SokobanEnv")
register("MemSokobanImage-v0", "memenvs.sokoban.environments:SokobanImageEnv")
register(
    "MemSokobanGrid-v0",
    "memenvs.sokoban.grid:SokobanGridEnv",
    vector_entry_point="memenvs.sokoban.grid:SokobanVectorEnv",
)

register("MemSearchQA-v0", "memenvs.envs.search_qa:SearchQAEnv")
register("MemToolQA-v0", "memenvs.envs.tool_qa:ToolQAEnv")

ENV_IDS = (
    *("MemChunkQA-v0", "MemNIAH-v0", "MemSearchQA-v0", "MemToolQA-v0"),
    *("MemSokoban-v0", "MemSokobanImage-v0"),
)
"""Ids of the environments whose actions are texts."""


_MODULES = {
    "AsyncTextEnv": "core.asynchronous",
    "Task": "tasks.taskset",
    "TaskSet": "tasks.taskset",
    "TextEnv": "core.env",
    "TextVectorEnv": "core.vector",
    "UnicodeText": "core.spaces",
    "collect": "rollout.collect",
    "evaluate": "evaluation.run",
    "get_state": "core.state",
    "open_tasks": "tasks.taskset",
    "read_conversations": "logs.files",
    "set_state": "core.state",
}


def __getattr__(name: str) -> Any:
    """A public name, whose module is loaded when it is first named, so that commands begin at once."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"memenvs.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
