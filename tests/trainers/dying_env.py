"""A chunk reader that kills its process when told to, once."""

import os
from pathlib import Path

import gymnasium as gym

from memenvs.envs.chunk_qa import ChunkQAEnv


class DyingEnv(ChunkQAEnv):
    """Dies at a reply that names a file which is not there yet; `ALWAYS` dies every time."""

    def _play(self, reply):
        word, _, file = reply.partition(" ")
        if word == "ALWAYS" or (word == "DIE" and not Path(file).exists()):
            if word == "DIE":
                Path(file).touch()
            os._exit(1)
        return super()._play(reply)


gym.register("Dying-v0", "dying_env:DyingEnv")
