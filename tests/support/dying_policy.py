"""A policy that kills its process once, in task 5, if DIES_ONCE names a file that is not there."""

import os
from pathlib import Path


def note_the_end(observation, info):
    file = os.environ.get("DIES_ONCE")
    if file and info["task"].endswith("-5") and info["turn"] == 1 and not Path(file).exists():
        Path(file).touch()
        os._exit(1)
    return observation[-40:]
