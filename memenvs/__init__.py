"""Gymnasium environments for language agents that must remember, with credit for every turn.

Importing registers the environments: `gym.make("MemChunkQA-v0")`. Without an import the module's name does
it: `gym.make("memenvs:MemChunkQA-v0")`.
"""

from gymnasium.envs.registration import register

from memenvs.spaces import UnicodeText
from memenvs.tasks import Task, TaskSet, open_tasks
from memenvs.text_env import TextEnv, get_state, set_state

__version__ = "0.1.0"

__all__ = ["ENV_IDS", "Task", "TaskSet", "TextEnv", "UnicodeText", "get_state", "open_tasks", "set_state"]

register("MemChunkQA-v0", "memenvs.envs.chunk_qa:ChunkQAEnv")
register(
    "MemNIAH-v0",
    "memenvs.envs.chunk_qa:ChunkQAEnv",
    kwargs={"tasks": "niah", "metric": "string_match_all"},
)

ENV_IDS = ("MemChunkQA-v0", "MemNIAH-v0")
"""Ids of the text environments."""
