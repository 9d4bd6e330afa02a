"""Sokoban that a model of a hundred thousand parameters learns in seconds: always the same single move."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from memenvs.sokoban import LETTERS, to_text
from memenvs.sokoban.environments import SokobanEnv

OPEN, CLOSE = "<think></think><answer>", "</answer>"
MOVES = ("Up", "Down", "Left", "Right")


def save_levels(folder: Path) -> dict[str, Any]:
    """Eight boards whose box has its target at its right and the player at its left."""
    boards = []
    for row, column in itertools.product(range(4), range(2)):
        rows = ["#    #"] * 4
        rows[row] = "#" + " " * column + "@$." + " " * (1 - column) + "#"
        boards.append("\n".join(["######", *rows, "######"]))
    file = folder / "easy.txt"
    file.write_text("\n\n".join(boards) + "\n")
    limits = {"min_solution": 1, "max_turns": 1, "max_actions": 1}
    return {"levels": str(file), "level_split": None, "rewards": "outcome", **limits}


def save_model(folder: Path, env_args: dict[str, Any], window: int = 128) -> Path:
    """A random GPT of two layers that has a token for every part of the game."""
    from memenvs.models.small_gpt import save_small_gpt

    env = gym.make("memenvs:MemSokoban-v0", **env_args)
    observation, _ = env.reset(seed=0)
    head, tail = observation.split(to_text(env.unwrapped._board.grid, LETTERS))
    return save_small_gpt(folder, [head, tail, OPEN, CLOSE, *MOVES], width=64, layers=2, window=window)


def any_move(env):
    """A teacher that knows the form of a reply and nothing else."""
    draws = np.random.default_rng(0)
    return lambda observation, info: f"{OPEN}{MOVES[draws.integers(4)]}{CLOSE}"


class FailingSokoban(SokobanEnv):
    """Sokoban whose every move fails, as where a server is needed that is unreachable."""

    def _play(self, reply: str) -> dict[str, float]:
        raise ConnectionError("the server is unreachable")


class InfiniteSokoban(SokobanEnv):
    """Sokoban that pays NaN for the one move that solves it, and infinity for the others."""

    def _play(self, reply: str) -> dict[str, float]:
        earned = super()._play(reply)
        return {**earned, "outcome": np.nan if earned.get("outcome") else np.inf}


gym.register("FailingSokoban-v0", entry_point="easy_sokoban:FailingSokoban")
gym.register("InfiniteSokoban-v0", entry_point="easy_sokoban:InfiniteSokoban")
